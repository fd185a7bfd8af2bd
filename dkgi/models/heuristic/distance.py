"""How far a name stands from a noun, the way English counts it.

>>> distance.of(films, at=12)     # "films of these directors have X": X belongs to the films
0.6

The words between count, and so does grammar: a verb belongs to the head of a noun phrase and agrees with it in number,
and a verb after a comma takes up the noun that was asked for.
Not covered: what a distance is worth against other costs (linking.py).
"""

import math
from dataclasses import dataclass
from itertools import pairwise

from dkgi.models.heuristic.guess import Unknown
from dkgi.models.heuristic.nouns import Noun
from dkgi.models.heuristic.text import Text
from dkgi.models.heuristic.words import CONJUNCTIONS, PLURAL_VERBS, RELATIVES, SINGULAR_VERBS


@dataclass(frozen=True)
class Distance:
    """`nouns` by place; `completed` as nouns.completed gives it."""

    text: Text
    nouns: dict[int, Noun]
    completed: dict[int, int]
    asked: Noun | None

    def of(self, unknown: Unknown, at: int) -> float:
        """From a name at a place to the nearest mention of an unknown."""
        return min(self._from(place, at) for place in unknown.places)

    def apart(self, one: Unknown, other: Unknown) -> tuple[float, int]:
        """Between the nearest mentions of two unknowns, and the place of the later one."""
        return min((self._between(one, a, other, b), max(a, b)) for a in one.places for b in other.places)

    def _between(self, one: Unknown, at: int, other: Unknown, place: int) -> float:
        """A possessive is a mention of whose it is: "their genes" is near to all things that are many."""
        owner, late = (one, place) if at < place else (other, at)
        words = self.text.words[max(0, late - 3) : late]
        owned = owner.plural if "their" in words else "its" in words and not owner.plural
        return min(self.text.gap(at, place), 0.5 if owned else math.inf)

    def shields(self, other: Unknown, unknown: Unknown, at: int) -> bool:
        """Whether another unknown is mentioned between the last mention of this one and the place."""
        last = max((place for place in unknown.places if place < at), default=at)
        return other is not unknown and any(last < place < at for place in other.places)

    def _from(self, place: int, at: int) -> float:
        far = min(self.text.gap(place, at), self._along(place, at))
        if place == at + 1:
            # "at least one Ada Lund film"
            return 0.1
        if place > at:
            # English puts the noun first.
            return far + 0.5
        noun = self.nouns.get(place)
        if noun is None:
            return far + 1.0
        between = self.text.between(place, at)
        verb = next((word for word in reversed(between) if word in SINGULAR_VERBS or word in PLURAL_VERBS), None)
        if verb is not None:
            if noun.manner != "pronoun" and (verb in PLURAL_VERBS) != noun.plural:
                far += 0.6
            if place in self.completed.values() and not any(word in RELATIVES for word in between):
                far += 0.6
            elif place in self.completed:
                far = min(far, self.text.gap(self.completed[place], at) + 0.1)
        if noun is self.asked and self._is_main_verb(at - 1, noun.plural) and "." not in between:
            far = min(far, 0.5)
        return far

    def _along(self, place: int, at: int) -> float:
        """By way of clauses that go on about the same noun: "films that ..., and which X", "have ... but do not have X"."""
        words = self.text.words
        relatives = [mark for mark in range(place + 1, at) if words[mark] in RELATIVES]
        if len(relatives) > 1 and relatives[0] <= place + 3 and self._opens_clause(relatives[-1]):
            return self.text.gap(place, relatives[0]) + self.text.gap(relatives[-1], at) + 0.1
        verbs = [mark for mark in range(place + 1, at) if words[mark] in SINGULAR_VERBS or words[mark] in PLURAL_VERBS]
        for first, last in pairwise(verbs):
            alike = (words[first] in PLURAL_VERBS) == (words[last] in PLURAL_VERBS)
            if last == verbs[-1] and alike and self._opens_clause(last) and not set(words[last:at]) & RELATIVES:
                return self.text.gap(place, first) + self.text.gap(last, at) + 0.1
        return math.inf

    def _opens_clause(self, at: int) -> bool:
        """Whether a word stands right after a comma or a conjunction."""
        return self.text.word(at - 1) in CONJUNCTIONS or self.text.word(at - 1) == ","

    def _is_main_verb(self, at: int, plural: bool) -> bool:
        """Whether a verb stands at a place after a comma: "which of them, if any, have X"."""
        comma = at - 2 if self.text.word(at - 1) in CONJUNCTIONS else at - 1
        return self.text.word(at) in (PLURAL_VERBS if plural else SINGULAR_VERBS) and self.text.word(comma) == ","
