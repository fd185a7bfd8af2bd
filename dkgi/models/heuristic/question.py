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
    COPULAS,
    DEFINITE,
    DEGREES,
    DEMONSTRATIVE,
    GENERIC,
    INDEFINITE,
    INTRODUCING,
    LOOSE_ROLES,
    NEGATIONS,
    NOT_NEGATIONS,
    OTHER,
    PLACES,
    PLURAL_PRONOUNS,
    POSSESSIVE,
    PREDICATING,
    PREPOSITIONS,
    PRONOUNS,
    RELATIVES,
    SIBLINGS,
    STOP,
    is_plural,
    noun_key,
    starts_with,
    stem,
    tokenize,
)

_QUOTED = re.compile(r"[\"“”]([^\"“”]+)[\"“”]")
_WORDS = re.compile(r"\b(?:words?|phrases?)\s+([a-z][\w -]*?)(?=\s*(?:[.,;:?]|\b(?:and|but|or|in|is|are)\b|$))")
_NAME, _QUOTE = "<name>", "<quote>"
_COSTS = {".": 1.0, "?": 1.0, "!": 1.0, ";": 0.6, ":": 0.6, ",": 0.3, "and": 0.25, "or": 0.25, "but": 0.4, "while": 0.4,
          "yet": 0.4, "although": 0.4, "though": 0.4, "whereas": 0.4, "where": 0.1, _NAME: 0.2, _QUOTE: 0.2}  # fmt: skip


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
    """A named node: the nodes of that name, by type; `echo` where a pronoun may stand for it."""

    at: int
    nodes: dict[str, tuple[int, ...]]
    exact: bool = True
    echo: bool = False


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
    names: dict[int, Name]
    quotes: dict[int, str]
    _far: list[float] = field(default_factory=list)

    @staticmethod
    def of(question: str, links: Sequence[dict[str, Any]], schema: Schema) -> "Text":
        """`links`: start, end and nodes (id, type, attribute) of each name, as the linking program prints them."""
        quoted = quotes_in(question)
        found: list[tuple[int, int, Any]] = [*quoted]
        for link in links:
            start, end = link["start"], link["end"]
            inside = any(start < until and since < end for since, until, _ in quoted)
            if not inside and not _is_plain(question[start:end], schema):
                found.append((start, end, link["nodes"]))
        text = Text([], {}, {})
        words = tokenize(question)
        for start, end, what in sorted(found, key=lambda span: span[:2]):
            text.words.extend(token.word for token in words if token.start < start)
            words = [token for token in words if token.start >= end]
            place = len(text.words)
            text.words.append(_QUOTE if isinstance(what, str) else _NAME)
            if isinstance(what, str):
                text.quotes[place] = what
            else:
                text.names[place] = Name(place, _by_type(what), any(name == question[start:end] for *_, name in what))
        text.words.extend(token.word for token in words)
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
    known = schema.cues.keys() | schema.nouns.keys() | schema.roles.keys() | GENERIC
    terms = terms_of([token.word for token in tokenize(name) if token.word.isalpha()])
    return not any(word.isupper() for word in name.split()) and all(term in known for term in terms)


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
    quotes = [Quote(at, words) for at, words in text.quotes.items()]
    found: list[Mention] = [*nouns, *text.names.values(), *_echoes(text), *quotes, *_modifiers(text, schema)]
    return sorted(found, key=lambda mention: (mention.at, str(type(mention))))


def _echoes(text: Text) -> Iterator[Name]:
    """Names that "it" may stand for: the one before it."""
    for place, word in enumerate(text.words):
        before = [at for at in text.names if at < place]
        if word == "it" and before:
            yield Name(place, text.names[max(before)].nodes, echo=True)


def _nouns(text: Text, schema: Schema) -> Iterator[Noun]:
    words = text.words
    place = 0
    while place < len(words):
        start = place
        role, sibling, types = None, False, None
        while place < len(words) and (part := _noun_part(text, place, schema)) is not None:
            if place > start and (words[place] in PRONOUNS or _is_verb_after(words[place - 1], types, part[0])):
                break
            part_types, part_role, part_sibling = part
            role, sibling = role or part_role, sibling or part_sibling
            types = part_types if types is None or part_types else types
            place += 1
        if types is None:
            place += 1
            continue
        last = place - 1
        before = _before(words, start)
        if types and not role and not sibling and _is_verb(words, start, last, before):
            continue
        pronoun = words[last] in PRONOUNS or words[last] in PLACES or words[last] == "what"
        predicate = start >= 2 and before[:1] in (["a"], ["an"]) and words[start - len(before) - 1] in PREDICATING
        if not predicate and not _only_introduces(text, place, types, role if words[last] not in PLACES else None, schema):
            yield Noun(
                at=last,
                types=types,
                manner="pronoun" if pronoun else _manner([*before, words[last]]),
                asked=False,
                plural=is_plural(words[last]) or words[last] in PLURAL_PRONOUNS,
                owned=any(word in POSSESSIVE or word == "same" for word in before),
                role=role,
                sibling=sibling,
            )


def _is_verb_after(word: str, types: frozenset[str] | None, others: frozenset[str]) -> bool:
    """Whether a word after a noun is its verb: "diseases feature"."""
    return is_plural(word) and bool(types) and bool(others) and not (types or frozenset()) & others


