"""Which nodes fit an expression of reading.py, asked of a graph that shows 20 neighbours at a time.

>>> fits = yield from Sets(schema_text, names).fitting("back(N(14), 'edges/06.tsv') - to(N(9), 'edges/05.tsv')")
>>> fits
{1: 1.0, 4: 1.0, 0: 0.5}

A part whose neighbours are all shown is a set. Of any other part only what is shown is known, and whether a certain node
belongs to it is asked from that node's end.
Not covered: where expressions come from (reading.py).
"""

import ast
import json
import re
from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from typing import Any

from dkgi.models.heuristic.graph_calls import Call, Links, parse_hits, parse_links, parse_node

POOL = 30
"""Nodes that are looked at for one expression."""

STARTS = 12
"""Nodes whose neighbours are listed for one part."""

CALLS = 250
"""Calls that one question may cost."""

_WORD = re.compile(r"[^\W_]+")

Asking = Generator[list[Call], list[str], Any]


class Sets:
    """`names`: names of nodes that may be asked for, by ID."""

    def __init__(self, schema_text: str, names: dict[int, str]) -> None:
        rows = json.loads(schema_text[schema_text.index("{") :]).get("relation_types", [])
        self._relations = {str(row["file"]): str(row["name"]) for row in rows}
        self._names = names
        self._outputs: dict[Call, str] = {}
        self._left = CALLS

    def fitting(self, expression: str) -> Asking:
        """Nodes by the share of the expression's parts that they fit; the best come first."""
        found = yield from self._fitting(ast.parse(expression, mode="eval").body)
        return found

    def _fitting(self, whole: ast.expr) -> Asking:
        kept, removed = _parts(whole)
        about = next((_words(part) for part in kept if _verb(part) == "says"), "")
        pool = yield from self._pool(kept, about)
        counts: Counter[int] = Counter(dict.fromkeys(pool, 0))
        for part in kept:
            counts.update((yield from self._holding(part, pool, about)))
        for part in removed:
            denied = yield from self._holding(part, pool, about)
            counts.update(node for node in pool if node not in denied)
        total = len(kept) + len(removed)
        return {node: counts[node] / total for node in sorted(pool, key=lambda node: -counts[node])}

    def _pool(self, parts: Sequence[ast.expr], about: str) -> Asking:
        """Nodes that may fit: the smallest part that is known whole, else those that are shown for most parts."""
        shown: Counter[int] = Counter()
        whole: list[list[int]] = []
        for part in parts:
            nodes, complete = yield from self._listed(part, about)
            shown.update(nodes)
            if complete:
                whole.append(nodes)
        pool = min(whole, key=len) if whole else list(shown)
        return sorted(pool, key=lambda node: -shown[node])[:POOL]

    def _listed(self, part: ast.expr, about: str) -> Asking:
        """What is shown of a part, and whether that is all."""
        verb = _verb(part)
        if verb == "N":
            return _literals(part), True
        if verb == "says":
            outputs = yield from self._ask([Call.of("search", query=_words(part), k=30)])
            return [hit.node for output in outputs for hit in parse_hits(output)], False
        if verb == "all_of":
            return [], False
        assert isinstance(part, ast.Call)
        starts = yield from self._starts(part.args[0])
        relations = self._named(part)
        calls = [Call.of("neighbors", node_id=s, relation=r) for s in starts[:STARTS] for r in relations]
        found = yield from self._linked(calls)
        complete = len(starts) <= STARTS and all(links.complete for links in found)
        if not complete and about:
            more = [
                Call.of("neighbors", node_id=s, relation=r, query=about) for s in starts[:STARTS] for r in relations
            ]
            found += yield from self._linked(more)
        outgoing = verb == "to"
        nodes = [link.node for links in found for link in links.links if link.outgoing == outgoing]
        return list(dict.fromkeys(nodes)), complete

    def _holding(self, part: ast.expr, pool: Sequence[int], about: str) -> Asking:
        """Those nodes of the pool that belong to a part."""
        verb = _verb(part)
        if verb in ("says", "all_of"):
            outputs = yield from self._ask([Call.of("get_node", node_id=node) for node in pool])
            return {node for node, output in zip(pool, outputs, strict=True) if _fits_text(part, output)}
        nodes, complete = yield from self._listed(part, about)
        held = set(pool) & set(nodes)
        if complete or not isinstance(part, ast.Call):
            return held
        starts = yield from self._starts(part.args[0])
        relations, unsure = self._named(part), [node for node in pool if node not in held]
        asked = [self._names.get(start, "") for start in starts]
        if len(starts) <= 2 and all(asked):
            calls = [Call.of("neighbors", node_id=node, query=name, k=5) for node in unsure for name in asked]
        else:
            calls = [Call.of("neighbors", node_id=node, relation=relation) for node in unsure for relation in relations]
        found = yield from self._linked(calls)
        outgoing = verb == "back"
        for call, links in zip(calls, found, strict=True):
            for link in links.links:
                if link.node in starts and link.relation in relations and link.outgoing == outgoing:
                    held.add(dict(call.arguments)["node_id"])
        return held

    def _starts(self, expression: ast.expr) -> Asking:
        """The nodes that a part starts from."""
        if _verb(expression) == "N":
            return _literals(expression)
        fits = yield from self._fitting(expression)
        return [node for node, share in fits.items() if share == 1.0]

    def _named(self, part: ast.Call) -> list[str]:
        return [self._relations[ast.literal_eval(file)] for file in part.args[1:]]

    def _linked(self, calls: list[Call]) -> Generator[list[Call], list[str], list[Links]]:
        outputs = yield from self._ask(calls)
        return [parse_links(output, dict(c.arguments)["node_id"]) for c, output in zip(calls, outputs, strict=True)]

    def _ask(self, calls: Iterable[Call]) -> Generator[list[Call], list[str], list[str]]:
        """Outputs of the calls; empty ones once the question has cost enough."""
        calls = list(calls)
        new = [call for call in dict.fromkeys(calls) if call not in self._outputs][: self._left]
        self._left -= len(new)
        if new:
            self._outputs.update(zip(new, (yield new), strict=True))
        return [self._outputs.get(call, "") for call in calls]


