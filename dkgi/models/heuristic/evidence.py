"""What the outputs of the programs say: how much each reading has for it, and the nodes in order of support.

>>> ranked([Finding(reading, 0.9, (4, 7)), Finding(other, 0.5, (7, 8))])
[7, 4, 8]

An output may be cut or be anything at all: what does not have the expected form is left out.
Not covered: the programs (programs.py).
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from dkgi.models.heuristic.reading import Reading

FEW = 20
"""A question has about so many answers at most."""


@dataclass(frozen=True, slots=True)
class Finding:
    """A reading that gave nodes; `weight` in 0..1 says how well it is supported."""

    reading: Reading
    weight: float
    nodes: tuple[int, ...]


def findings(possible: Sequence[Reading], lines: list[dict[str, Any]]) -> list[Finding]:
    """The readings that have answers. Plain language, few answers and requirements that all matter speak for one."""
    found = []
    cheapest = min((reading.cost for reading in possible), default=0.0)
    for line in lines:
        place, size, ids, sizes = (line.get(key) for key in ("reading", "size", "ids", "looser"))
        if not (isinstance(place, int) and 0 <= place < len(possible) and isinstance(ids, list) and ids):
            continue
        if not (isinstance(size, int) and isinstance(sizes, list)):
            continue
        needed = sum(other != size for other in sizes) / len(sizes) if len(sizes) > 1 else 1.0
        weight = math.exp(cheapest - possible[place].cost) * (0.1 + 0.9 * needed**2) * min(1.0, FEW / max(size, 1))
        found.append(Finding(possible[place], weight, tuple(ids)))
    return found


def ranked(support: Sequence[Finding]) -> list[int]:
    """Nodes by the weight of the best reading that has them, then by those of all that do."""
    weights: dict[int, list[float]] = {}
    for finding in support:
        for node in finding.nodes:
            weights.setdefault(node, []).append(finding.weight)
    return sorted(weights, key=lambda node: (-max(weights[node]), -sum(weights[node]), node))


def json_lines(outputs: Sequence[str]) -> list[dict[str, Any]]:
    """The JSON objects among the lines of outputs."""
    found = []
    for line in "\n".join(outputs).splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found
