"""A part of a cell's queries, so that several machines or jobs can share one cell.

>>> [number for number in range(20) if Shard(count=4, index=0).holds("hpo", number)]
[0, 2, 6, 13, 15]

Which part a query belongs to follows from its data set and number alone: it is the same on every machine, in every
version of Python, and for any `limit`. All shards of one count together are the whole cell.
Not covered: who works on a part at a time (locks.py), and how parts come together again (merge.py).
"""

import hashlib
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Shard:
    """The `index`-th of `count` parts, counted from 0. Raises ValueError where there is no such part."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    count: int
    index: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(
                f"count={self.count} and index={self.index}: the index must be at least 0 and less than the count"
            )

    @property
    def whole(self) -> bool:
        return self.count == 1

    @property
    def tag(self) -> str:
        """Part of the names of its files, `0-4`; empty for the whole."""
        return "" if self.whole else f"{self.index}-{self.count}"

    def holds(self, dataset: str, number: int) -> bool:
        """Whether a query belongs to it."""
        digest = hashlib.sha256(f"{dataset}/{number}".encode()).digest()
        return int.from_bytes(digest[:8], "big") % self.count == self.index

    def overlaps(self, other: "Shard") -> bool:
        """Whether a query could belong to both; of two different counts this is not looked into any closer."""
        return self.count != other.count or self.index == other.index


WHOLE = Shard(count=1, index=0)
