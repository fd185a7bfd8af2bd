"""What a question may call the things of a graph: unambiguous names of nodes, clear phrases of their definitions.

>>> names = Names([(1, ["Seizure", "Fit"], ["Fits"]), (2, ["Fit for work"], []), (3, ["FIT"], [])])
>>> names.of(1), names.of(3)
(['Seizure'], [])
>>> phrases = Phrases({1: "Cyst of the renal cortex.", 2: "Renal cortex, thin.", 3: "A renal cortex.", 4: "A cystic eye."})
>>> phrases.of(1), phrases.found("renal cortex"), phrases.found("cyst")
(['renal cortex'], frozenset({1, 2, 3}), None)

A name is unambiguous where no other node has it as a name or a synonym of any scope, upper and lower case aside. A
phrase is clear where every occurrence stands between word boundaries: then a search for the bare string and a search
for whole words find the same nodes ("cyst" above is not, because of "cystic").
Not covered: where names and definitions stand in a record; templates.py knows that.
"""

import re
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Set
from functools import cache
from itertools import accumulate
from pathlib import Path

from dkgi.questions.programs import Nodes

_IDENTIFIER = re.compile(r"[A-Za-z]+:\d|\d{5,}|#\s?\d")
_UNWIELDY = re.compile(r'["“”;?()\[\]{}]|\s{2}|^.{71}|^.{0,2}$|obsolete', re.IGNORECASE)
_SEGMENT = re.compile(r"[^a-z -]+")
_WORD = re.compile(r"(?!.*ly$)[a-z]{4,}")
RARE = 3
"""Definitions that a phrase occurs in at least."""


class Names:
    """Unambiguous names by node, built from (node, names, names not to be used) rows."""

    def __init__(self, rows: Iterable[tuple[int, list[str], list[str]]]) -> None:
        owners: dict[str, set[int]] = defaultdict(set)
        self._usable: dict[int, list[str]] = {}
        for node, usable, others in rows:
            self._usable[node] = usable
            for name in (*usable, *others):
                owners[name.casefold()].add(node)
        self._shared = {name for name, nodes in owners.items() if len(nodes) > 1}

    def of(self, node: int) -> list[str]:
        """Names by which a question can mean this node and no other; they hold no identifier and fit a sentence."""
        return [
            name
            for name in self._usable[node]
            if name.casefold() not in self._shared and not _IDENTIFIER.search(name) and not _UNWIELDY.search(name)
        ]


class Phrases:
    """Pairs of adjacent words that say something and occur in some definitions, but not in many."""

    def __init__(self, definitions: Mapping[int, str]) -> None:
        self._nodes = sorted(definitions)
        lowered = [definitions[node].lower() for node in self._nodes]
        self._text = "\n".join(lowered) + "\n"
        self._starts = [0, *accumulate(len(text) + 1 for text in lowered)]
        dull = frozenset((Path(__file__).parent / "dull_words.txt").read_text(encoding="utf-8").split())
        pairs = [set(_pairs(text, dull)) for text in lowered]
        counts = Counter(pair for found in pairs for pair in found)
        self._by_node = {
            node: sorted(pair for pair in found if counts[pair] >= RARE)
            for node, found in zip(self._nodes, pairs, strict=True)
        }
        self.found = cache(self._found)

    def of(self, node: int) -> list[str]:
        """Phrases of one definition, sorted; empty where the node has no definition."""
        return self._by_node.get(node, [])

    def _found(self, phrase: str) -> Nodes | None:
        """Nodes whose definition contains `phrase`, in any case of letters; None where the phrase is not clear."""
        nodes: set[int] = set()
        start = self._text.find(phrase)
        while start >= 0:
            end = start + len(phrase)
            if any(letter.isalnum() or letter in "-_" for letter in (self._text[start - 1], self._text[end])):
                return None
            nodes.add(self._nodes[bisect_right(self._starts, start) - 1])
            start = self._text.find(phrase, end)
        return frozenset(nodes)


def _pairs(text: str, dull: Set[str]) -> Iterator[str]:
    for segment in _SEGMENT.split(text):
        words = segment.split(" ")
        good = [bool(_WORD.fullmatch(word)) and word not in dull for word in words]
        for place in range(len(words) - 1):
            if good[place] and good[place + 1]:
                yield f"{words[place]} {words[place + 1]}"
