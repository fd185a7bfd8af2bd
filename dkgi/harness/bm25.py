"""The baseline BM25: bm25s with its defaults over the documents of all candidates, as STaRK's own baseline has it.

    python -m dkgi harness=bm25 limit=null

Lucene's method, k1 1.5, b 0.75, English stop words, no stemmer; ties by the order of the nodes.
Not covered: the index of the graph tools, which is another one (kg/bm25.py).
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from dkgi.harness.retrieval import Ranking, RetrievalHarness


@dataclass(frozen=True, slots=True)
class Bm25Spec:
    """From conf/harness/bm25.yaml."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = False
    external: ClassVar[bool] = False
    kind: Literal["bm25"]
    name: str


def open_bm25(spec: Bm25Spec) -> RetrievalHarness:
    return RetrievalHarness(spec.name, rank_by_words)


def rank_by_words(documents: Sequence[str]) -> Ranking:
    return _Words(documents)


class _Words:
    def __init__(self, documents: Sequence[str]) -> None:
        import bm25s

        logging.getLogger("bm25s").setLevel(logging.WARNING)  # it tells each step otherwise
        self._tokenize = bm25s.tokenize
        self._index = bm25s.BM25()
        self._index.index(bm25s.tokenize(list(documents), show_progress=False), show_progress=False)

    def best(self, query: str, k: int) -> list[int]:
        words = self._tokenize([query], return_ids=False, show_progress=False)[0]
        known = [word for word in words if word in self._index.vocab_dict]
        if not known:
            return []
        scores = self._index.get_scores(known)
        order = np.argsort(-scores, kind="stable")[:k]
        return [int(place) for place in order if scores[place] > 0]
