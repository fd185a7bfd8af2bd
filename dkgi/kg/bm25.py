"""BM25 over our own arrays: exact, the same for the same export, ties by node ID.

    score(q, d) = sum over the words of q of ln(1 + (N - n + 0.5) / (n + 0.5)) * f * (k1 + 1) / (f + k1 * (1 - b + b * |d| / avg))

N nodes, n of them with the word, f times in d; k1 1.2, b 0.75 (Robertson's formula with Lucene's idf). A word counts as
often as the query has it.

>>> Bm25(folder).best(["ataxia", "gait"], 2)                               # doctest: +SKIP
[(11, 18.93), (1402, 17.2)]

Words that weigh most come first. As soon as those left cannot lift a new node among the first k, they are added to the
nodes that can still get there and to no others: the same scores, without the long lists of common words.
Not covered: texts (text.py); changes of an index.
"""

import os
import threading
from array import array
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import NamedTuple

import numpy as np

from dkgi.kg.arrays import Array, GroupWriter, Texts, load, run_starts, save, save_texts

K1, B = 1.2, 0.75
PARAMETERS = {"k1": K1, "b": B, "idf": "ln(1 + (N - n + 0.5) / (n + 0.5))", "ties": "by node ID"}

RUN_WORDS = 4_000_000
"""Words that a builder keeps in memory."""

BLOCK = 128
"""Nodes of which only the best one counts when a bound for the k-th score is taken."""


class Bm25Writer:
    """Takes the words of node 0, 1, 2, ... and writes the index into `folder`."""

    def __init__(self, folder: Path, run_words: int = RUN_WORDS) -> None:
        self._folder, self._run_words = folder, run_words
        self._postings = GroupWriter(folder, "postings", {"node": np.int32, "times": np.uint32})
        self._numbers: defaultdict[str, int] = defaultdict(count().__next__)
        self._words, self._lengths, self._written = array("i"), array("i"), 0

    def add(self, words: Sequence[str]) -> None:
        self._words.extend(map(self._numbers.__getitem__, words))
        self._lengths.append(len(words))
        if len(self._words) >= self._run_words:
            self._flush()

    def _flush(self) -> None:
        lengths = np.frombuffer(self._lengths, dtype=np.int32)[self._written :]
        nodes = np.repeat(np.arange(self._written, self._written + len(lengths)), lengths)
        keys = np.frombuffer(self._words, dtype=np.int32).astype(np.int64) << 32 | nodes
        keys.sort()
        firsts = run_starts(keys)
        times = np.diff(firsts, append=len(keys))
        keys = keys[firsts]
        if len(keys):
            self._postings.add(keys >> 32, keys & 0xFFFFFFFF, times)
        self._words, self._written = array("i"), len(self._lengths)

    def write(self) -> None:
        self._flush()
        words = sorted(self._numbers)
        order = np.fromiter(map(self._numbers.__getitem__, words), dtype=np.int64, count=len(words))
        save_texts(self._folder, "words", (word.encode() for word in words))
        self._postings.write(len(words), order)
        lengths = np.frombuffer(self._lengths, dtype=np.int32)
        mean = lengths.sum() / max(len(lengths), 1)
        save(self._folder, "norms", K1 * (1 - B + B * lengths / (mean or 1.0)))
        save(self._folder, "bounds", _bounds(self._folder))


def _bounds(folder: Path) -> Array:
    """[words] the most that f / (f + ...) comes to for each word."""
    starts, nodes, times, norms = (
        load(folder, n) for n in ("postings.starts", "postings.node", "postings.times", "norms")
    )
    bounds = np.zeros(len(starts) - 1)
    first = 0
    while first < len(bounds):
        last = max(int(np.searchsorted(starts, starts[first] + RUN_WORDS, side="right")) - 1, first + 1)
        part = slice(int(starts[first]), int(starts[last]))
        bounds[first:last] = np.maximum.reduceat(
            _saturation(times[part], norms[nodes[part]]), starts[first:last] - starts[first]
        )
        first = last
    return bounds


def _saturation(times: Array, norms: Array) -> Array:
    share: Array = times / (times + norms)
    return share


class _Term(NamedTuple):
    """A word of a query: its postings, its weight, and the most that it adds to a score."""

    postings: slice
    weight: float
    bound: float


