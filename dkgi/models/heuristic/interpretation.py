"""How the mentions of a question belong together: a beam search for its cheapest readings.

>>> [reading.cost for reading in readings(text, schema, text_types)]
[0.7, 1.4, ...]

Step by step a guess is made complete: which nouns mean the same unknown (guess.py), how unknowns, names and quoted
words are linked (linking.py), what each modifier denies or narrows, and whether the whole makes sense (here).
Not covered: whether a reading has answers; agent.py finds out and chooses.
"""

from collections.abc import Iterator
from dataclasses import replace

from dkgi.models.heuristic.asked import asked_noun
from dkgi.models.heuristic.distance import Distance
from dkgi.models.heuristic.guess import BEAM, Guess, Step, fold, same_or_new
from dkgi.models.heuristic.linking import Linker
from dkgi.models.heuristic.nouns import Noun, completed
from dkgi.models.heuristic.question import Modifier, mentions
from dkgi.models.heuristic.reading import Apart, Constraint, Edge, Reading, Says, plays
from dkgi.models.heuristic.schema import Schema
from dkgi.models.heuristic.text import Name, Text
from dkgi.models.heuristic.words import AUXILIARIES, CONJUNCTIONS

KEPT = 10
"""How many readings are given."""


def readings(text: Text, schema: Schema, text_types: frozenset[str]) -> list[Reading]:
    """The cheapest readings, best first; none where the question asks for nothing that the schema knows."""
    found = mentions(text, schema)
    nouns = [mention for mention in found if isinstance(mention, Noun)]
    names = [mention for mention in found if isinstance(mention, Name)]
    asked = asked_noun(text, nouns, schema)
    distance = Distance(text, {noun.at: noun for noun in nouns}, completed(text, nouns), asked)
    linker = Linker(schema, text_types, found, distance)
    guesses = fold([Guess()], [same_or_new(noun, noun is asked, text) for noun in nouns])
    linked = [after for guess in guesses if guess.answer >= 0 for after in fold([guess], linker.steps(guess))]
    linked = sorted(linked, key=lambda guess: guess.cost)[: 2 * BEAM]
    modifiers = [_bind(mention, text) for mention in found if isinstance(mention, Modifier)]
    done: dict[object, Reading] = {}
    for guess in fold(linked, modifiers, 2 * BEAM):
        reading = _finish(guess, names, schema)
        if reading is not None:
            key = (reading.answer, reading.types, frozenset(map(_meaning, reading.constraints)))
            done[key] = min(reading, done.get(key, reading), key=lambda other: other.cost)
    return sorted(done.values(), key=lambda reading: reading.cost)[:KEPT]


def _meaning(constraint: Constraint) -> Constraint:
    return replace(constraint, anchors=())


# ------------------------------------------------------------------- what modifiers say


def _bind(modifier: Modifier, text: Text) -> Step:
    """The step that says what a modifier is about, if anything."""

    def step(guess: Guess) -> Iterator[Guess]:
        for place, constraint in enumerate(guess.constraints):
            changed = _narrowed(constraint, modifier, bound=place in guess.bound)
            if changed is not None:
                cost = min(_reach(modifier, anchor, text) for anchor in constraint.anchors)
                cost += 1.0 if modifier.negative and _joins(constraint) else 0.0
                constraints = (*guess.constraints[:place], changed, *guess.constraints[place + 1 :])
                bound = guess.bound if modifier.negative else guess.bound | {place}
                yield replace(guess, cost=guess.cost + cost, constraints=constraints, bound=bound)
        yield guess.at_cost(1.4)

    return step


def _joins(constraint: Constraint) -> bool:
    """Whether a constraint links two unknowns."""
    return isinstance(constraint, Edge) and isinstance(constraint.other, int)


def _narrowed(constraint: Constraint, modifier: Modifier, *, bound: bool) -> Constraint | None:
    """The constraint under the modifier, or None where the two do not fit."""
    if modifier.negative:
        return None if constraint.negative else replace(constraint, negative=True)
    if bound or not isinstance(constraint, Edge) or not constraint.relations & modifier.relations:
        return None
    return replace(constraint, relations=constraint.relations & modifier.relations)


def _reach(modifier: Modifier, anchor: int, text: Text) -> float:
    """From a modifier to what it may be about. After its object a denial has only auxiliaries before it: "X is not"."""
    between = text.between(modifier.at, anchor)
    far = text.gap(modifier.at, anchor)
    far += 0.3 if any(word in CONJUNCTIONS or word == "," for word in between) else 0.0
    if modifier.negative and anchor < modifier.at:
        far += 0.2 if all(word in AUXILIARIES or word in ("itself", "too") for word in between) else 0.9
    return far