def _is_verb(words: list[str], start: int, last: int, before: list[str]) -> bool:
    """Whether what looks like a noun is a verb: a bare singular, or "that features" before a name."""
    if before or start < last:
        return False
    named = words[last + 1 : last + 2] in ([_NAME], [_QUOTE])
    return not is_plural(words[last]) or (named and words[start - 1] in RELATIVES)


def _only_introduces(text: Text, place: int, types: frozenset[str], role: Role | None, schema: Schema) -> bool:
    """Whether the noun that ends before a place is followed by its name: "the gene X", "the mode of inheritance is X"."""
    end = place
    while end < len(text.words) and end - place < 4 and (
        text.words[end] in COPULAS or frozenset(schema.nouns.get(noun_key(text.words[end]), ())) & types
    ):
        end += 1
    name = text.names.get(end)
    return name is not None and bool(types & name.nodes.keys()) and (role is None or end == place)


def _noun_part(text: Text, place: int, schema: Schema) -> tuple[frozenset[str], Role | None, bool] | None:
    """Types, role and siblinghood that the word at a place gives to a noun; None where it is no part of one."""
    word, words = text.words[place], text.words
    following = words[place + 1] if place + 1 < len(words) else "."
    key = stem(word)
    if word in PLACES:
        before = words[place - 1] if place else "."
        roles = schema.roles.get(key)
        placed = (before.isalpha() or before == _NAME) and not before.endswith("ed") and following not in PRONOUNS
        return (frozenset(), roles[0], False) if roles and placed else None
    if word == "level" and words[max(0, place - 1)] == "same":
        return frozenset(), None, True
    if key in SIBLINGS:
        return frozenset(), None, True
    if key in schema.roles and not (key in LOOSE_ROLES and following != "of"):
        role = schema.roles[key][0]
        relation = schema.relations[role.relation]
        return (relation.sources if role.side == "source" else relation.targets), role, False
    if noun_key(word) in schema.nouns:
        return frozenset(schema.nouns[noun_key(word)]), None, False
    if key in GENERIC:
        return frozenset(), None, False
    if word in PRONOUNS and not (
        word in ("those", "these", "any", "former", "latter") and _opens_noun(text, place, schema)
    ):
        return frozenset(), None, False
    return None


def _is_stranger(words: list[str], place: int) -> bool:
    """Whether a noun that the schema does not know is introduced: "our patient has", "a case with"."""
    before, after = words[place - 1 : place], words[place + 1 : place + 2]
    known = words[place].isalpha() and words[place] not in STOP
    return known and before[:1] in ([w] for w in INTRODUCING) and after[:1] in (["has"], ["have"], ["with"], ["whose"])


def _opens_noun(text: Text, place: int, schema: Schema) -> bool:
    """Whether a noun follows within three words, so that "these" is no pronoun; nor is "one of"."""
    if text.words[place] == "one" and text.words[place + 1 : place + 2] == ["of"]:
        return True
    for word in text.words[place + 1 : place + 4]:
        if noun_key(word) in schema.nouns or stem(word) in schema.roles or stem(word) in GENERIC:
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
    typed = [noun for noun in nouns if text.words[noun.at] != "what"]
    whats = [noun for noun in nouns if text.words[noun.at] == "what"]
    asked = _interrogated(text, typed) or _ordered(text, typed) or _which(text, typed) or next(iter(whats), None)
    if asked is None:
        asked = next((noun for noun in nouns if noun.types & schema.candidates), None)
    marked = []
    for noun in nouns:
        manner = "asked" if noun is asked and noun.manner not in ("other", "pronoun") or noun in whats else noun.manner
        marked.append(
            Noun(noun.at, noun.types, manner, noun is asked, noun.plural, noun.owned, noun.role, noun.sibling)
        )
    return marked


def _interrogated(text: Text, nouns: list[Noun]) -> Noun | None:
    """The noun after a question word: "which of the diseases", but not "a disease which"; else the one it is about."""
    words = text.words
    topic: Noun | None = None
    for place, word in enumerate(words):
        if word not in ("which", "what", "who", "whose"):
            continue
        start = place - 1 if place and words[place - 1] in PREPOSITIONS else place
        if start and words[start - 1] not in (".", ",", ":", ";", "?", "!", "("):
            continue
        for noun in nouns:
            if noun.at > place and noun.at - place < 8:
                between = text.between(place, noun.at)
                opens = start == 0 or words[start - 1] in (".", ":", ";", "?", "!")
                chosen = between[:1] in (["of"], ["one"], ["ones"])
                stray = AUXILIARIES if chosen else AUXILIARIES | DEFINITE | INDEFINITE
                if not any(word in stray or not word.isalpha() for word in between) or (opens and between[:1] == ["are"]):
                    return noun
                break
        if topic is None and words[place + 1 : place + 2] and word == "which":
            topic = _topic(words, place, nouns)
    return topic


def _which(text: Text, nouns: list[Noun]) -> Noun | None:
    """The noun right after a question word anywhere: "... is frequent in which diseases?"."""
    return next((noun for noun in nouns if noun.at and text.words[noun.at - 1] in ("which", "what")), None)


def _topic(words: list[str], place: int, nouns: list[Noun]) -> Noun | None:
    """The noun of "among the diseases of ..." before a question word."""
    start = place
    while start and words[start - 1] not in (".", "?", "!", ";"):
        start -= 1
    opens = words[start] in PREPOSITIONS and words[start] != words[place]
    return next((noun for noun in nouns if start < noun.at < place), None) if opens else None


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
