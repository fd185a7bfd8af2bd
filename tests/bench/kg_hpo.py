"""Search on hpo beside rank_bm25: `python tests/bench/kg_hpo.py`.

    engine      p50 CPU ms   times as fast
    rank_bm25       265.14               1
    csr               1.85             143
    tantivy           0.72             366

All test questions of the shipped configuration as queries, the first 20 of all nodes. rank_bm25 0.2.2 (BM25Okapi, k1 1.2) gets
the same words of the same texts; CPU time, medians, one engine after the other for each query.
Not covered: how good the results are (bm25_floor.py).
"""

import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import rank_bm25
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.config import load
from dkgi.console import stdout
from dkgi.dataset import prepare
from dkgi.graph.read import read_nodes
from dkgi.kg.index import open_index
from dkgi.kg.text import IndexSpec, name_and_summary, words_of
from dkgi.paths import cache_dir
from tests.bench.kg import ENGINES, timed

K = 20


def main() -> None:
    spec = load(["dataset=hpo"]).dataset
    dataset = prepare(spec, cache_dir())
    queries = [query.text for query in dataset.queries("test")]
    texts = [words_of(" ".join(name_and_summary(n.attributes, spec.index))) for n in read_nodes(dataset.export)]
    okapi = rank_bm25.BM25Okapi(texts, k1=1.2, b=0.75)
    searches: dict[str, Callable[[str], object]] = {
        "rank_bm25": lambda query: np.argsort(-okapi.get_scores(words_of(query)))[:K]
    }
    for engine in ENGINES:
        index = open_index(dataset.export, IndexSpec(spec.index.names, spec.index.summary, engine), cache_dir())
        searches[engine] = partial(index.search, k=K)
    spent: dict[str, list[float]] = {name: [] for name in searches}
    for query in queries:
        for name, search in searches.items():
            spent[name].append(1000 * timed(partial(search, query))[1])
    table = Table("engine", "p50 CPU ms", "times as fast", title=f"{len(queries)} questions, {len(texts):,} nodes")
    slowest = statistics.median(spent["rank_bm25"])
    for name, times in spent.items():
        middle = statistics.median(times)
        table.add_row(name, f"{middle:.2f}", f"{slowest / middle:.0f}")
    stdout().print(table)


if __name__ == "__main__":
    main()
