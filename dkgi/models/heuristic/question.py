"""What a question mentions, in the order in which it does.

>>> mentions(Text.of("Which films by Ada Moore are not silent?", links), schema)
[Noun(at=0, types={'film'}, asked...), Name(at=3, nodes={'person': (17,)}), Modifier(at=5, negative=True, ...)]

Four things are mentioned: nouns that stand for unknown nodes, names of nodes, quoted words, and modifiers, which deny a
link or say of which kind it is.
Not covered: how the mentions belong together (interpretation.py).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from dkgi.models.heuristic.schema import Role, Schema, terms_of
from dkgi.models.heuristic.words import (
    ABSENCES,
    ANY,
    ASKING,
    AUXILIARIES,
    DEFINITE,
    DEGREES,
    DEMONSTRATIVE,
    GENERIC,
    INDEFINITE,
    LOOSE_ROLES,
    NEGATIONS,
    NOT_NEGATIONS,
    OTHER,
    PLACES,
    POSSESSIVE,
    PREPOSITIONS,
    PRONOUNS,
    SIBLINGS,
    STOP,
    is_plural,
    starts_with,
    stem,
    tokenize,
)

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]")
_WORDS = re.compile(r"\b(?:words?|phrases?)\s+([a-z][\w -]*?)(?=\s*(?:[.,;:?]|\b(?:and|but|or|in|is|are)\b|$))")
_COSTS = {".": 1.0, "?": 1.0, "!": 1.0, ";": 0.6, ":": 0.6, ",": 0.3, "and": 0.25, "or": 0.25, "but": 0.4, "while": 0.4,
          "yet": 0.4, "although": 0.4, "though": 0.4, "whereas": 0.4, "where": 0.1, "<name>": 0.2, "<quote>": 0.2}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Noun:
    """An unknown node; no `types` for one of any type.

    manner  asked, other, definite, indefinite, bare or pronoun
    owned   "its genes": the noun is tied to something named before
    """

    at: int
    types: frozenset[str]
    manner: str
    asked: bool
    plural: bool
    owned: bool
    role: Role | None = None
    sibling: bool = False


@dataclass(frozen=True, slots=True)
class Name:
    """A named node: the nodes of that name, by type."""

    at: int
    nodes: dict[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Quote:
    at: int
    text: str


@dataclass(frozen=True, slots=True)
class Modifier:
    """A denial, or relations that a word points to."""

    at: int
    negative: bool
    relations: frozenset[int] = frozenset()


Mention = Noun | Name | Quote | Modifier


@dataclass(frozen=True)
class Text:
    """A question as words; names and quoted words are one word each."""

    words: list[str]
    names: dict[int, dict[str, tuple[int, ...]]]
    quotes: dict[int, str]
    _far: list[float] = field(default_factory=list)

    @staticmethod
    def of(question: str, links: Sequence[dict[str, Any]], schema: Schema) -> "Text":
        """`links`: start, end and nodes (id, type, attribute) of each name, as the linking program prints them."""
        quoted = quotes_in(question)
        spans = [(start, end, "<quote>", text) for start, end, text in quoted]
        for link in links:
            start, end = link["start"], link["end"]
            if not any(start < until and since < end for since, until, _ in quoted) and not _is_plain(
                question[start:end], schema
            ):
                spans.append((start, end, "<name>", _by_type(link["nodes"])))
        text = Text([], {}, {})
        words = tokenize(question)
        for start, end, mark, value in [
            *sorted(spans, key=lambda span: span[:2]),
            (len(question), len(question), "", ""),
        ]:
            text.words.extend(token.word for token in words if token.start < start)
            words = [token for token in words if token.start >= end]
            if mark:
                (text.quotes if mark == "<quote>" else text.names)[len(text.words)] = value
                text.words.append(mark)
        far = 0.0
        for word in text.words:
            text._far.append(far)
            far += _COSTS.get(word, 0.1)
        return text

    def gap(self, one: int, other: int) -> float:
        """How far apart two places are: words and borders between them."""
        first, last = min(one, other), max(one, other)
        return self._far[last] - self._far[first + 1] if last > first else 0.0

    def between(self, first: int, last: int) -> list[str]:
        return self.words[first + 1 : last]


def _is_plain(name: str, schema: Schema) -> bool:
    """Whether a name is made of words that have another meaning here, such as "the onset" or "very frequent"."""
    words = [token.word for token in tokenize(name)]
    known = schema.cues.keys() | schema.nouns.keys() | schema.roles.keys() | GENERIC
    return not any(word.isupper() for word in name.split()) and all(
        word in STOP or not word.isalpha() or term in known for word, term in zip(words, map(stem, words), strict=True)
    )


def quotes_in(question: str) -> list[tuple[int, int, str]]:
    """Start, end and text of what is quoted, or of what follows "the words" where nothing is."""
    quoted = [(found.start(), found.end(), found[1].strip()) for found in _QUOTED.finditer(question)]
    return quoted or [(found.start(1), found.end(1), found[1].strip()) for found in _WORDS.finditer(question)]


def _by_type(nodes: Sequence[Sequence[Any]]) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for node, type_, *_ in nodes:
        found[type_] = (*found.get(type_, ()), node)
    return found


def mentions(text: Text, schema: Schema) -> list[Mention]:
    """All mentions in order of place."""
    nouns = _with_asked(text, [*_nouns(text, schema)], schema)
    names = [Name(at, nodes) for at, nodes in text.names.items()]
    quotes = [Quote(at, words) for at, words in text.quotes.items()]
    found: list[Mention] = [*nouns, *names, *quotes, *_modifiers(text, schema)]
    return sorted(found, key=lambda mention: (mention.at, str(type(mention))))


def _nouns(text: Text, schema: Schema) -> Iterator[Noun]:
    words = text.words
    place = 0
    while place < len(words):
        start = place
        role, sibling, types = None, False, None
        while place < len(words) and (part := _noun_part(text, place, schema)) is not None:
            part_types, part_role, part_sibling = part
            role, sibling = role or part_role, sibling or part_sibling
            types = part_types if types is None or part_types else types
            place += 1
        if types is None:
            place += 1
            continue
        last = place - 1
        before = _before(words, start)
        pronoun = words[last] in PRONOUNS or words[last] in PLACES
        if not (text.names.get(place) and not role and types and types & text.names[place].keys()):
            yield Noun(
                at=last,
                types=types,
                manner="pronoun" if pronoun else _manner(before),
                asked=False,
                plural=is_plural(words[last]) or words[last] in ("them", "they", "those", "these"),
                owned=any(word in POSSESSIVE for word in before),
                role=role,
                sibling=sibling,
            )


def _noun_part(text: Text, place: int, schema: Schema) -> tuple[frozenset[str], Role | None, bool] | None:
    """Types, role and siblinghood that the word at a place gives to a noun; None where it is no part of one."""
    word, words = text.words[place], text.words
    following = words[place + 1] if place + 1 < len(words) else "."
    key = stem(word)
    if word in PLACES:
        near = words[max(0, place - 2) : place]
        level = any(stem(other) in ("level", "direct", "immediat", "someth", "just") for other in near)
        roles = schema.roles.get(key)
        return (frozenset(), roles[0], False) if level and roles and following not in PRONOUNS else None
    if word == "level" and words[max(0, place - 1)] == "same":
        return frozenset(), None, True
    if key in SIBLINGS:
        return frozenset(), None, True
    if key in schema.roles and not (key in LOOSE_ROLES and following != "of"):
        role = schema.roles[key][0]
        relation = schema.relations[role.relation]
        return (relation.sources if role.side == "source" else relation.targets), role, False
    if key in schema.nouns and not word.endswith("ed"):
        return frozenset(schema.nouns[key]), None, False
    if key in GENERIC:
        return frozenset(), None, False
    if word in PRONOUNS and not (
        word in ("those", "these", "any", "former", "latter") and _opens_noun(text, place, schema)
    ):
        return frozenset(), None, False
    return None


def _opens_noun(text: Text, place: int, schema: Schema) -> bool:
    """Whether a noun follows within three words, so that "these" is no pronoun."""
    for word in text.words[place + 1 : place + 4]:
        key = stem(word)
        if key in schema.nouns or key in schema.roles or key in GENERIC:
            return True
        if word in STOP and word not in INDEFINITE | OTHER | {"more"}:
            return False
    return False


def _before(words: list[str], at: int) -> list[str]:
    """The words of the noun phrase that ends at a place, without the noun."""
    start = at
    while start > 0 and at - start < 5:
        word = words[start - 1]
        if not word.isalpha() or word in PREPOSITIONS or word in AUXILIARIES or word in ("and", "or", "but"):
            break
        start -= 1
    return words[start:at]


def _manner(before: list[str]) -> str:
    for manner, marks in (
        ("other", OTHER),
        ("definite", DEFINITE),
        ("definite", DEMONSTRATIVE),
        ("indefinite", INDEFINITE),
    ):
        if any(word in marks for word in before):
            return manner
    return "bare"


def _with_asked(text: Text, nouns: list[Noun], schema: Schema) -> list[Noun]:
    """The nouns, with the one marked that the question is after."""
    asked = _interrogated(text, nouns) or _ordered(text, nouns)
    if asked is None:
        asked = next((noun for noun in nouns if noun.types & schema.candidates), None)
    marked = []
    for noun in nouns:
        manner = "asked" if noun is asked and noun.manner not in ("other", "pronoun") else noun.manner
        marked.append(
            Noun(noun.at, noun.types, manner, noun is asked, noun.plural, noun.owned, noun.role, noun.sibling)
        )
    return marked


def _interrogated(text: Text, nouns: list[Noun]) -> Noun | None:
    """The noun after a question word: "which of the diseases", but not "a disease which"."""
    words = text.words
    for place, word in enumerate(words):
        if word not in ("which", "what", "who", "whose"):
            continue
        start = place - 1 if place and words[place - 1] in PREPOSITIONS else place
        if start and words[start - 1] not in (".", ",", ":", ";", "?", "!", "and", "but", "then"):
            continue
        for noun in nouns:
            if noun.at > place and noun.at - place < 8:
                between = text.between(place, noun.at)
                opens = start == 0 or words[start - 1] in (".", ":", ";", "?", "!")
                if not any(w in AUXILIARIES or not w.isalpha() for w in between) or (opens and between[:1] == ["are"]):
                    return noun
                break
    return None


def _ordered(text: Text, nouns: list[Noun]) -> Noun | None:
    """The object of a request: "find the diseases", "give me all genes"."""
    words = text.words
    for place, word in enumerate(words):
        if word not in ASKING:
            continue
        start = place
        while start and words[start - 1] in (
            "i",
            "we",
            "me",
            "to",
            "please",
            "am",
            "are",
            "would",
            "like",
            "also",
            "can",
            "you",
            "then",
            "'",
            "m",
        ):
            start -= 1
        if start and words[start - 1] not in (".", ",", ":", ";", "?", "!", "and"):
            continue
        for noun in nouns:
            if noun.at > place:
                if text.gap(place, noun.at) < 1.0 and words[place + 1 : place + 2] != ["at"]:
                    return noun
                break
    return None


def _modifiers(text: Text, schema: Schema) -> Iterator[Modifier]:
    negatives = frozenset(relation.id for relation in schema.relations.values() if relation.negative)
    words = text.words
    place = 0
    while place < len(words):
        word = words[place]
        if found := starts_with(words, place, NOT_NEGATIONS) or starts_with(
            words, place, (("in", "common"), ("common", "to"))
        ):
            place += len(found)
            continue
        if negatives and (found := starts_with(words, place, ABSENCES)):
            yield Modifier(place, False, negatives)
            place += len(found)
            continue
        if found := starts_with(words, place, NEGATIONS) or starts_with(words, place, ABSENCES):
            yield Modifier(place + len(found) - 1, True)
            place += len(found)
            continue
        degree = 1 if word in DEGREES and place + 1 < len(words) else 0
        terms = terms_of(words[place : place + 1 + degree]) if word not in STOP else []
        if terms and terms[0] in schema.cues and not any(other in ANY for other in words[max(0, place - 2) : place]):
            yield Modifier(place + degree, False, schema.cues[terms[0]])
        place += 1 + degree