def words_in(text: str) -> list[str]:
    return _WORD.findall(text)


def _parts(whole: ast.expr) -> tuple[list[ast.expr], list[ast.expr]]:
    """What an intersection keeps, and what is taken away from it."""
    if not isinstance(whole, ast.BinOp):
        return [whole], []
    kept, removed = _parts(whole.left)
    if isinstance(whole.op, ast.Sub):
        return kept, [*removed, whole.right]
    # Python reads `a & b - c` as `a & (b - c)`, which is the same set.
    also_kept, also_removed = _parts(whole.right)
    return [*kept, *also_kept], [*removed, *also_removed]


def _verb(part: ast.expr) -> str:
    return part.func.id if isinstance(part, ast.Call) and isinstance(part.func, ast.Name) else ""


def _literals(part: ast.expr) -> list[Any]:
    return [ast.literal_eval(argument) for argument in part.args] if isinstance(part, ast.Call) else []


def _words(part: ast.expr) -> str:
    return str(_literals(part)[0])


def _fits_text(part: ast.expr, output: str) -> bool:
    """Whether a node's record is of the types, and has the words where texts are, as far as it was shown."""
    record = parse_node(output)
    if _verb(part) == "all_of":
        return record.get("node_type") in _literals(part)
    words, types, keys = _literals(part)
    if not record:
        return words in " ".join(output.lower().split())
    texts = " ".join(_text_of(record["attributes"].get(key)) for key in keys)
    return record["node_type"] in types and words in " ".join(texts.lower().split())


def _text_of(value: Any) -> str:
    if isinstance(value, dict):
        value = list(value.values())
    return " ".join(map(_text_of, value)) if isinstance(value, list) else str(value or "")
