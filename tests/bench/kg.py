"""Search and neighbours at a million nodes, or as many as named: `python tests/bench/kg.py [NODES]`.

    1,000,000 nodes   build s    MB   open ms   p50 ms      p95 ms        unique MB
    csr               45 (43)   260        6    2.7 (2.7)   8.8 (8.8)            31
    tantivy           64 (62)   310       12    9.6 (9.6)   19.4 (19.4)          22

Wall time, CPU time in brackets, on 2 cores with little else to do; tantivy's MB include the arrays, which it needs as well. So csr
is the default at every size. The first 20 nodes agree to 0.997; the hub takes 7 ms.

A synthetic graph: nodes of about 30 words (Zipf over 200,000), queries
of 3 to 6 words of a random node, k 20.
Scores of 1,000 queries are compared with a plain evaluation of the formula, the first 20 nodes of both engines with each
other; a hub has 20,000 neighbours. Unique memory is that of a second process that answered the same queries.
Not covered: texts of real length (kg_mag.py); many clients at once.
"""

import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.console import stdout
from dkgi.graph.export import NodeType, RelationType, SourceGraph, write_export
from dkgi.kg.index import Index, open_index
from dkgi.kg.text import IndexSpec

NODES, VOCABULARY, HUB = 1_000_000, 200_000, 20_000
ENGINES: tuple[Literal["csr"], Literal["tantivy"]] = ("csr", "tantivy")
K = 20

CHILD = """
import sys, psutil
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from dkgi.kg.index import open_index
from dkgi.kg.text import IndexSpec
index = open_index(Path(sys.argv[2]), IndexSpec(("name",), ("text",), sys.argv[4]), Path(sys.argv[3]))
for line in sys.stdin:
    index.search(line, 20)
print(psutil.Process().memory_full_info().uss / 1e6)
"""


