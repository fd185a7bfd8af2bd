"""A part of a reading while it is being made, and its first steps: which nouns mean the same unknown node.

>>> [guess.cost for guess in fold([Guess()], [same_or_new(noun, False, text) for noun in nouns])]
[0.2, 0.9, ...]

A step takes a guess and gives the ways to go on from it, each at a cost: how far from plain English it is. What
articles and pronouns say is in _SAME and _NEW, set by hand on phrasings of questions about several graphs.
Not covered: what is linked to what (linking.py).
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from dkgi.models.heuristic.nouns import Noun
from dkgi.models.heuristic.reading import Constraint
from dkgi.models.heuristic.schema import Role
from dkgi.models.heuristic.text import Text

BEAM = 24
"""How many guesses are kept after each step."""

_SAME = {"definite": 0.0, "indefinite": 0.9, "bare": 0.2, "other": 2.4, "pronoun": 0.0}
_NEW = {"definite": 1.2, "indefinite": 0.3, "bare": 0.7, "other": 0.0, "pronoun": 1.0}
"""What it costs when a noun means an unknown that was mentioned before, or a new one although it could be that one."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A node that the question speaks of and does not name; no `types` for any type. `places` are its mentions."""

    types: frozenset[str]
    places: tuple[int, ...]
    roles: tuple[Role, ...] = ()
    other: bool = False
    sibling: bool = False
    plural: bool = False

    def plays(self, relation: int, side: str) -> bool:
        """Whether one of its nouns names this end of the relation."""
        return Role(relation, side) in self.roles


@dataclass(frozen=True, slots=True)
class Guess:
    """`answer` is the place of the asked unknown, -1 before it is met; `bound` are constraints that a word narrowed."""

    cost: float = 0.0
    unknowns: tuple[Unknown, ...] = ()
    answer: int = -1
    constraints: tuple[Constraint, ...] = ()
    bound: frozenset[int] = frozenset()

    def and_unknown(self, unknown: Unknown, cost: float) -> "Guess":
        return replace(self, cost=self.cost + cost, unknowns=(*self.unknowns, unknown))

    def and_constraints(self, cost: float, *constraints: Constraint) -> "Guess":
        return replace(self, cost=self.cost + cost, constraints=(*self.constraints, *constraints))

    def at_cost(self, cost: float) -> "Guess":
        return replace(self, cost=self.cost + cost)


Step = Callable[[Guess], Iterable[Guess]]


def fold(guesses: list[Guess], steps: Iterable[Step], width: int = BEAM) -> list[Guess]:
    """The cheapest guesses after all steps."""
    for step in steps:
        guesses = sorted((after for guess in guesses for after in step(guess)), key=lambda guess: guess.cost)[:width]
    return guesses


def same_or_new(noun: Noun, asked: bool, text: Text) -> Step:
    """The step that says which unknown a noun means."""

    def step(guess: Guess) -> Iterator[Guess]:
        alike = [index for index, unknown in enumerate(guess.unknowns) if _may_be(noun, unknown)]
        for index in alike:
            yield _same(guess, noun, index, asked, text)
        named = noun.role is not None or noun.sibling
        if noun.types or named or noun.manner not in ("other", "pronoun"):
            unknown = Unknown(noun.types, (noun.at,), _roles(noun), noun.manner == "other", noun.sibling, noun.plural)
            cost = 0.3 if asked or (noun.role and noun.manner != "pronoun") else _NEW[noun.manner]
            after = guess.and_unknown(unknown, cost if alike else 0.4 if noun.manner == "pronoun" else 0.0)
            yield replace(after, answer=len(guess.unknowns)) if asked else after
        if not noun.types and not named and (noun.manner == "other" or text.word(noun.at) in ("those", "ones", "one")):
            for model in guess.unknowns:
                unknown = Unknown(model.types, (noun.at,), (), noun.manner == "other", False, noun.plural)
                cost = 0.15 * text.gap(model.places[-1], noun.at)
                yield guess.and_unknown(unknown, cost if noun.manner == "other" else cost + 0.4)
        if not asked:
            yield guess.at_cost(1.6 if noun.types or noun.role else 0.2 if noun.manner == "pronoun" else 0.7)

    return step


def _roles(noun: Noun) -> tuple[Role, ...]:
    return (noun.role,) if noun.role else ()


def _may_be(noun: Noun, unknown: Unknown) -> bool:
    if noun.types and unknown.types and not noun.types & unknown.types:
        return False
    return not (noun.role and any(role.relation == noun.role.relation and role != noun.role for role in unknown.roles))


def _same(guess: Guess, noun: Noun, index: int, asked: bool, text: Text) -> Guess:
    """The guess in which the noun means the unknown at a place."""
    unknown = guess.unknowns[index]
    cost = 0.15 * text.gap(unknown.places[-1], noun.at)
    cost += 0.4 if asked and noun.manner not in ("other", "pronoun") else _SAME[noun.manner]
    if noun.manner == "other" and unknown.other:
        cost -= 2.0
    if noun.manner in ("bare", "indefinite") and not asked and noun.plural != unknown.plural:
        cost += 0.5
    if noun.role and noun.role not in unknown.roles and noun.manner != "pronoun":
        cost += 0.6 if noun.owned else 0.4
    merged = Unknown(
        types=unknown.types & noun.types if unknown.types and noun.types else unknown.types or noun.types,
        places=(*unknown.places, noun.at),
        roles=tuple(dict.fromkeys((*unknown.roles, *_roles(noun)))),
        other=unknown.other or noun.manner == "other",
        sibling=unknown.sibling or noun.sibling,
        plural=unknown.plural,
    )
    unknowns = (*guess.unknowns[:index], merged, *guess.unknowns[index + 1 :])
    return replace(guess, cost=guess.cost + cost, unknowns=unknowns, answer=index if asked else guess.answer)
