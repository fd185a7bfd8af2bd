"""What the graph tools take as a node's name, its summary and its words.

>>> spec = IndexSpec(names=("name", "synonyms.text"), summary=("definition",))
>>> name_and_summary({"name": "Ataxia", "synonyms": [{"text": "Unsteady gait"}], "definition": "A lack of order."}, spec)
('Ataxia', 'Unsteady gait; A lack of order.')
>>> words_of("Lack of β-catenin, 2nd type")
['lack', 'of', 'β', 'catenin', '2nd', 'type']

Which attributes are meant is declared in conf/dataset; only texts count, so a number that stands for a missing value
(MAG has -1) is none.
Not covered: stemming and stop words; neither engine has them.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

TOKENIZER = "runs of Unicode letters and digits, in lower case"
SNIPPET = 200
"""Characters of a snippet."""
_WORD = re.compile(r"[^\W_]+")


@dataclass(frozen=True, slots=True)
class IndexSpec:
    """From conf/dataset: dotted paths of attributes, in order; a path that leads through a list means each entry.

    names    all that a node is called; the first text found is its name, the others go before the summary
    summary  further texts that search may find it by
    engine   what ranks: `csr`, the default at every size (tests/bench/kg.py has the figures), or `tantivy`
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    names: tuple[str, ...] = ()
    summary: tuple[str, ...] = ()
    engine: Literal["csr", "tantivy"] = "csr"


def name_and_summary(attributes: Mapping[str, Any], spec: IndexSpec) -> tuple[str, str]:
    """Name and summary of a node, each on one line; empty where it has none. No text stands twice."""
    name, *others = names_of(attributes, spec.names) or [""]
    seen = {name: None, **dict.fromkeys(others), **dict.fromkeys(_texts(attributes, spec.summary))}
    return name, "; ".join(text for text in seen if text != name)


def names_of(attributes: Mapping[str, Any], paths: Sequence[str]) -> list[str]:
    """All names of a node in the order of the paths, each once."""
    return list(dict.fromkeys(_texts(attributes, paths)))


def words_of(text: str) -> list[str]:
    """The words of a text or a query, in order, as the index knows them."""
    return _WORD.findall(text.lower())


def snippet(text: str, words: Sequence[str]) -> str:
    """Part of `text` around the first of `words` that stands in it, else its beginning; `...` marks a cut."""
    found = _place_of_first(words, text)
    start = max(0, min(found - SNIPPET // 3, len(text) - SNIPPET))
    end = start + SNIPPET
    if start:
        start = text.find(" ", start, found) + 1 or start
    if end < len(text):
        end = max(text.rfind(" ", end - SNIPPET // 3, end), 0) or end
    return "..." * (start > 0) + text[start:end] + "..." * (end < len(text))


def _place_of_first(words: Sequence[str], text: str) -> int:
    wanted = set(words)
    places: dict[str, int] = {}
    for match in _WORD.finditer(text.lower()):
        if match.group() in wanted:
            places.setdefault(match.group(), match.start())
            if len(places) == len(wanted) or match.group() == words[0]:
                break
    return next((places[word] for word in words if word in places), 0)


def _texts(attributes: Mapping[str, Any], paths: Sequence[str]) -> Iterator[str]:
    for path in paths:
        for text in _walk(attributes, path.split(".")):
            if line := " ".join(text.split()):
                yield line


def _walk(value: Any, path: Sequence[str]) -> Iterator[str]:
    if isinstance(value, list):
        for part in value:
            yield from _walk(part, path)
    elif path:
        if isinstance(value, Mapping):
            yield from _walk(value.get(path[0]), path[1:])
    elif isinstance(value, str):
        yield value
