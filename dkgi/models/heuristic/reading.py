"""One way to understand a question: unknown nodes, what links them, and the Python expression that computes the answer.

>>> reading = Reading(0, ({"film"}, {"person"}), (Edge(0, 1, {2}, True, (4,)), Edge(1, (17,), {3}, False, (9,))), ...)
>>> expression(reading, schema)
"back(to(N(17), '03'), '02')"

An unknown is a place in `types`; the edges between unknowns make a tree around the answer.
Not covered: where readings come from (interpretation.py), the functions that expressions call (programs.py).
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dkgi.models.heuristic.schema import Role, Schema


@dataclass(frozen=True, slots=True)
class Edge:
    """A link from an unknown to another one or to any of the named nodes, by any of the relations.

    `forward` where `unknown` is the source; `anchors` are the places in the question that speak of it.
    """

    unknown: int
    other: int | tuple[int, ...]
    relations: frozenset[int]
    forward: bool
    anchors: tuple[int, ...]
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Says:
    """The text of an unknown holds the words."""

    unknown: int
    words: str
    anchors: tuple[int, ...]
    negative: bool = False


@dataclass(frozen=True, slots=True)
class Apart:
    """An unknown is none of the named nodes."""

    unknown: int
    nodes: tuple[int, ...]
    anchors: tuple[int, ...]
    negative: bool = False


Constraint = Edge | Says | Apart


@dataclass(frozen=True, slots=True)
class Reading:
    answer: int
    types: tuple[frozenset[str], ...]
    constraints: tuple[Constraint, ...]
    cost: float


def plays(unknown: int, role: Role, edges: Iterable[Edge]) -> bool:
    """Whether one of the links gives an unknown that place in a hierarchy."""
    for edge in edges:
        if role.relation in edge.relations and unknown in (edge.unknown, edge.other):
            forward = edge.forward == (edge.unknown == unknown)
            if forward == (role.side == "source"):
                return True
    return False


def looser(reading: Reading) -> Iterator[Reading]:
    """The readings that lack exactly one constraint which leaves the rest connected."""
    for constraint in reading.constraints:
        linking = isinstance(constraint, Edge) and isinstance(constraint.other, int)
        if not linking and not isinstance(constraint, Apart):
            rest = tuple(other for other in reading.constraints if other is not constraint)
            yield replace(reading, constraints=_without_idle(reading.answer, rest))


def _without_idle(answer: int, constraints: tuple[Constraint, ...]) -> tuple[Constraint, ...]:
    """Without links to unknowns of which nothing else is said."""
    ends = Counter(end for c in constraints for end in (c.unknown, c.other if isinstance(c, Edge) else -1))
    kept = tuple(
        c
        for c in constraints
        if not (isinstance(c, Edge) and isinstance(c.other, int))
        or all(ends[end] > 1 or end == answer for end in (c.unknown, c.other))
    )
    return kept if kept == constraints else _without_idle(answer, kept)


def expression(reading: Reading, schema: Schema, keys: dict[str, str]) -> str:
    """Python for the set of answers; `keys`: the attribute that holds text, by type."""
    return _set_of(reading.answer, None, reading, schema, keys)


def _set_of(unknown: int, origin: Edge | None, reading: Reading, schema: Schema, keys: dict[str, str]) -> str:
    kept: list[str] = []
    removed: list[str] = []
    for constraint in reading.constraints:
        if constraint is origin:
            continue
        if isinstance(constraint, Says):
            if constraint.unknown == unknown:
                types = tuple(sorted(keys.keys() & (reading.types[unknown] or keys.keys())))
                attributes = tuple(sorted({keys[type_] for type_ in types}))
                says = f"says({constraint.words.lower()!r}, {types!r}, {attributes!r})"
                (removed if constraint.negative else kept).append(says)
        elif isinstance(constraint, Apart):
            if constraint.unknown == unknown:
                removed.append(_nodes(constraint.nodes))
        elif unknown in (constraint.unknown, constraint.other):
            forward = constraint.forward == (constraint.unknown == unknown)
            if isinstance(constraint.other, int):
                far = constraint.other if constraint.unknown == unknown else constraint.unknown
                start = _set_of(far, constraint, reading, schema, keys)
            else:
                start = _nodes(constraint.other)
            files = ", ".join(repr(schema.relations[relation].file) for relation in sorted(constraint.relations))
            (removed if constraint.negative else kept).append(f"{'back' if forward else 'to'}({start}, {files})")
    kept = kept or [f"all_of({', '.join(map(repr, sorted(reading.types[unknown])))})"]
    found = " & ".join(kept) + "".join(f" - {part}" for part in removed)
    return f"({found})" if len(kept) + len(removed) > 1 and origin is not None else found


def _nodes(nodes: tuple[int, ...]) -> str:
    return f"N({', '.join(map(str, nodes))})"
