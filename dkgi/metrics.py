"""Scores of one ranked answer against its gold set (paper, section 6).

>>> score((5, 17, 3), gold={17, 3}).mrr
0.5

A rank is a position in the list. Entries that stand for no node, for no gold, or only for gold that an earlier entry
stood for hold their rank as a miss.
Not covered: means over queries and their intervals (analysis/).
"""

import math
from collections.abc import Callable, Sequence, Set
from typing import Any

from dkgi.types import Score

NO_ANSWER = Score(0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
"""What a query scores whose attempts all failed."""


NodesOf = Callable[[Any], Set[int]]
"""What an entry of an answer stands for."""


def node_of(entry: Any) -> Set[int]:
    """The node that an ID stands for."""
    # JSON's true and 1.0 equal 1 in Python, but they are not integers that an agent was asked for.
    return {entry} if type(entry) is int else frozenset()


def score(entries: Sequence[Any], *, gold: Set[int], nodes_of: NodesOf = node_of) -> Score:
    """All metrics in 0..1. `gold` holds at least one node ID; an entry is right when any node that it stands for is gold.

    NDCG and MAP at 20 take relevance as 0 or 1 and divide by the best that a list of 20 could reach.
    """
    if not gold:
        raise ValueError("a query needs at least one gold node")
    found = _found(entries, gold, nodes_of)
    hits = [count > 0 for count in found]
    reachable = min(len(gold), 20)
    first = next((rank for rank, hit in enumerate(hits[:100], start=1) if hit), None)
    gain = sum(1 / math.log2(rank + 1) for rank, hit in enumerate(hits[:20], start=1) if hit)
    best_gain = sum(1 / math.log2(rank + 1) for rank in range(1, reachable + 1))
    precision = sum(sum(hits[:rank]) / rank for rank, hit in enumerate(hits[:20], start=1) if hit)
    return Score(
        hit_at_1=float(any(hits[:1])),
        hit_at_5=float(any(hits[:5])),
        recall_at_20=sum(found[:20]) / len(gold),
        mrr=1 / first if first else 0.0,
        ndcg_at_20=gain / best_gain,
        map_at_20=precision / reachable,
    )


def _found(entries: Sequence[Any], gold: Set[int], nodes_of: NodesOf) -> list[int]:
    """How many gold nodes each entry adds to those of the entries before it."""
    left = set(gold)
    found = []
    for entry in entries:
        new = left & nodes_of(entry)
        left -= new
        found.append(len(new))
    return found
