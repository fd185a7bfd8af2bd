"""How the mentions of a question belong together: a beam search for its cheapest readings.

>>> [reading.cost for reading in readings(text, schema, text_types)]
[0.7, 1.4, ...]

Step by step a guess is made complete: which nouns mean the same unknown, how unknowns, names and quoted words are
linked, what each modifier denies or narrows. Costs say how far from plain English a step is: mostly the distance in
the text, and what articles and pronouns say. The costs were set by hand on phrasings of several graphs.
Not covered: whether a reading has answers; agent.py finds out and chooses.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from dkgi.models.heuristic.question import Mention, Modifier, Name, Noun, Quote, Text, mentions
from dkgi.models.heuristic.reading import Apart, Constraint, Edge, Reading, Says
from dkgi.models.heuristic.schema import Role, Schema
from dkgi.models.heuristic.words import AUXILIARIES, CONJUNCTIONS, DEFINITE, GENERIC, RELATIVES, SEPARATING, stem

BEAM = 24
KEPT = 10


@dataclass(frozen=True, slots=True)
class Unknown:
    """What is known of an unknown node while reading; no `types` for any type."""

    types: frozenset[str]
    places: tuple[int, ...]
    roles: tuple[Role, ...]
    other: bool = False
    sibling: bool = False
    plural: bool = False


@dataclass(frozen=True, slots=True)
class Guess:
    """A part of a reading."""

    cost: float = 0.0
    unknowns: tuple[Unknown, ...] = ()
    answer: int = -1
    constraints: tuple[Constraint, ...] = ()
    bound: frozenset[int] = frozenset()
    """Constraints, by place, that a modifier has narrowed already."""


Step = Callable[[Guess], Iterable[Guess]]


def readings(text: Text, schema: Schema, text_types: frozenset[str]) -> list[Reading]:
    """The cheapest readings, best first; none where the question asks for nothing that the schema knows."""
    found = mentions(text, schema)
    nouns = {noun.at: noun for noun in found if isinstance(noun, Noun)}
    search = _Search(text, schema, text_types, found, nouns, _complements(text, nouns))
    guesses = _fold([Guess()], [search.resolve(noun) for noun in found if isinstance(noun, Noun)])
    links: list[Guess] = []
    for guess in guesses:
        if guess.answer >= 0:
            links += _fold([guess], search.link_steps(guess))
    links = sorted(links, key=lambda guess: guess.cost)[: 2 * BEAM]
    bound = _fold(links, [search.bind(modifier) for modifier in found if isinstance(modifier, Modifier)], 2 * BEAM)
    done: dict[tuple[object, ...], Reading] = {}
    for reading in filter(None, map(search.finish, bound)):
        key = (reading.answer, reading.types, frozenset(map(_meaning, reading.constraints)))
        if key not in done or done[key].cost > reading.cost:
            done[key] = reading
    return sorted(done.values(), key=lambda reading: reading.cost)[:KEPT]


def _complements(text: Text, nouns: dict[int, Noun]) -> dict[int, int]:
    found = {}
    places = sorted(nouns)
    for one, other in zip(places, places[1:], strict=False):
        between = text.between(one, other)
        if 0 < len(between) <= 4 and all(word.isalpha() and word not in AUXILIARIES | RELATIVES | CONJUNCTIONS for word in between):
            found[one] = other
    return found


def _fold(guesses: list[Guess], steps: Iterable[Step], width: int = BEAM) -> list[Guess]:
    for step in steps:
        guesses = sorted((after for guess in guesses for after in step(guess)), key=lambda guess: guess.cost)[:width]
    return guesses


def _meaning(constraint: Constraint) -> tuple[object, ...]:
    if isinstance(constraint, Edge):
        return (constraint.unknown, constraint.other, constraint.relations, constraint.forward, constraint.negative)
    what = constraint.words if isinstance(constraint, Says) else constraint.nodes
    return (constraint.unknown, what, constraint.negative)


@dataclass(frozen=True)
class _Search:
    text: Text
    schema: Schema
    text_types: frozenset[str]
    mentions: list[Mention]
    nouns: dict[int, Noun]
    complements: dict[int, int]
    """Nouns by place, each with the place of a noun that only completes it: "diseases of these genes"."""

    @property
    def heads(self) -> frozenset[int]:
        return frozenset(self.complements.values())

    # ------------------------------------------------------------------- which nouns mean the same

    def resolve(self, noun: Noun) -> Step:
        def step(guess: Guess) -> Iterator[Guess]:
            alike = [index for index, unknown in enumerate(guess.unknowns) if _may_be(noun, unknown)]
            for index in alike:
                yield self._same(guess, noun, index)
            if (noun.types or noun.manner != "other") and (noun.manner != "pronoun" or noun.role or noun.sibling):
                roles = (noun.role,) if noun.role else ()
                other = noun.manner == "other"
                unknown = Unknown(noun.types, (noun.at,), roles, other, noun.sibling, noun.plural)
                cost = _NEW[noun.manner] if alike else (0.4 if noun.manner == "pronoun" else 0.0)
                answer = len(guess.unknowns) if noun.asked else guess.answer
                yield replace(guess, cost=guess.cost + cost, unknowns=(*guess.unknowns, unknown), answer=answer)
            if noun.manner == "other" and not noun.types:
                for model in guess.unknowns:
                    cost = guess.cost + 0.15 * self.text.gap(model.places[-1], noun.at)
                    alike_one = Unknown(model.types, (noun.at,), (), True, False, noun.plural)
                    yield replace(guess, cost=cost, unknowns=(*guess.unknowns, alike_one))
            if not noun.asked:
                drop = 1.6 if noun.types or noun.role else 0.2 if noun.manner == "pronoun" else 0.7
                yield replace(guess, cost=guess.cost + drop)

        return step

    def _same(self, guess: Guess, noun: Noun, index: int) -> Guess:
        unknown = guess.unknowns[index]
        cost = 0.15 * self.text.gap(unknown.places[-1], noun.at) + _SAME[noun.manner]
        if noun.manner == "other" and unknown.other:
            cost -= 2.0
        if noun.manner in ("bare", "indefinite") and noun.plural != unknown.plural:
            cost += 0.5
        merged = Unknown(
            types=unknown.types & noun.types if unknown.types and noun.types else unknown.types or noun.types,
            places=(*unknown.places, noun.at),
            roles=unknown.roles if noun.role in unknown.roles or not noun.role else (*unknown.roles, noun.role),
            other=unknown.other or noun.manner == "other",
            sibling=unknown.sibling or noun.sibling,
            plural=unknown.plural,
        )
        unknowns = (*guess.unknowns[:index], merged, *guess.unknowns[index + 1 :])
        return replace(guess, cost=guess.cost + cost, unknowns=unknowns, answer=index if noun.asked else guess.answer)

    # ------------------------------------------------------------------- what is linked to what

    def link_steps(self, guess: Guess) -> list[Step]:
        steps: list[Step] = []
        seen: set[tuple[int, ...]] = set()
        for mention in self.mentions:
            if isinstance(mention, Name):
                nodes = tuple(sorted(node for group in mention.nodes.values() for node in group))
                steps.append(self._attach(mention, nodes in seen))
                seen.add(nodes)
            elif isinstance(mention, Quote):
                steps.append(self._say(mention))
            elif isinstance(mention, Noun) and mention.owned:
                steps.append(self._own(mention))
        return [*steps, *(self._join(index) for index in range(len(guess.unknowns)) if index != guess.answer)]

    def _join(self, index: int) -> Step:
        """Links an unknown to another one."""

        def step(guess: Guess) -> Iterator[Guess]:
            one = guess.unknowns[index]
            for place, other in enumerate(guess.unknowns):
                if place == index:
                    continue
                near = min(((self.text.gap(a, b), max(a, b)) for a in one.places for b in other.places))
                for forward, relations in self._relations(one, other):
                    edge = Edge(index, place, relations, forward, (near[1],))
                    yield self._with_edge(guess, edge, near[0], other.types)
            yield replace(guess, cost=guess.cost + 2.0)

        return step

    def _relations(self, one: Unknown, other: Unknown) -> list[tuple[bool, frozenset[int]]]:
        """Relations that can link two unknowns, by whether the first is the source; within a type only by a role."""
        every = self.schema.types
        found = []
        for forward, relations in self.schema.between(one.types or every, other.types or every):
            fit = frozenset(
                relation
                for relation in relations
                if not self.schema.relations[relation].within
                or _plays(one, relation, "source" if forward else "target")
                or _plays(other, relation, "target" if forward else "source")
            )
            if fit:
                found.append((forward, fit))
        return found

    def _attach(self, name: Name, repeated: bool) -> Step:
        """Links a name to an unknown, sets it apart from one, or passes over it."""

        def step(guess: Guess) -> Iterator[Guess]:
            fits = False
            types = frozenset(name.nodes)
            for index, unknown in enumerate(guess.unknowns):
                far = self._distance(unknown, name.at)
                for forward, relations in self._to_name(unknown, types):
                    fits = True
                    edge = Edge(index, self._nodes(name, relations, forward), relations, forward, (name.at,))
                    yield self._with_edge(guess, edge, far, types)
                if unknown.sibling:
                    yield from self._as_sibling(guess, index, name, far)
                if not unknown.types or unknown.types & types:
                    nodes = tuple(
                        node
                        for type_, group in name.nodes.items()
                        if not unknown.types or type_ in unknown.types
                        for node in group
                    )
                    constraints = (*guess.constraints, Apart(index, nodes, (name.at,)))
                    cost = guess.cost + far + (0.3 if self._is_set_apart(name.at) or unknown.other else 1.3)
                    yield replace(guess, cost=cost, constraints=constraints)
            if not fits:
                yield from self._through_unsaid(guess, name)
            passed = 0.1 if name.echo else 0.8 if repeated else 3.0 if name.exact else 1.0
            yield replace(guess, cost=guess.cost + passed)

        return step

    def _is_set_apart(self, at: int) -> bool:
        before = [word for word in self.text.words[max(0, at - 4) : at] if word not in DEFINITE and stem(word) not in GENERIC]
        return before[-1:] != [] and before[-1] in SEPARATING

    def _to_name(self, unknown: Unknown, types: frozenset[str]) -> list[tuple[bool, frozenset[int]]]:
        named = Unknown(types, (), ())
        return self._relations(unknown, named)

    def _nodes(self, name: Name, relations: frozenset[int], forward: bool) -> tuple[int, ...]:
        ends = [self.schema.relations[r].targets if forward else self.schema.relations[r].sources for r in relations]
        fit = frozenset[str]().union(*ends)
        return tuple(sorted(node for type_, group in name.nodes.items() if type_ in fit for node in group))

    def _distance(self, unknown: Unknown, at: int) -> float:
        """From a name back to its unknown; forward costs more, since English puts the noun first."""
        return min(self._from_place(place, at) for place in unknown.places)

    def _from_place(self, place: int, at: int) -> float:
        if place > at:
            return self.text.gap(at, place) + 0.5
        between = self.text.between(place, at)
        cost = self.text.gap(place, at)
        noun = self.nouns.get(place)
        if noun is None:
            return cost + 1.0
        said = next((word for word in reversed(between) if word in _SINGULAR or word in _PLURAL), None)
        if said is not None and noun.manner != "pronoun" and (said in _PLURAL) != noun.plural:
            cost += 0.6
        if place in self.heads and said is not None and not any(word in RELATIVES for word in between):
            cost += 0.6
        elif place in self.complements and said is not None:
            cost = min(cost, self.text.gap(self.complements[place], at) + 0.1)
        if noun.asked and self._is_main_verb(at - 1, noun.plural) and "." not in between:
            cost = min(cost, 0.5)
        return cost

    def _is_main_verb(self, at: int, plural: bool) -> bool:
        """Whether a place holds the verb of the asked noun after a comma: "which of them, if any, have X"."""
        words = self.text.words
        before = words[at - 2 : at] if words[at - 1] in CONJUNCTIONS else words[at - 1 : at]
        return words[at] in (_PLURAL if plural else _SINGULAR) and before[:1] == [","]

    def _with_edge(self, guess: Guess, edge: Edge, cost: float, far_types: frozenset[str]) -> Guess:
        """The guess with one more link, whose ends must then be of the types that the relations have."""
        some = self.schema.relations[min(edge.relations)]
        near, far = (some.sources, some.targets) if edge.forward else (some.targets, some.sources)
        if some.within:
            near = near & (far_types or near)
            far = far & (guess.unknowns[edge.unknown].types or far)
            side = "source" if edge.forward else "target"
            named = [c for c in guess.constraints if isinstance(c, Edge) and not isinstance(c.other, int)]
            if not isinstance(edge.other, int) and any(_played(edge.unknown, Role(r, side), named) for r in edge.relations):
                cost += 1.5
        unknowns = list(guess.unknowns)
        for index, types in ((edge.unknown, near), (edge.other, far)):
            if isinstance(index, int):
                unknowns[index] = replace(unknowns[index], types=(unknowns[index].types or types) & types)
        constraints = (*guess.constraints, edge)
        return replace(guess, cost=guess.cost + cost, unknowns=tuple(unknowns), constraints=constraints)

    def _as_sibling(self, guess: Guess, index: int, name: Name, far: float) -> Iterator[Guess]:
        """Another node below the same parent: by way of an unknown that nobody mentions."""
        types = frozenset(name.nodes)
        for role in sorted({role for roles in self.schema.roles.values() for role in roles}, key=str):
            relation = self.schema.relations[role.relation]
            if role.side == "source" and types & relation.sources:
                parent = len(guess.unknowns)
                one = frozenset((role.relation,))
                nodes = self._nodes(name, one, False)
                added = (
                    Edge(index, parent, one, True, (name.at,)),
                    Edge(parent, nodes, one, False, (name.at,)),
                    Apart(index, nodes, (name.at,), True),
                )
                unsaid = Unknown(relation.targets, (name.at,), ())
                unknowns = (*guess.unknowns, unsaid)
                yield replace(guess, cost=guess.cost + far, unknowns=unknowns, constraints=(*guess.constraints, *added))

    def _through_unsaid(self, guess: Guess, name: Name) -> Iterator[Guess]:
        """A name that no unknown can be linked to, linked by way of an unknown that nobody mentions."""
        for index, unknown in enumerate(guess.unknowns):
            for type_ in sorted(self.schema.types):
                middle = Unknown(frozenset((type_,)), (name.at,), ())
                first = self._relations(unknown, middle)
                second = self._to_name(middle, frozenset(name.nodes))
                for forward, relations in first:
                    for onward, further in second:
                        place = len(guess.unknowns)
                        added = (
                            Edge(index, place, relations, forward, (name.at,)),
                            Edge(place, self._nodes(name, further, onward), further, onward, (name.at,)),
                        )
                        cost = guess.cost + 1.0 + self._distance(unknown, name.at)
                        yield replace(
                            guess,
                            cost=cost,
                            unknowns=(*guess.unknowns, middle),
                            constraints=(*guess.constraints, *added),
                        )

    def _say(self, quote: Quote) -> Step:
        def step(guess: Guess) -> Iterator[Guess]:
            for index, unknown in enumerate(guess.unknowns):
                if not unknown.types or unknown.types & self.text_types:
                    says = Says(index, quote.text, (quote.at,))
                    cost = guess.cost + self._distance(unknown, quote.at)
                    yield replace(guess, cost=cost, constraints=(*guess.constraints, says))
            yield replace(guess, cost=guess.cost + 3.0)

        return step

    def _own(self, noun: Noun) -> Step:
        """ "its genes": a link to the name that stands before."""

        def step(guess: Guess) -> Iterator[Guess]:
            yield guess
            index = next((index for index, unknown in enumerate(guess.unknowns) if noun.at in unknown.places), None)
            if index is None:
                return
            for name in reversed([m for m in self.mentions if isinstance(m, Name) and m.at < noun.at]):
                links = self._to_name(guess.unknowns[index], frozenset(name.nodes))
                for forward, relations in links:
                    edge = Edge(index, self._nodes(name, relations, forward), relations, forward, (noun.at,))
                    yield self._with_edge(guess, edge, 0.1, frozenset(name.nodes))
                if links:
                    return

        return step

    # ------------------------------------------------------------------- what modifiers say

    def bind(self, modifier: Modifier) -> Step:
        def step(guess: Guess) -> Iterator[Guess]:
            for place, constraint in enumerate(guess.constraints):
                far = min(self._reach(modifier, anchor) for anchor in constraint.anchors)
                changed = _narrowed(constraint, modifier, place in guess.bound)
                if changed is not None:
                    constraints = (*guess.constraints[:place], changed, *guess.constraints[place + 1 :])
                    bound = guess.bound if modifier.negative else guess.bound | {place}
                    extra = (
                        1.0
                        if modifier.negative and isinstance(constraint, Edge) and isinstance(constraint.other, int)
                        else 0.0
                    )
                    yield replace(guess, cost=guess.cost + far + extra, constraints=constraints, bound=bound)
            yield replace(guess, cost=guess.cost + 1.4)

        return step

    def _reach(self, modifier: Modifier, anchor: int) -> float:
        """From a modifier to what it may be about. A denial after its object has only auxiliaries between: "X is not"."""
        far = self.text.gap(modifier.at, anchor)
        if modifier.negative and anchor < modifier.at:
            between = self.text.between(anchor, modifier.at)
            far += 0.2 if all(word in AUXILIARIES or word in ("itself", "too") for word in between) else 0.9
        return far

    # ------------------------------------------------------------------- whole readings

    def finish(self, guess: Guess) -> Reading | None:
        """The guess as a reading; None where it contradicts itself or leaves a part unconnected."""
        cost = guess.cost
        constraints: list[Constraint] = []
        for constraint in guess.constraints:
            if isinstance(constraint, Edge):
                plain = frozenset(r for r in constraint.relations if not self.schema.relations[r].negative)
                chosen = constraint.relations if len(constraint.relations) == 1 else plain
                if guess.constraints.index(constraint) in guess.bound:
                    chosen = constraint.relations
                if not chosen:
                    return None
                constraint = replace(constraint, relations=chosen)
            if isinstance(constraint, Apart) and not constraint.negative:
                cost += 0.0 if guess.unknowns[constraint.unknown].other else 1.5
                constraint = replace(constraint, negative=True)
            if not any(_meaning(constraint) == _meaning(other) for other in constraints):
                constraints.append(constraint)
        if _contradicts(constraints):
            return None
        reached = _reached(guess.answer, constraints)
        if any(c.unknown not in reached for c in constraints):
            return None
        constraints += self._not_itself(guess, constraints)
        cost += sum(0.8 for index in reached if index != guess.answer and _is_idle(index, constraints))
        cost += sum(
            1.5 for index in reached for role in guess.unknowns[index].roles if not _played(index, role, constraints)
        )
        types = tuple(unknown.types or self.schema.types for unknown in guess.unknowns)
        if not types[guess.answer] & self.schema.candidates or not constraints:
            return None
        return Reading(guess.answer, types, tuple(constraints), cost)


    def _not_itself(self, guess: Guess, constraints: list[Constraint]) -> list[Constraint]:
        """What shares something with a named node is not that node; "another" is none of those that are named."""
        edges = [c for c in constraints if isinstance(c, Edge)]
        added: list[Constraint] = []
        for index, unknown in enumerate(guess.unknowns):
            nodes: set[int] = set()
            if unknown.other:
                for name in self.mentions:
                    if isinstance(name, Name):
                        nodes.update(*(group for type_, group in name.nodes.items() if type_ in unknown.types))
            for edge in edges:
                shared = edge.other if edge.unknown == index else edge.unknown if edge.other == index else None
                forward = edge.forward == (edge.unknown == index)
                for end in edges:
                    if end.unknown == shared and not isinstance(end.other, int) and end.relations & edge.relations and end.forward != forward:
                        nodes.update(end.other)
            if nodes and not any(isinstance(c, Apart) and c.unknown == index for c in constraints):
                added.append(Apart(index, tuple(sorted(nodes)), (), True))
        return added


_SINGULAR = frozenset(["is", "has", "does", "was"])
_PLURAL = frozenset(["are", "have", "do", "were"])
_NEW = {"asked": 0.3, "definite": 1.2, "indefinite": 0.3, "bare": 0.7, "other": 0.0, "pronoun": 1.0}
_SAME = {"asked": 0.4, "definite": 0.0, "indefinite": 0.9, "bare": 0.2, "other": 2.4, "pronoun": 0.0}


def _may_be(noun: Noun, unknown: Unknown) -> bool:
    if noun.types and unknown.types and not noun.types & unknown.types:
        return False
    return not (noun.role and any(role.relation == noun.role.relation and role != noun.role for role in unknown.roles))


def _plays(unknown: Unknown, relation: int, side: str) -> bool:
    return Role(relation, side) in unknown.roles


def _played(index: int, role: Role, constraints: Sequence[Constraint]) -> bool:
    """Whether a link gives the unknown the place in the hierarchy that its noun says."""
    return any(
        isinstance(c, Edge)
        and role.relation in c.relations
        and (
            (c.unknown == index and c.forward == (role.side == "source"))
            or (c.other == index and c.forward == (role.side == "target"))
        )
        for c in constraints
    )


def _is_idle(index: int, constraints: list[Constraint]) -> bool:
    """Whether an unknown hangs at the end of a link and nothing else is said of it."""
    return sum(index in (c.unknown, c.other if isinstance(c, Edge) else -1) for c in constraints) < 2


def _narrowed(constraint: Constraint, modifier: Modifier, bound: bool) -> Constraint | None:
    """The constraint under the modifier, or None where the two do not fit."""
    if modifier.negative:
        return None if constraint.negative else replace(constraint, negative=True)
    if bound or not isinstance(constraint, Edge) or not constraint.relations & modifier.relations:
        return None
    return replace(constraint, relations=constraint.relations & modifier.relations)


def _contradicts(constraints: list[Constraint]) -> bool:
    """Whether the same thing is asked for and denied of one unknown."""
    edges = [c for c in constraints if isinstance(c, Edge)]
    said = [c for c in constraints if isinstance(c, Says)]
    return any(
        a.unknown == b.unknown and a.other == b.other and a.negative != b.negative and a.relations & b.relations
        for a in edges
        for b in edges
    ) or any(a.unknown == b.unknown and a.words == b.words and a.negative != b.negative for a in said for b in said)


def _reached(answer: int, constraints: list[Constraint]) -> set[int]:
    reached = {answer}
    links = [(c.unknown, c.other) for c in constraints if isinstance(c, Edge) and isinstance(c.other, int)]
    for _ in links:
        for one, other in links:
            if one in reached or other in reached:
                reached |= {one, other}
    return reached