class Bm25:
    """The index in `folder`. Thread-safe: as many searches run at once as there are processors, the others wait."""

    def __init__(self, folder: Path) -> None:
        self._words = Texts(folder, "words")
        self._starts, self._nodes, self._times = (load(folder, f"postings.{n}") for n in ("starts", "node", "times"))
        self._norms, self._bounds = load(folder, "norms"), load(folder, "bounds")
        # A search takes 8 bytes a node while it runs: of a million nodes, 64 at once would take half a gigabyte.
        self._turns = threading.BoundedSemaphore(os.cpu_count() or 1)

    def nodes_with(self, word: str) -> Array:
        """[n] the nodes whose text has the word, sorted."""
        place = self._place(word)
        return self._nodes[:0] if place is None else self._nodes[self._starts[place] : self._starts[place + 1]]

    def best(self, words: Sequence[str], k: int) -> list[tuple[int, float]]:
        """At most k nodes with their scores, best first; nodes without any of the words are never among them."""
        with self._turns:
            return self._best(words, k)

    def _best(self, words: Sequence[str], k: int) -> list[tuple[int, float]]:
        terms = sorted(self._terms(words), key=lambda term: -term.bound)
        if not terms:
            return []
        # What the words after each one can add at most. Rounding must not make it look smaller than it is.
        rests = (np.append(np.cumsum([term.bound for term in terms[:0:-1]])[::-1], 0.0) * (1 + 1e-9)).tolist()
        scores = np.zeros(-(-len(self._norms) // BLOCK) * BLOCK)
        added = 0
        for term, rest in zip(terms, rests, strict=True):
            nodes = self._nodes[term.postings]
            scores[nodes] += self._scores(term, nodes)
            added += 1
            if _is_long(terms[added:], scores) and _floor(scores, k) > rest:
                break
        near = np.flatnonzero(scores >= max(_floor(scores, k) - rests[added - 1], np.finfo(float).tiny)).astype(
            np.int32
        )
        totals = scores[near]
        for term, rest in zip(terms[added:], rests[added:], strict=True):
            totals += self._scores_among(term, near)
            if len(near) > k:
                kept = totals >= np.partition(totals, -k)[-k] - rest
                near, totals = near[kept], totals[kept]
        order = np.lexsort((near, -totals))[:k]
        return list(zip(near[order].tolist(), totals[order].tolist(), strict=True))

    def _terms(self, words: Sequence[str]) -> list[_Term]:
        terms = []
        for word, times in Counter(words).items():
            if (place := self._place(word)) is not None:
                start, end = self._starts[place : place + 2].tolist()
                idf = np.log1p((len(self._norms) - (end - start) + 0.5) / (end - start + 0.5))
                weight = float(times * idf * (K1 + 1))
                terms.append(_Term(slice(start, end), weight, weight * float(self._bounds[place])))
        return terms

    def _place(self, word: str) -> int | None:
        encoded = word.encode()
        place = bisect_left(self._words, encoded)
        return place if place < len(self._words) and self._words[place] == encoded else None

    def _scores(self, term: _Term, nodes: Array) -> Array:
        return term.weight * _saturation(self._times[term.postings], self._norms[nodes])

    def _scores_among(self, term: _Term, nodes: Array) -> Array:
        """[nodes] what the term adds to each of these sorted nodes, 0 where its text lacks the word."""
        having = self._nodes[term.postings]
        places = np.minimum(np.searchsorted(having, nodes), len(having) - 1)
        times = np.where(having[places] == nodes, self._times[term.postings][places], 0)
        return term.weight * _saturation(times, self._norms[nodes])


def _is_long(terms: Sequence[_Term], scores: Array) -> bool:
    """Whether adding the next term to all nodes costs more than to look if that is needed."""
    return bool(terms) and terms[0].postings.stop - terms[0].postings.start > len(scores) // 64


def _floor(scores: Array, k: int) -> float:
    """A score that at least k nodes reach, found without sorting them all; 0 where fewer than k have any."""
    heads = scores.reshape(-1, BLOCK).max(axis=1)
    if len(heads) < k:
        heads = scores
    return float(np.partition(heads, len(heads) - k)[len(heads) - k]) if len(heads) >= k else 0.0
