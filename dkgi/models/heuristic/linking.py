"""Steps of a guess that link unknowns to each other, to names and to quoted words.

>>> steps = linker.steps(guess)          # one for each name, quote and unknown
>>> [after.constraints for after in steps[0](guess)]
[(Edge(...),), (Apart(...),), ()]

Relations decide what can be linked, distance in the text what is likely to be. Within a type ("is a kind of") a link
needs a noun that names one of its ends.
Not covered: denials and kinds of links (interpretation.py).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from dkgi.models.heuristic.distance import Distance
from dkgi.models.heuristic.guess import Guess, Step, Unknown
from dkgi.models.heuristic.nouns import Noun
from dkgi.models.heuristic.question import Mention
from dkgi.models.heuristic.reading import Apart, Edge, Says, plays
from dkgi.models.heuristic.schema import Role, Schema
from dkgi.models.heuristic.text import NAME, Name, Quote
from dkgi.models.heuristic.words import COMPLETING, DEFINITE, GENERIC, NEGATIONS, REMARKS, SEPARATING, starts_with, stem

Links = list[tuple[bool, frozenset[int]]]
"""Ways to link two things: whether the first is the source, and by which relations."""


@dataclass(frozen=True)
class Linker:
    schema: Schema
    text_types: frozenset[str]
    mentions: list[Mention]
    distance: Distance

    def steps(self, guess: Guess) -> list[Step]:
        """A step for each mention that has to be linked, then one for each unknown but the answer."""
        steps: list[Step] = []
        seen: list[dict[str, tuple[int, ...]]] = []
        for mention in self.mentions:
            if isinstance(mention, Name):
                steps.append(self._attach(mention, repeated=mention.nodes in seen))
                seen.append(mention.nodes)
            elif isinstance(mention, Quote):
                steps.append(self._say(mention))
            elif isinstance(mention, Noun) and mention.owned:
                steps.append(self._own(mention))
        return [*steps, *(self._join(index) for index in range(len(guess.unknowns)) if index != guess.answer)]

    def _join(self, index: int) -> Step:
        """Links an unknown to another one, or leaves it out."""

        def step(guess: Guess) -> Iterator[Guess]:
            one = guess.unknowns[index]
            joined = {c.unknown for c in guess.constraints if isinstance(c, Edge) and c.other == index}
            for place, other in enumerate(guess.unknowns):
                if place != index and place not in joined:
                    far, later = self.distance.apart(one, other)
                    for forward, relations in self._links(one, other):
                        yield self._linked(guess, Edge(index, place, relations, forward, (later,)), far, other.types)
            yield guess.at_cost(2.0)

        return step

    def _attach(self, name: Name, *, repeated: bool) -> Step:
        """Links a name to an unknown, sets it apart from one, or passes over it."""

        def step(guess: Guess) -> Iterator[Guess]:
            types = frozenset(name.nodes)
            links = [self._links(unknown, Unknown(types, ())) for unknown in guess.unknowns]
            able = [unknown for unknown, ways in zip(guess.unknowns, links, strict=True) if ways]
            for index, unknown in enumerate(guess.unknowns):
                far = self.distance.of(unknown, name.at)
                far += 0.4 if any(self.distance.shields(other, unknown, name.at) for other in able) else 0.0
                if index == guess.answer and repeated and self._is_denied(name.at):
                    far = min(far, 0.8)
                for forward, relations in links[index]:
                    edge = Edge(index, self._nodes(name, relations, forward), relations, forward, (name.at,))
                    loose = self.schema.relations[min(relations)].within and not self._is_joined(name.at)
                    odd = loose or (unknown.sibling and not unknown.types)
                    yield self._linked(guess, edge, far + (0.5 if odd else 0.0), types)
                if unknown.sibling:
                    yield from self._as_sibling(guess, index, name, far)
                if not unknown.types or unknown.types & types:
                    cost = far + (0.3 if unknown.other or self._is_set_apart(name.at) else 1.3)
                    yield guess.and_constraints(cost, Apart(index, _of_types(name, unknown.types or types), (name.at,)))
            if not able:
                yield from self._through_unsaid(guess, name)
            doubtful = 0.2 if name.single else 1.0
            idle = name.echo or self._is_no_requirement(name.at)
            yield guess.at_cost(0.1 if idle else 0.8 if repeated else 3.0 if name.exact else doubtful)

        return step

    def _say(self, quote: Quote) -> Step:
        """Links quoted words to the unknown in whose text they stand."""

        def step(guess: Guess) -> Iterator[Guess]:
            for index, unknown in enumerate(guess.unknowns):
                if not unknown.types or unknown.types & self.text_types:
                    says = Says(index, quote.text, (quote.at,))
                    yield guess.and_constraints(self.distance.of(unknown, quote.at), says)
            yield guess.at_cost(3.0)

        return step

    def _own(self, noun: Noun) -> Step:
        """Links "its genes" to the name before it, or to none."""

        def step(guess: Guess) -> Iterator[Guess]:
            owned = [index for index, unknown in enumerate(guess.unknowns) if noun.at in unknown.places]
            names = [mention for mention in self.mentions if isinstance(mention, Name) and mention.at < noun.at]
            for index in owned:
                for name in reversed(names):
                    links = self._links(guess.unknowns[index], Unknown(frozenset(name.nodes), ()))
                    if noun.role:
                        links = [way for way in links if way[1] == {noun.role.relation}]
                    for forward, relations in links:
                        edge = Edge(index, self._nodes(name, relations, forward), relations, forward, (noun.at,))
                        yield self._linked(guess, edge, 0.1, frozenset(name.nodes))
                    if links:
                        yield guess.at_cost(0.3)
                        return
            yield guess

        return step

    def _links(self, one: Unknown, other: Unknown) -> Links:
        """Relations that can link two unknowns; within a type only where a noun says which end is which."""
        found = []
        for forward, relations in self.schema.between(one.types or self.schema.types, other.types or self.schema.types):
            near, far = ("source", "target") if forward else ("target", "source")
            fit = frozenset(
                relation
                for relation in relations
                if not self.schema.relations[relation].within or one.plays(relation, near) or other.plays(relation, far)
            )
            if fit:
                found.append((forward, fit))
        return found

    def _linked(self, guess: Guess, edge: Edge, cost: float, far_types: frozenset[str]) -> Guess:
        """The guess with one more link, whose ends must then be of the types that the relations have."""
        some = self.schema.relations[min(edge.relations)]
        near, far = (some.sources, some.targets) if edge.forward else (some.targets, some.sources)
        if some.within:
            near &= far_types or near
            far &= guess.unknowns[edge.unknown].types or far
            role = Role(some.id, "source" if edge.forward else "target")
            named = [c for c in guess.constraints if isinstance(c, Edge) and not isinstance(c.other, int)]
            if not isinstance(edge.other, int) and plays(edge.unknown, role, named):
                cost += 1.5
        unknowns = list(guess.unknowns)
        for index, types in ((edge.unknown, near), (edge.other, far)):
            if isinstance(index, int):
                unknowns[index] = replace(unknowns[index], types=(unknowns[index].types or types) & types)
        return replace(guess.and_constraints(cost, edge), unknowns=tuple(unknowns))

    def _as_sibling(self, guess: Guess, index: int, name: Name, far: float) -> Iterator[Guess]:
        """Another node below the same parent, which nobody mentions."""
        for relation in self.schema.relations.values():
            if relation.within and relation.sources & name.nodes.keys():
                ids = frozenset((relation.id,))
                parent, nodes = len(guess.unknowns), self._nodes(name, ids, False)
                yield guess.and_unknown(Unknown(relation.targets, (name.at,)), far).and_constraints(
                    0.0,
                    Edge(index, parent, ids, True, (name.at,)),
                    Edge(parent, nodes, ids, False, (name.at,)),
                    Apart(index, nodes, (name.at,), True),
                )

    def _through_unsaid(self, guess: Guess, name: Name) -> Iterator[Guess]:
        """A name that no unknown can be linked to, linked by way of an unknown that nobody mentions."""
        middle = len(guess.unknowns)
        for index, unknown in enumerate(guess.unknowns):
            cost = 1.0 + self.distance.of(unknown, name.at)
            for type_ in sorted(self.schema.types):
                unsaid = Unknown(frozenset((type_,)), (name.at,))
                for forward, relations in self._links(unknown, unsaid):
                    for onward, further in self._links(unsaid, Unknown(frozenset(name.nodes), ())):
                        yield guess.and_unknown(unsaid, cost).and_constraints(
                            0.0,
                            Edge(index, middle, relations, forward, (name.at,)),
                            Edge(middle, self._nodes(name, further, onward), further, onward, (name.at,)),
                        )

    def _nodes(self, name: Name, relations: frozenset[int], forward: bool) -> tuple[int, ...]:
        """The nodes of a name that can be at the far end of the relations."""
        ends = (self.schema.relations[r].targets if forward else self.schema.relations[r].sources for r in relations)
        return _of_types(name, frozenset[str]().union(*ends))

    def _is_joined(self, at: int) -> bool:
        """Whether a name completes the noun before it: "a parent of X", "the same parent as X", but not "as well as X"."""
        words = [word for word in self.distance.text.words[max(0, at - 4) : at] if word not in DEFINITE]
        return bool(words) and words[-1] in COMPLETING and words[-2:-1] not in (["well"], ["along"], ["together"])

    def _is_no_requirement(self, at: int) -> bool:
        """Whether a name stands in a remark: "some of these also have X", "they need not have X"."""
        words = self.distance.text.words
        start = max((place for place in range(at) if words[place] in (".", ",", ";")), default=-1)
        return any(starts_with(words, place, REMARKS) for place in range(start + 1, at))

    def _is_denied(self, at: int) -> bool:
        """Whether a negation stands between a name and the mark or name before it."""
        words = self.distance.text.words
        start = max((place for place in range(at) if words[place] in (".", ",", ";", NAME)), default=-1)
        return any(starts_with(words, place, NEGATIONS) for place in range(start + 1, at))

    def _is_set_apart(self, at: int) -> bool:
        """Whether a name stands right after words such as "other than"."""
        words = self.distance.text.words[max(0, at - 4) : at]
        before = [word for word in words if word not in DEFINITE and stem(word) not in GENERIC]
        return bool(before) and before[-1] in SEPARATING


def _of_types(name: Name, types: frozenset[str]) -> tuple[int, ...]:
    return tuple(sorted(node for type_, nodes in name.nodes.items() if type_ in types for node in nodes))
