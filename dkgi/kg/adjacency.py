"""Who is linked to whom, either way and by which relation.

>>> others, relations, ways = Adjacency(folder).of(3)                      # doctest: +SKIP
>>> others, relations, ways                                                # doctest: +SKIP
(array([0, 2], dtype=int32), array([0, 0], dtype=uint16), array([1, 3], dtype=uint8))

Links of a node stand in the order of their relation's ID, then of the neighbour's. A row that is stored twice, or in both
directions, is one link; `ways` says which directions there are.
Not covered: the order of stored rows, which the files keep.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from dkgi.graph.read import Rows
from dkgi.kg.arrays import Array, GroupWriter, load, run_starts

OUT, IN = 1, 2
"""Bits of `ways`: the node is the source of a row, or its target."""


def write_adjacency(folder: Path, nodes: int, relations: Iterable[Rows]) -> None:
    """`relations`: rows [n, 2] of each relation in the order of their IDs."""
    writer = GroupWriter(folder, "links", {"other": np.int32, "relation": np.uint16, "ways": np.uint8})
    for number, rows in enumerate(relations):
        # One integer a row and direction: node (31 bits), neighbour (31), direction (1). Sorting brings twins together.
        keys = np.concatenate([_keys(rows[:, 0], rows[:, 1], 0), _keys(rows[:, 1], rows[:, 0], 1)])
        if not len(keys):
            continue
        keys.sort()
        firsts = run_starts(keys >> 1)
        ways = np.bitwise_or.reduceat(np.where(keys & 1, IN, OUT).astype(np.uint8), firsts)
        keys = keys[firsts]
        writer.add(keys >> 32, (keys >> 1) & 0x7FFFFFFF, np.full(len(keys), number), ways)
    writer.write(nodes)


def _keys(nodes: Array, others: Array, way: int) -> Array:
    keys: Array = nodes << 32 | others << 1 | way
    return keys


class Adjacency:
    def __init__(self, folder: Path) -> None:
        self._starts = load(folder, "links.starts")
        self._columns = [load(folder, f"links.{name}") for name in ("other", "relation", "ways")]

    def of(self, node: int) -> tuple[Array, Array, Array]:
        """Neighbours, relation IDs and ways, each [links]."""
        start, end = self._starts[node : node + 2].tolist()
        others, relations, ways = (column[start:end] for column in self._columns)
        return others, relations, ways
