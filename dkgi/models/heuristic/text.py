"""A question as words, with the names of nodes and quoted words in it as one word each.

>>> text = Text.of('Which films of Ada Lund mention "winter"?', links, schema)
>>> text.words
['which', 'films', 'of', '<name>', 'mention', '<quote>', '?']

Not covered: what the other words mean (nouns.py, question.py).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dkgi.models.heuristic.schema import Schema, terms_of
from dkgi.models.heuristic.words import CLASSES, GENERIC, PERSONAL, REMAINING, noun_key, stem, tokenize

NAME, QUOTE = "<name>", "<quote>"

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]")
_WORDS = re.compile(r"\b(?:words?|phrases?)\s+([a-z][\w -]*?)(?=\s*(?:[.,;:?]|\b(?:and|but|or|in|is|are)\b|$))")
_LENGTH = 0.1
_LENGTHS = {
    ".": 1.0, "?": 1.0, "!": 1.0, ";": 0.6, ":": 0.6, ",": 0.3, "and": 0.25, "or": 0.25, "but": 0.4, "while": 0.4,
    "yet": 0.4, "although": 0.4, "though": 0.4, "whereas": 0.4, NAME: 0.2, QUOTE: 0.2,
}  # fmt: skip
"""How much a word sets apart what stands on its two sides."""


_RANKS = {"former": 0, "first": 0, "latter": 1, "second": 1}
_OF_TWO = (["of", "them"], ["of", "these"], ["of", "those"], ["of", "the"])
"""What follows a rank that stands for a name."""


@dataclass(frozen=True, slots=True)
class Name:
    """A named node: the nodes of that name, by type.

    exact   the question spells it as the graph does
    single  it is one word in lower case, which may be just a word
    echo    it is a pronoun that may stand for the name
    """

    at: int
    nodes: dict[str, tuple[int, ...]]
    exact: bool = True
    echo: bool = False
    single: bool = False


@dataclass(frozen=True, slots=True)
class Quote:
    at: int
    text: str


@dataclass(frozen=True)
class Text:
    """Words in lower case; `names` and `quotes` by place."""

    words: list[str]
    names: dict[int, Name]
    quotes: dict[int, Quote]
    _far: list[float] = field(default_factory=list)

    @staticmethod
    def of(question: str, links: Sequence[dict[str, Any]], schema: Schema) -> "Text":
        """`links`: start, end and nodes (id, type, spelling) of each name, as the linking program prints them."""
        quoted = quotes_in(question)
        found: list[tuple[int, int, Any]] = [*quoted]
        for link in links:
            start, end = link["start"], link["end"]
            inside = any(start < until and since < end for since, until, _ in quoted)
            if not inside and not _is_plain(question[start:end], schema) and not _is_degree(question, start, end):
                found.append((start, end, link["nodes"]))
        text = Text([], {}, {})
        words = tokenize(question)
        for start, end, what in sorted(found, key=lambda span: span[:2]):
            text.words.extend(token.word for token in words if token.start < start)
            words = [token for token in words if token.start >= end]
            place = len(text.words)
            text.words.append(QUOTE if isinstance(what, str) else NAME)
            if isinstance(what, str):
                text.quotes[place] = Quote(place, what)
            else:
                exact = any(spelling == question[start:end] for *_, spelling in what)
                single = question[start:end].isalpha() and question[start:end].islower()
                text.names[place] = Name(place, _by_type(what), exact, single=single)
        text.words.extend(token.word for token in words)
        text = _without_remark(text, resolved=_resolve(text, schema))
        far = 0.0
        for word in text.words:
            text._far.append(far)
            far += _LENGTHS.get(word, _LENGTH)
        return text

    def gap(self, one: int, other: int) -> float:
        """How far apart two places are: the words and borders between them."""
        first, last = min(one, other), max(one, other)
        return self._far[last] - self._far[first + 1] if last > first else 0.0

    def between(self, one: int, other: int) -> list[str]:
        """The words between two places."""
        return self.words[min(one, other) + 1 : max(one, other)]

    def word(self, place: int) -> str:
        """The word at a place; a full stop before the first and after the last one."""
        return self.words[place] if 0 <= place < len(self.words) else "."


def quotes_in(question: str) -> list[tuple[int, int, str]]:
    """Start, end and text of what is quoted, or of what follows "the words" where nothing is."""
    quoted = [(found.start(), found.end(), found[1].strip()) for found in _QUOTED.finditer(question)]
    return quoted or [(found.start(1), found.end(1), found[1].strip()) for found in _WORDS.finditer(question)]


def _is_plain(name: str, schema: Schema) -> bool:
    """Whether a name is made of words that have another meaning here, such as "the onset" or "very frequent"."""
    if name in REMAINING:
        return True
    known = schema.cues.keys() | schema.nouns.keys() | schema.roles.keys() | GENERIC
    terms = terms_of([token.word for token in tokenize(name) if token.word.isalpha()])
    return not any(word.isupper() for word in name.split()) and all(term in known for term in terms)


def _is_degree(question: str, start: int, end: int) -> bool:
    """Whether a name is a word in lower case before "class" or the like: "the frequency label"."""
    after = [token.word for token in tokenize(question[end:])][:1]
    return question[start:end].islower() and any(stem(word) in CLASSES for word in after)


def _resolve(text: Text, schema: Schema) -> bool:
    """Puts a name where "the former", "the second of them" or "this film" stands for one that came before.

    Returns whether one of the two with which the question begins came again so.
    """
    first_two = sorted(text.names)[:2]
    found = False
    for place, word in enumerate(text.words):
        rank = _RANKS.get(word)
        bound = word in ("former", "latter") or text.words[place + 1 : place + 3] in _OF_TWO
        if rank is not None and bound and len(first_two) == 2 and place > first_two[-1]:
            named = text.names[first_two[rank]]
            text.words[place] = NAME
            text.names[place] = Name(place, named.nodes)
            found = True
        elif text.word(place - 1) == "this":
            last = _last_of(schema.nouns.get(noun_key(word), frozenset()), text, place, schema)
            if last is not None:
                text.words[place] = NAME
                text.names[place] = Name(place, last.nodes)
    return found


def _last_of(types: frozenset[str], text: Text, before: int, schema: Schema) -> Name | None:
    """The last name of one of the types before a place, if no noun for them stands between."""
    for place in range(before - 1, -1, -1):
        if place in text.names and types & text.names[place].nodes.keys():
            return text.names[place]
        if types & schema.nouns.get(noun_key(text.words[place]), frozenset()):
            return None
    return None


def _without_remark(text: Text, *, resolved: bool) -> Text:
    """The text without an opening clause that only says who asks, or of what, and whose names all come again."""
    end = next((place for place, word in enumerate(text.words) if word in (".", ";", ":")), len(text.words))
    opening = [name for at, name in text.names.items() if at < end]
    later = [name.nodes for at, name in text.names.items() if at > end]
    personal = any(word in PERSONAL for word in text.words[:end])
    if not opening or not (resolved or personal) or any(name.nodes not in later for name in opening):
        return text
    start = end + 1
    names = {at - start: replace(name, at=at - start) for at, name in text.names.items() if at > end}
    quotes = {at - start: replace(quote, at=at - start) for at, quote in text.quotes.items() if at > end}
    return Text(text.words[start:], names, quotes)


def _by_type(nodes: Sequence[Sequence[Any]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for node, type_, *_ in nodes:
        found[type_] = (*found.get(type_, ()), node)
    return found