def corpus(rng: np.random.Generator, nodes: int) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Word numbers of all nodes in a row, and how many each node has."""
    lengths = rng.integers(15, 46, size=nodes)
    weights = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    draws = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(int(lengths.sum())))
    return np.minimum(draws, VOCABULARY - 1), lengths


def graph(words: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> SourceGraph:
    spelled = np.array([f"w{number}" for number in range(VOCABULARY)], dtype=object)
    ends = np.cumsum(lengths)

    def nodes() -> Iterator[tuple[int, dict[str, str]]]:
        for end, length in zip(ends.tolist(), lengths.tolist(), strict=True):
            text = spelled[words[end - length : end]].tolist()
            yield 0, {"name": " ".join(text[:3]), "text": " ".join(text[3:])}

    hub = np.stack([np.zeros(HUB, dtype=np.int64), np.arange(1, HUB + 1)], axis=1)
    return SourceGraph(
        name="many",
        version="1",
        node_types=(NodeType("thing", "A thing.", True),),
        relation_types=(RelationType("has", "The source has the target.", ["thing"], ["thing"]),),
        nodes=nodes(),
        edges=[hub],
        notes=(),
        terms_of_use="Free.",
    )


class Plain:
    """The formula, word by word over all nodes, and all scores sorted."""

    def __init__(self, words: np.ndarray[Any, Any], lengths: np.ndarray[Any, Any]) -> None:
        self.order = np.argsort(words, kind="stable")
        self.sorted = words[self.order]
        self.node_of = np.repeat(np.arange(len(lengths)), lengths)
        self.norms = 1.2 * (0.25 + 0.75 * lengths / lengths.mean())

    def best(self, query: list[int]) -> tuple[list[int], list[float]]:
        nodes = len(self.norms)
        scores = np.zeros(nodes)
        for word in query:
            first, last = np.searchsorted(self.sorted, [word, word + 1])
            times = np.bincount(self.node_of[self.order[first:last]], minlength=nodes)
            having = np.count_nonzero(times)
            scores += np.log(1 + (nodes - having + 0.5) / (having + 0.5)) * times * 2.2 / (times + self.norms)
        reached = np.partition(scores, -K)[-K]
        near = np.flatnonzero((scores >= reached - 1e-9) & (scores > 0))
        order = near[np.lexsort((near, -np.round(scores[near], 9)))][:K]
        return order.tolist(), scores[order].tolist()


def timed(work: Callable[[], Any]) -> tuple[float, float, Any]:
    """Wall and CPU seconds of this thread, and what came of it."""
    wall, cpu = time.perf_counter(), time.thread_time()
    result = work()
    return time.perf_counter() - wall, time.thread_time() - cpu, result


def percentiles(runs: list[tuple[float, float, Any]]) -> list[str]:
    """p50 and p95, each `wall (CPU)` in milliseconds."""
    walls, cpus = (statistics.quantiles([1000 * run[part] for run in runs], n=20) for part in (0, 1))
    return [f"{walls[place]:.1f} ({cpus[place]:.1f})" for place in (9, 18)]


def unique_memory(export: Path, cache: Path, engine: str, queries: list[str]) -> float:
    command = [sys.executable, "-c", CHILD, str(Path(__file__).parents[2]), str(export), str(cache), engine]
    return float(subprocess.run(command, input="\n".join(queries), capture_output=True, text=True, check=True).stdout)


def main() -> None:
    rng = np.random.default_rng(7)
    count = int(sys.argv[1]) if len(sys.argv) > 1 else NODES
    words, lengths = corpus(rng, count)
    starts = np.cumsum(lengths) - lengths
    numbers = []
    for node in rng.integers(0, count, size=1000).tolist():
        drawn = rng.choice(words[starts[node] : starts[node] + lengths[node]], size=int(rng.integers(3, 7)))
        numbers.append(drawn.tolist())
    queries = [" ".join(f"w{number}" for number in query) for query in numbers]
    with tempfile.TemporaryDirectory() as name:
        export, cache = Path(name) / "graphs" / "many-1", Path(name)
        wall, _, _ = timed(lambda: write_export(graph(words, lengths), export))
        print(f"export written in {wall:.0f} s")
        table = Table("engine", "build s", "MB", "open ms", "p50 ms", "p95 ms", "unique MB", title=f"{count:,} nodes")
        found: dict[str, list[list[int]]] = {}
        indexes: dict[str, Index] = {}
        for engine in ENGINES:
            before = set(cache.glob("indexes/*/**/*"))
            opening = partial(open_index, export, IndexSpec(("name",), ("text",), engine), cache)
            build, build_cpu, _ = timed(opening)
            size = sum(p.stat().st_size for p in cache.glob("indexes/*/**/*") if p.is_file() and p not in before)
            opened, _, index = timed(opening)
            indexes[engine] = index
            for query in queries[:50]:
                index.search(query, K)
            runs = [timed(partial(index.search, query, K)) for query in queries]
            found[engine] = [[hit.node_id for hit in hits] for _, _, hits in runs]
            memory = unique_memory(export, cache, engine, queries[:200])
            row = f"{build:.0f} ({build_cpu:.0f})", f"{size / 1e6:.0f}", f"{1000 * opened:.0f}", *percentiles(runs)
            table.add_row(engine, *row, f"{memory:.0f}")
        stdout().print(table)
        both = zip(found["csr"], found["tantivy"], strict=True)
        overlap = statistics.fmean(len(set(a) & set(b)) / max(len(a), 1) for a, b in both)
        print(f"first {K} of tantivy among the first {K} of csr: {overlap:.3f}")
        compare(Plain(words, lengths), indexes["csr"], numbers, queries)
        hub = [timed(partial(indexes["csr"].neighbors, 0, query="w7 w300 w1999", k=K)) for _ in range(100)]
        print(
            f"neighbours of a hub of {HUB:,} with a query: p50 {percentiles(hub)[0]} ms, p95 {percentiles(hub)[1]} ms"
        )


def compare(plain: Plain, index: Index, numbers: list[list[int]], queries: list[str]) -> None:
    worst, other = 0.0, 0
    for number, query in zip(numbers, queries, strict=True):
        nodes, scores = plain.best(number)
        hits = index.search(query, K)
        worst = max(worst, *(abs(hit.score - score) for hit, score in zip(hits, scores, strict=True)))
        other += [hit.node_id for hit in hits] != nodes
    print(
        f"{len(queries)} queries against the plain formula: scores differ by {worst:.1e} at most, {other} lists differ"
    )


if __name__ == "__main__":
    main()