# ------------------------------------------------------------------- whole readings


def _finish(guess: Guess, names: list[Name], schema: Schema) -> Reading | None:
    """The guess as a reading; None where it contradicts itself or leaves a part unconnected."""
    constraints = _settled(guess, schema)
    cost = guess.cost
    for constraint in guess.constraints:
        if isinstance(constraint, Apart):
            idle = any(_excludes(other, constraint) for other in guess.constraints)
            cost += (1.0 if idle else 0.0) + (
                0.0 if constraint.negative or guess.unknowns[constraint.unknown].other else 1.5
            )
    reached = _reached(guess.answer, constraints)
    if not constraints or _contradicts(constraints) or any(c.unknown not in reached for c in constraints):
        return None
    if any(isinstance(constraint, Edge) and not constraint.relations for constraint in constraints):
        return None
    constraints += _not_itself(guess, constraints, names)
    edges = [constraint for constraint in constraints if isinstance(constraint, Edge)]
    for index in reached:
        cost += 0.8 if index != guess.answer and _is_idle(index, constraints) else 0.0
        cost += sum(1.5 for role in guess.unknowns[index].roles if not plays(index, role, edges))
    types = tuple(unknown.types or schema.types for unknown in guess.unknowns)
    return Reading(guess.answer, types, tuple(constraints), cost) if types[guess.answer] & schema.candidates else None


def _settled(guess: Guess, schema: Schema) -> list[Constraint]:
    """The constraints without repetitions. A link that no word narrowed is by any relation that says something is so."""
    settled: dict[Constraint, Constraint] = {}
    for place, constraint in enumerate(guess.constraints):
        if isinstance(constraint, Apart):
            constraint = replace(constraint, negative=True)
        elif isinstance(constraint, Edge) and len(constraint.relations) > 1 and place not in guess.bound:
            plain = frozenset(r for r in constraint.relations if not schema.relations[r].negative)
            constraint = replace(constraint, relations=plain)
        settled.setdefault(_meaning(constraint), constraint)
    return list(settled.values())


def _contradicts(constraints: list[Constraint]) -> bool:
    """Whether the same thing is asked for and denied of one unknown."""
    for constraint in constraints:
        for other in constraints:
            if constraint.unknown != other.unknown or constraint.negative == other.negative:
                continue
            if isinstance(constraint, Edge) and isinstance(other, Edge):
                if constraint.other == other.other and constraint.relations & other.relations:
                    return True
            elif isinstance(constraint, Says) and isinstance(other, Says) and constraint.words == other.words:
                return True
    return False


def _reached(answer: int, constraints: list[Constraint]) -> set[int]:
    """Unknowns that links connect with the answer."""
    reached = {answer}
    links = [{c.unknown, c.other} for c in constraints if isinstance(c, Edge) and isinstance(c.other, int)]
    for _ in links:
        reached.update(*(link for link in links if link & reached))
    return reached


def _excludes(constraint: Constraint, apart: Apart) -> bool:
    """Whether a link to the same nodes makes setting them apart pointless."""
    if not isinstance(constraint, Edge) or constraint.negative:
        return False
    return (constraint.unknown, constraint.other) == (apart.unknown, apart.nodes)


def _is_idle(index: int, constraints: list[Constraint]) -> bool:
    """Whether an unknown hangs at the end of a link and nothing else is said of it."""
    return sum(index in (c.unknown, c.other if isinstance(c, Edge) else -1) for c in constraints) < 2


def _not_itself(guess: Guess, constraints: list[Constraint], names: list[Name]) -> list[Constraint]:
    """What shares something with a named node is not that node; "another" is none of those that are named."""
    edges = [constraint for constraint in constraints if isinstance(constraint, Edge)]
    added: list[Constraint] = []
    for index, unknown in enumerate(guess.unknowns):
        nodes: set[int] = set()
        if unknown.other:
            nodes.update(*(group for name in names for type_, group in name.nodes.items() if type_ in unknown.types))
        for edge in edges:
            if index in (edge.unknown, edge.other):
                nodes.update(*(_others_of(edge, index, end) for end in edges if end.unknown != guess.answer))
        if nodes and not any(isinstance(c, Apart) and c.unknown == index for c in constraints):
            added.append(Apart(index, tuple(sorted(nodes)), (), True))
    return added


def _others_of(edge: Edge, index: int, end: Edge) -> tuple[int, ...]:
    """Named nodes that are linked in the same way to what the unknown is linked to."""
    shared = edge.other if edge.unknown == index else edge.unknown
    forward = edge.forward == (edge.unknown == index)
    alike = end.unknown == shared and end.forward != forward and end.relations & edge.relations
    return end.other if alike and not isinstance(end.other, int) else ()
