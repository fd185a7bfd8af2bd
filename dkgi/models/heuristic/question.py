"""What a question mentions, in the order in which it does.

>>> mentions(Text.of("Which films by Ada Moore are not silent?", links, schema), schema)
[Noun(at=1, types={'film'}, ...), Name(at=3, nodes={'person': (17,)}), Modifier(at=5, negative=True, ...)]

Four things are mentioned: nouns that stand for unknown nodes, names of nodes, quoted words, and modifiers, which deny a
link or say of which kind it is.
Not covered: how the mentions belong together (interpretation.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from dkgi.models.heuristic.nouns import Noun, find_nouns
from dkgi.models.heuristic.schema import Schema, terms_of
from dkgi.models.heuristic.text import NAME, QUOTE, Name, Quote, Text
from dkgi.models.heuristic.words import (
    ABSENCES,
    ANY,
    CONDITIONS,
    DEGREES,
    DENIALS,
    EXPLICIT,
    LINKING,
    NEGATIONS,
    NOT_NEGATIONS,
    REFUSALS,
    SHARING,
    STOP,
    starts_with,
)


@dataclass(frozen=True, slots=True)
class Modifier:
    """A denial, or relations that a word points to."""

    at: int
    negative: bool
    relations: frozenset[int] = frozenset()


Mention = Noun | Name | Quote | Modifier


def mentions(text: Text, schema: Schema) -> list[Mention]:
    """All mentions in order of place."""
    found: list[Mention] = [*find_nouns(text, schema), *text.names.values(), *text.quotes.values()]
    return sorted([*found, *_echoes(text), *_modifiers(text, schema)], key=lambda mention: mention.at)


def _echoes(text: Text) -> Iterator[Name]:
    """Names that "it" may stand for: the one before it."""
    for place, word in enumerate(text.words):
        before = [at for at in text.names if at < place]
        if word == "it" and before:
            yield Name(place, text.names[max(before)].nodes, echo=True)


def _modifiers(text: Text, schema: Schema) -> Iterator[Modifier]:
    negatives = frozenset(relation.id for relation in schema.relations.values() if relation.negative)
    refusals = dict(_refusals(text))
    place = 0
    while place < len(text.words):
        length = 1
        if place in refusals.values():
            length = len(starts_with(text.words, place, REFUSALS) or "")
        elif place in refusals:
            yield Modifier(place, True)
        elif phrase := starts_with(text.words, place, (*NOT_NEGATIONS, *SHARING)):
            length = len(phrase)
        elif phrase := starts_with(text.words, place, (*ABSENCES, *DENIALS)):
            length = len(phrase)
            yield Modifier(place + length - 1, not negatives, negatives)
        elif phrase := starts_with(text.words, place, NEGATIONS):
            length = len(phrase)
            recorded = _is_recorded(text, place) and bool(negatives)
            yield Modifier(place + length - 1, not recorded, negatives if recorded else frozenset())
        elif text.word(place) not in STOP:
            length = 2 if text.word(place) in DEGREES else 1
            terms = terms_of(text.words[place : place + length])
            anyhow = any(word in ANY for word in text.words[max(0, place - 2) : place])
            if terms and terms[0] in schema.cues and not anyhow:
                yield Modifier(place + length - 1, False, schema.cues[terms[0]])
        place += length


def _refusals(text: Text) -> Iterator[tuple[int, int]]:
    """Places of a condition that names something and of the refusal of it: "if X is on record, leave it out"."""
    for start, word in enumerate(text.words):
        if word in CONDITIONS:
            end = next((at for at in range(start, len(text.words)) if text.words[at] in (".", ";", "?")), start)
            for at in range(start, end):
                if text.words[start:at].count(",") and starts_with(text.words, at, REFUSALS):
                    if any(word in (NAME, QUOTE) for word in text.words[start:at]):
                        yield start, at
                    break


def _is_recorded(text: Text, place: int) -> bool:
    """Whether the negation at a place is said to be on record: "recorded as lacking", "explicitly excludes"."""
    before = place - 1
    while text.word(before) in LINKING:
        before -= 1
    return text.word(before) in EXPLICIT and text.word(place) not in ("without", "no", "other", "apart", "except")
