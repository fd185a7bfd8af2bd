"""All that is made of a question, the schema and the names that were found in the graph.

>>> understood = understand(question, schema_text, link_output)
>>> understood.readings[0].cost, understood.named
(0.7, frozenset({17}))

Not covered: what the readings give (agent.py).
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from dkgi.models.heuristic.asked import asked_noun
from dkgi.models.heuristic.evidence import json_lines
from dkgi.models.heuristic.interpretation import readings
from dkgi.models.heuristic.nouns import find_nouns
from dkgi.models.heuristic.reading import Reading, expression, looser
from dkgi.models.heuristic.schema import Schema, parse_schema
from dkgi.models.heuristic.text import Text
from dkgi.models.heuristic.words import is_plural, noun_key, stem, tokenize

LONG = 8
"""Words that the values of an attribute have on average when it holds text."""

COMMON = 100
"""Names of a type that a word ends when it is a noun for the type."""


@dataclass(frozen=True)
class Understanding:
    """`keys`: the attribute that holds text, by type; `named`: nodes that the question names.

    `asked`: types of what the question is after, where that is all that can be known because the graph has no relations.
    """

    schema: Schema | None
    keys: dict[str, str]
    named: frozenset[int]
    readings: tuple[Reading, ...]
    asked: tuple[str, ...] = ()

    @property
    def is_linked(self) -> bool:
        """Whether the graph has relations, as far as is known."""
        return self.schema is None or bool(self.schema.relations)

    def expressions(self, reading: Reading) -> tuple[str, list[str]]:
        """Python for what a reading gives, and for each of its looser forms."""
        assert self.schema is not None
        forms = [expression(form, self.schema, self.keys) for form in (reading, *looser(reading))]
        return forms[0], forms[1:]


def strange_words(question: str, schema_text: str) -> list[str]:
    """Words of the question that the schema does not explain, without a plural's end."""
    schema = parse_schema(schema_text)
    words = [token.word for token in tokenize(question) if len(token.word) > 3 and token.word.isalpha()]
    plain = [word[:-1] if is_plural(word) else word for word in words if not word.endswith(("ed", "ing"))]
    return sorted({word for word in plain if not schema.knows(word)}) if schema else []


# A conversation is played again for each reply, and this is its costly part.
@lru_cache(maxsize=256)
def understand(question: str, schema_text: str, link_output: str) -> Understanding:
    """`link_output` is what the linking program printed; whatever is malformed is passed over."""
    schema = parse_schema(schema_text)
    lines = json_lines([link_output])
    links = [line for line in lines if _is_link(line)]
    keys = _text_attributes(lines, question)
    named = frozenset(node for link in links for node, *_ in link["nodes"])
    if schema is None:
        return Understanding(None, keys, named, ())
    learned = replace(schema, nouns={**_nouns_in_names(lines), **schema.nouns})
    text = Text.of(question, links, schema)
    found = readings(text, learned, frozenset(keys))
    asked = None if schema.relations else asked_noun(text, list(find_nouns(text, learned)), learned)
    return Understanding(schema, keys, named, tuple(found), tuple(sorted(asked.types)) if asked else ())


def _nouns_in_names(lines: list[dict[str, Any]]) -> dict[str, frozenset[str]]:
    """Words by the one type whose names they end: "disease" where hundreds of its names do, others hardly."""
    counts: dict[str, dict[str, int]] = {}
    for line in lines:
        words = line.get("words")
        for word, count in words.items() if isinstance(words, dict) else ():
            if isinstance(count, int):
                counts.setdefault(noun_key(word), {})[str(line.get("type"))] = count
    found = {}
    for word, by_type in counts.items():
        best, *rest = sorted(by_type, key=lambda type_: (-by_type[type_], type_))
        if by_type[best] >= COMMON and all(by_type[type_] * 5 <= by_type[best] for type_ in rest):
            found[word] = frozenset((best,))
    return found


def _is_link(line: dict[str, Any]) -> bool:
    """Whether a line has the form that the linking program prints for a name."""
    start, end, nodes = (line.get(key) for key in ("start", "end", "nodes"))
    if not (isinstance(start, int) and isinstance(end, int) and 0 <= start < end and isinstance(nodes, list)):
        return False
    return all(isinstance(node, list) and [type(part) for part in node] == [int, str, str] for node in nodes)


def _text_attributes(lines: list[dict[str, Any]], question: str) -> dict[str, str]:
    """By type, the attribute of long texts that the question names, or the one that most nodes have."""
    asked = {stem(token.word) for token in tokenize(question)}
    found: dict[str, str] = {}
    for line in lines:
        if not isinstance(line.get("attributes"), dict) or not isinstance(line.get("type"), str):
            continue
        filled = {key: pair[0] for key, pair in line["attributes"].items() if _is_long(pair)}
        if filled:
            found[line["type"]] = max(filled, key=lambda key: (stem(key) in asked, filled[key], key))
    return found


def _is_long(pair: Any) -> bool:
    return _is_pair(pair) and bool(pair[1] >= LONG * pair[0] > 0)


def _is_pair(pair: Any) -> bool:
    """How many nodes have an attribute, and how many words that makes."""
    return isinstance(pair, list) and len(pair) == 2 and all(isinstance(part, int) for part in pair)
