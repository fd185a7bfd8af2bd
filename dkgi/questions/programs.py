"""Questions as typed set programs: what a question asks for, in a form that can be computed.

>>> links = Links({"is_a": [(1, 0), (2, 0), (3, 1)], "shown_by": [(1, 9), (2, 9), (2, 8)]})
>>> children = Follow(Node(0), ("is_a",), reverse=True)
>>> program = All((children, Follow(Node(8), ("shown_by",), reverse=True)))
>>> sorted(evaluate(program, links)), [sorted(evaluate(p, links)) for p in loosened(program)]
([2], [[2], [1, 2]])

A program is a tree of five operators. Evaluated over the complete export it gives the gold set, exact by construction;
`loosened` gives the programs with one constraint less, `reach` what a walk sees that is shown only a few neighbours.
Not covered: wording (phrasings.yaml) and the choice of constants (templates.py).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Nodes = frozenset[int]


@dataclass(frozen=True, slots=True)
class Node:
    """One node that the question names."""

    id: int


@dataclass(frozen=True, slots=True)
class Mentions:
    """The nodes whose definition contains `phrase`; `found` is that set."""

    phrase: str
    found: Nodes


@dataclass(frozen=True, slots=True)
class Follow:
    """The nodes one edge away: from source to target, or from target to source where `reverse`.

    `wider` names the relations that the question would mean without its narrowing word ("very frequent").
    """

    start: "Program"
    relations: tuple[str, ...]
    reverse: bool = False
    wider: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    """The nodes in every part."""

    parts: tuple["Program", ...]


@dataclass(frozen=True, slots=True)
class Minus:
    """The nodes of `kept` that are not in `removed`."""

    kept: "Program"
    removed: "Program"


Program = Node | Mentions | Follow | All | Minus


class Links:
    """Neighbours by relation and direction. Built from (source, target) rows per relation name."""

    def __init__(self, rows: Mapping[str, Iterable[tuple[int, int]]]) -> None:
        self._sets: dict[tuple[str, bool], dict[int, Nodes]] = {}
        self._nodes: dict[tuple[str, bool], list[int]] = {}
        for relation, pairs in rows.items():
            forward: dict[int, set[int]] = defaultdict(set)
            reverse: dict[int, set[int]] = defaultdict(set)
            for source, target in pairs:
                forward[source].add(target)
                reverse[target].add(source)
            for way, sets in ((False, forward), (True, reverse)):
                self._sets[relation, way] = {node: frozenset(found) for node, found in sets.items()}
                self._nodes[relation, way] = sorted(sets)

    def of(self, nodes: Iterable[int], relations: Iterable[str], reverse: bool) -> Nodes:
        """Neighbours of any of the nodes by any of the relations. Raises KeyError on an unknown relation."""
        tables = [self._sets[relation, reverse] for relation in relations]
        return frozenset().union(*(table[node] for node in nodes for table in tables if node in table))

    def most(self, node: int, relations: Iterable[str], reverse: bool) -> int:
        """Neighbours of a node by the one of the relations that has most of them."""
        return max(len(self._sets[relation, reverse].get(node, ())) for relation in relations)

    def nodes(self, relation: str, reverse: bool) -> Sequence[int]:
        """Nodes with at least one neighbour, in ascending order."""
        return self._nodes[relation, reverse]


def evaluate(program: Program, links: Links) -> Nodes:
    """The set of node ids that `program` describes."""
    match program:
        case Node(id):
            return frozenset((id,))
        case Mentions(_, found):
            return found
        case Follow(start, relations, reverse):
            return links.of(evaluate(start, links), relations, reverse)
        case All(parts):
            return frozenset.intersection(*(evaluate(part, links) for part in parts))
        case Minus(kept, removed):
            return evaluate(kept, links) - evaluate(removed, links)


def loosened(program: Program) -> Iterator[Program]:
    """Every program that lacks exactly one constraint of `program`, at any depth."""
    match program:
        case Follow(start, relations, reverse, wider):
            if wider:
                yield Follow(start, wider, reverse)
            for looser in loosened(start):
                yield Follow(looser, relations, reverse, wider)
        case All(parts):
            for index, part in enumerate(parts):
                rest = parts[:index] + parts[index + 1 :]
                yield rest[0] if len(rest) == 1 else All(rest)
                for looser in loosened(part):
                    yield All((*parts[:index], looser, *parts[index + 1 :]))
        case Minus(kept, removed):
            yield kept
            for looser in loosened(kept):
                yield Minus(looser, removed)
            for looser in loosened(removed):
                yield Minus(kept, looser)


def reread(program: Program, relations: tuple[str, ...], instead: tuple[str, ...]) -> Program:
    """`program` with every edge that follows `relations` following `instead`: another reading of the same words."""
    match program:
        case Follow(start, followed, reverse, wider):
            chosen = instead if followed == relations else followed
            return Follow(reread(start, relations, instead), chosen, reverse, wider)
        case All(parts):
            return All(tuple(reread(part, relations, instead) for part in parts))
        case Minus(kept, removed):
            return Minus(reread(kept, relations, instead), reread(removed, relations, instead))
        case _:
            return program


def reach(program: Program, links: Links, shown: int = 20) -> Nodes:
    """The part of the result met by a walk that is shown the first `shown` neighbours of a node and relation.

    In an intersection the walk may start from any part and checks the others completely, so this flatters the walk.
    """
    match program:
        case Follow(start, relations, reverse):
            seen: set[int] = set()
            for node in reach(start, links, shown):
                for relation in relations:
                    seen.update(sorted(links.of((node,), (relation,), reverse))[:shown])
            return frozenset(seen)
        case All(parts):
            complete = evaluate(program, links)
            return frozenset().union(*(reach(part, links, shown) & complete for part in parts))
        case Minus(kept, removed):
            return reach(kept, links, shown) - evaluate(removed, links)
        case _:
            return evaluate(program, links)


def fan_out(program: Program, links: Links) -> int:
    """Most neighbours that a walk meets at one node and relation; an intersection is entered by its easiest part."""
    match program:
        case Follow(start, relations, reverse):
            widest = max((links.most(node, relations, reverse) for node in evaluate(start, links)), default=0)
            return max(fan_out(start, links), widest)
        case All(parts):
            return min(fan_out(part, links) for part in parts)
        case Minus(kept, _):
            return fan_out(kept, links)
        case _:
            return 0


def hops(program: Program) -> int:
    """Edges on the longest way from a named node to an answer."""
    match program:
        case Follow(start):
            return hops(start) + 1
        case All(parts):
            return max(hops(part) for part in parts)
        case Minus(kept, removed):
            return max(hops(kept), hops(removed))
        case _:
            return 0


def record(program: Program) -> dict[str, Any]:
    """`program` as JSON data, for the labels file."""
    match program:
        case Node(id):
            return {"node": id}
        case Mentions(phrase):
            return {"mentions": phrase}
        case Follow(start, relations, reverse, wider):
            way = "to_source" if reverse else "to_target"
            return {"follow": list(relations), "way": way, "wider": list(wider), "from": record(start)}
        case All(parts):
            return {"all": [record(part) for part in parts]}
        case Minus(kept, removed):
            return {"keep": record(kept), "minus": record(removed)}
