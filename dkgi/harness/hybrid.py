"""The baseline that fuses words and meaning: reciprocal rank fusion of bm25.py and dense.py (Cormack et al., SIGIR 2009).

    python -m dkgi harness=hybrid limit=null

A document's score is the sum of 1 / (constant + rank) over the lists that have it; ties go to the smaller place.
Not covered: weights for the two lists.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, Literal

from dkgi.harness.bm25 import rank_by_words
from dkgi.harness.dense import Embedding, rank_by_meaning
from dkgi.harness.retrieval import Ranking, RetrievalHarness


@dataclass(frozen=True, slots=True)
class HybridSpec:
    """From conf/harness/hybrid.yaml: `constant` of the fusion (60 in its paper), and how deep both lists are read."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = False
    external: ClassVar[bool] = False
    kind: Literal["hybrid"]
    name: str
    embedding: Embedding
    constant: int
    depth: int


def open_hybrid(spec: HybridSpec) -> RetrievalHarness:
    return RetrievalHarness(spec.name, partial(_build, spec))


def _build(spec: HybridSpec, documents: Sequence[str]) -> Ranking:
    rankings = (rank_by_words(documents), rank_by_meaning(spec.embedding, documents))
    return _Fused(rankings, spec.constant, spec.depth)


@dataclass(frozen=True, slots=True)
class _Fused:
    rankings: Sequence[Ranking]
    constant: int
    depth: int

    def best(self, query: str, k: int) -> list[int]:
        return fuse([ranking.best(query, self.depth) for ranking in self.rankings], self.constant)[:k]


def fuse(lists: Sequence[Sequence[int]], constant: int) -> list[int]:
    """All entries of the lists by reciprocal rank fusion.

    >>> fuse([[7, 8], [8, 9]], constant=60)
    [8, 7, 9]
    """
    scores: dict[int, float] = defaultdict(float)
    for places in lists:
        for rank, place in enumerate(places, start=1):
            scores[place] += 1 / (constant + rank)
    return sorted(scores, key=lambda place: (-scores[place], place))
