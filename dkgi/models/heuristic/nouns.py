"""The nouns of a question that stand for unknown nodes.

>>> [(noun.at, noun.types, noun.manner) for noun in find_nouns(text, schema)]
[(1, {'film'}, 'bare'), (5, {'person'}, 'indefinite')]

Not every noun does: "the film The Long Boat" is a name, "that features" is a verb, "as a frequent feature" says how.
Not covered: which nouns mean the same node (guess.py), which one the question is after (asked.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dkgi.models.heuristic.schema import Role, Schema
from dkgi.models.heuristic.text import NAME, QUOTE, Text
from dkgi.models.heuristic.words import (
    ABOUT_RECORDS,
    ANYTHING,
    ASKING,
    AUXILIARIES,
    CONJUNCTIONS,
    COPULAS,
    DEFINITE,
    EXCEPTING,
    GENERIC,
    INDEFINITE,
    INTRODUCING,
    LOOSE_ROLES,
    OTHER,
    PLACES,
    PLURAL_PRONOUNS,
    POSSESSIVE,
    PREDICATING,
    PREPOSITIONS,
    PRONOUNS,
    RECORDS,
    RELATIVES,
    SIBLINGS,
    STOP,
    is_plural,
    noun_key,
    stem,
)

_RECORD_KEYS = frozenset(map(noun_key, RECORDS))


@dataclass(frozen=True, slots=True)
class Noun:
    """An unknown node; no `types` for one of any type.

    manner   other, definite, indefinite, bare or pronoun
    owned    "its genes", "the same gene": it is tied to something named before
    role     the end of a relation that it names ("parent")
    sibling  it shares a parent with something
    """

    at: int
    types: frozenset[str]
    manner: str
    plural: bool
    owned: bool
    role: Role | None = None
    sibling: bool = False


@dataclass(frozen=True, slots=True)
class _Part:
    """What one word gives to a noun."""

    types: frozenset[str] = frozenset()
    role: Role | None = None
    sibling: bool = False


def find_nouns(text: Text, schema: Schema) -> Iterator[Noun]:
    """Nouns in order of place; a noun phrase counts once, at its last word."""
    place = 0
    while place < len(text.words):
        parts = _parts(text, place, schema)
        start, place = place, place + max(1, len(parts))
        if parts:
            noun = _noun(text, start, parts)
            if not _is_no_unknown(text, start, noun, schema) and not _is_aside(text, start):
                yield noun


def _parts(text: Text, start: int, schema: Schema) -> list[_Part]:
    """The parts of the noun phrase that starts at a place; none where none does."""
    parts: list[_Part] = []
    while (part := _part(text, start + len(parts), schema)) is not None:
        word = text.word(start + len(parts))
        if parts and (
            word in PRONOUNS or _is_verb_after(text.word(start + len(parts) - 1), parts[-1].types, part.types)
        ):
            break
        parts.append(part)
    return parts


def _part(text: Text, place: int, schema: Schema) -> _Part | None:
    """What the word at a place gives to a noun; None where it is no part of one."""
    word, before, after = text.word(place), text.word(place - 1), text.word(place + 1)
    roles = schema.roles.get(stem(word))
    if word in PLACES:
        placed = (before.isalpha() or before == NAME) and not before.endswith("ed")
        return _Part(role=roles[0]) if roles and placed else None
    if stem(word) in SIBLINGS or (word == "level" and before == "same"):
        return _Part(sibling=True)
    if roles and not (stem(word) in LOOSE_ROLES and after != "of"):
        relation = schema.relations[roles[0].relation]
        return _Part(relation.sources if roles[0].side == "source" else relation.targets, roles[0])
    if noun_key(word) in schema.nouns:
        return _Part(schema.nouns[noun_key(word)])
    if stem(word) in GENERIC or word in ANYTHING or _is_stranger(text, place):
        return _Part()
    if word in PRONOUNS or word in ("another", "others"):
        return None if _opens_noun(text, place, schema) else _Part()
    if schema.unnamed and _is_new(text, place) and not schema.knows(word):
        return _Part(schema.unnamed)
    return _Part() if word == "what" and (after in AUXILIARIES or after == "else") else None


def _is_stranger(text: Text, place: int) -> bool:
    """Whether a noun that the schema does not know is introduced: "our patient has", "a case with"."""
    word = text.word(place)
    introduced = text.word(place - 1) in INTRODUCING and text.word(place + 1) in ("has", "have", "with", "whose")
    return introduced and word.isalpha() and word not in STOP


def _is_new(text: Text, place: int) -> bool:
    """Whether a word stands where a noun does: "which genes", "a gene"."""
    word, before = text.word(place), text.word(place - 1)
    opened = before in INDEFINITE | DEFINITE | OTHER | ASKING or before in ("which", "what", "all", "of")
    return opened and word.isalpha() and not word.endswith(("ed", "ing")) and stem(word) not in ABOUT_RECORDS


def _opens_noun(text: Text, place: int, schema: Schema) -> bool:
    """Whether a noun follows within three words, so that "these" is no pronoun; nor is the "one" of "one of"."""
    if text.word(place) == "one" and text.word(place + 1) == "of":
        return True
    for word in text.words[place + 1 : place + 4]:
        if noun_key(word) in schema.nouns or stem(word) in schema.roles or stem(word) in GENERIC:
            return True
        if word in STOP and word not in INDEFINITE | OTHER | {"more"}:
            return False
    return False


def _is_verb_after(word: str, types: frozenset[str], others: frozenset[str]) -> bool:
    """Whether a word after a noun is its verb: "diseases feature"."""
    return is_plural(word) and bool(types) and bool(others) and not types & others


def _noun(text: Text, start: int, parts: list[_Part]) -> Noun:
    last = start + len(parts) - 1
    word = text.word(last)
    before = _before(text, start)
    role = next((part.role for part in parts if part.role), None)
    inverse = role is not None and _is_of_other_end(text, start, last)
    if role is not None and inverse:
        role = Role(role.relation, "source" if role.side == "target" else "target")
    predicate = inverse or ((role or any(part.sibling for part in parts)) and _is_predicate(text, start))
    lead = [word for word in text.words[max(0, start - len(before) - 2) : start] if word != "all"]
    excepted = any(word in EXCEPTING for word in lead) or lead[:2] in (["apart", "from"], ["aside", "from"])
    return Noun(
        at=last,
        types=next((part.types for part in reversed(parts) if part.types), frozenset()),
        manner="pronoun"
        if word in PRONOUNS or word in PLACES or predicate or excepted
        else _manner([*_one_of(text, start - len(before)), *before, word]),
        plural=is_plural(word) or word in PLURAL_PRONOUNS,
        owned=any(other in POSSESSIVE or (other == "same" and text.word(last + 1) != "as") for other in before),
        role=role,
        sibling=any(part.sibling for part in parts),
    )


def _is_of_other_end(text: Text, start: int, last: int) -> bool:
    """Whether a name plays the role of the noun: "whose parent is X", "have X as a parent", "X is the parent of"."""
    marks = [at for at in range(max(0, start - 3), start) if text.word(at) in ("whose", "is", "as")]
    if not marks:
        return False
    first = marks[-1] + 1
    lead, after = text.word(first - 1), text.words[last + 1 : last + 3]
    opened = text.words[max(0, first - 8) : first]
    if lead == "whose" and after[:1] and after[0] in AUXILIARIES | {NAME}:
        return NAME in after
    if lead == "as" and text.word(first - 2) == NAME:
        return any(word in ("have", "has", "having", "with") for word in opened) and after[:1] != ["of"]
    return lead in ("is", "as") and text.word(first - 2) == NAME and after[:1] == ["of"] and NAME not in after


def _before(text: Text, at: int) -> list[str]:
    """The words of a noun phrase before the noun that starts at a place."""
    start = at
    while start > 0 and at - start < 5:
        word = text.word(start - 1)
        if (
            not (word.isalpha() or (word == NAME and start == at))
            or word in PREPOSITIONS
            or word in AUXILIARIES
            or word in ("and", "but")
            or (word == "or" and text.word(start) != "more")
        ):
            break
        start -= 1
    return text.words[start:at]


def _one_of(text: Text, at: int) -> list[str]:
    """The "any" of "any of the", which makes an indefinite noun of a definite one, at the place of "the"."""
    marks = text.words[max(0, at - 2) : at]
    return marks[:1] if marks[1:] == ["of"] and marks[0] in INDEFINITE and text.word(at) == "the" else []


def _manner(phrase: list[str]) -> str:
    if phrase[-1] in ANYTHING:
        return "indefinite"
    for manner, marks in (("other", OTHER), ("definite", DEFINITE), ("indefinite", INDEFINITE)):
        if any(word in marks for word in phrase):
            return "indefinite" if manner == "definite" and phrase[0] in INDEFINITE else manner
    return "bare"


def _is_no_unknown(text: Text, start: int, noun: Noun, schema: Schema) -> bool:
    """Whether what looks like a noun is a verb, says how something is, or introduces a name."""
    before = _before(text, start)
    if noun.types and not noun.role and not noun.sibling and start == noun.at and not before:
        named = text.word(noun.at + 1) in (NAME, QUOTE)
        if not noun.plural or (named and text.word(start - 1) in RELATIVES):
            return True
    if _is_predicate(text, start) and not noun.role and not noun.sibling:
        return True
    if _is_of_record(text, start, noun, schema):
        return True
    return _introduces(text, noun, schema)


def _is_aside(text: Text, at: int) -> bool:
    """Whether a place is in brackets, or in a clause after "i.e.", that explains without a name."""
    opened = max((place for place in range(at) if text.word(place) == "("), default=-1)
    closing = {")"}
    for place in range(max(0, at - 20), at):
        if text.words[place] == "i.e.":
            opened, closing = place, {",", ".", "?"}
    inside = text.words[opened + 1 : at]
    if opened < 0 or (closing & set(inside[1:])):
        return False
    end = next((place for place in range(at, len(text.words)) if text.words[place] in closing), at)
    return not {NAME, QUOTE} & set(text.words[opened:end])


def _is_predicate(text: Text, start: int) -> bool:
    """Whether the noun that starts at a place says what something is: "as a frequent feature", "is a subtype"."""
    first = max(0, start - len(_before(text, start)) - 1)
    phrase = text.words[first:start]
    if any(one in PREDICATING and other in ("a", "an") for one, other in pairwise(phrase)):
        return True
    if phrase[:1] == ["as"] and phrase[1:2] and phrase[1] in DEFINITE:
        return True
    if phrase[:1] == ["is"] and phrase[1:2] == ["the"] and text.word(first - 1) == NAME:
        return True
    return phrase[:1] == ["of"] and text.word(first - 1) == "one" and text.word(first - 2) in (*PREDICATING, "not")


def _is_of_record(text: Text, start: int, noun: Noun, schema: Schema) -> bool:
    """Whether a noun only says whose record something is ("its feature list"), or is such a record ("an entry for")."""
    word, after = text.word(noun.at), text.word(noun.at + 1)
    if noun_key(after) in schema.nouns:
        return False
    if noun_key(word) in _RECORD_KEYS and noun_key(word) not in schema.nouns:
        return after in ("for", "of", "to") or text.word(start - 1) == NAME
    return not noun.plural and not noun.role and noun_key(after) in _RECORD_KEYS


def _introduces(text: Text, noun: Noun, schema: Schema) -> bool:
    """Whether the name of what the noun means follows: "the gene X", "the mode of inheritance is X"."""
    end = noun.at + 1
    while end < noun.at + 5:
        key = noun_key(text.word(end))
        if text.word(end) not in COPULAS and not (noun.types & schema.nouns.get(key, frozenset())):
            break
        end += 1
    name = text.names.get(end)
    if name is not None and not noun.types and not noun.plural and stem(text.word(noun.at)) in GENERIC:
        return end == noun.at + 1
    if name is None or text.word(noun.at) in PLACES or (noun.role and end > noun.at + 1):
        return False
    return bool(noun.types & name.nodes.keys())


def completed(text: Text, nouns: list[Noun]) -> dict[int, int]:
    """Nouns by place, each with the place of the next one where that only completes it: "diseases of these genes"."""
    breaks = AUXILIARIES | RELATIVES | CONJUNCTIONS
    found = {}
    for one, other in pairwise(nouns):
        between = text.between(one.at, other.at)
        if 0 < len(between) <= 4 and all(word.isalpha() and word not in breaks for word in between):
            found[one.at] = other.at
    return found
