"""What the index of a graph of MAG's shape costs: `python tests/bench/kg_mag.py [PART]`.

               build s   peak MB   index MB   open ms   search p50 ms   p95 ms
    csr     1173 (236)      1423       1361        35      25.7 (7.0)   83.5 (22.2)
    tantivy 1842 (357)      1710       1589        77      31.9 (9.3)   73.8 (16.9)

Wall time, CPU time in brackets, on 2 cores that 20 other processes shared. Synthetic: 1,872,968 nodes of four types, 700,244
of them papers with titles and abstracts, 19,919,698 rows in four relations; or a part of each, such as 0.1. The whole takes
10 GB on disk while it runs. The index is made in a process of its own; peak memory is that process's resident set, mapped
files included. Queries have 3 to 6 words of a random paper.
Not covered: the real MAG, whose words are more varied; scores (kg.py).
"""

import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.console import stdout
from dkgi.graph.export import NodeType, RelationType, SourceGraph, write_export
from dkgi.kg.index import open_index
from dkgi.kg.text import IndexSpec
from tests.bench.kg import percentiles, timed

NAMES, SUMMARY = ("title", "OriginalTitle", "DisplayName"), ("abstract",)
ENGINES: tuple[Literal["csr"], Literal["tantivy"]] = ("csr", "tantivy")
TYPES = {"author": 1_104_554, "institution": 8_701, "field_of_study": 59_469, "paper": 700_244}
ROWS = {"affiliated_with": 1_043_998, "cites": 9_719_714, "has_topic": 7_170_395, "writes": 1_985_591}
ENDS = {
    "affiliated_with": ("author", "institution"),
    "cites": ("paper", "paper"),
    "has_topic": ("paper", "field_of_study"),
    "writes": ("author", "paper"),
}
VOCABULARY = 1_000_000

CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from pathlib import Path
from dkgi.kg.index import open_index
from dkgi.kg.text import IndexSpec
open_index(Path(sys.argv[2]), IndexSpec(("title", "OriginalTitle", "DisplayName"), ("abstract",), sys.argv[4]), Path(sys.argv[3]))
"""


def words_stream(rng: np.random.Generator, n: int) -> list[str]:
    weights = 1 / np.arange(1, VOCABULARY + 1) ** 1.05
    places = np.searchsorted(np.cumsum(weights / weights.sum()), rng.random(n))
    spelled = np.array([f"w{number}" for number in range(VOCABULARY)], dtype=object)
    words: list[str] = spelled[np.minimum(places, VOCABULARY - 1)].tolist()
    return words


def records(rng: np.random.Generator, types: dict[str, int]) -> Iterator[tuple[int, dict[str, Any]]]:
    words = words_stream(rng, 8_000_000)
    cuts = rng.integers(0, len(words) - 400, size=sum(types.values())).tolist()
    sizes = rng.integers(100, 330, size=sum(types.values())).tolist()
    node = 0
    for number, (kind, count) in enumerate(types.items()):
        for _ in range(count):
            start, end = cuts[node], cuts[node] + sizes[node]
            if kind == "paper":
                title = " ".join(words[start - 12 : start])
                record = {"title": title, "abstract": " ".join(words[start:end]), "OriginalTitle": title.title()}
            else:
                record = {"DisplayName": " ".join(words[start : start + 3])}
            yield number, {"mag_id": 2_000_000_000 + node, "Rank": 18_000, "JournalId": -1, **record, "type": kind}
            node += 1


def graph(rng: np.random.Generator, part: float) -> SourceGraph:
    types = {kind: int(count * part) for kind, count in TYPES.items()}
    starts = dict(zip(types, np.cumsum([0, *types.values()]).tolist(), strict=False))
    edges = []
    for relation, rows in ROWS.items():
        ends = [
            starts[kind] + (rng.random(int(rows * part)) ** 2 * types[kind]).astype(np.int64) for kind in ENDS[relation]
        ]
        edges.append(np.stack(ends, axis=1))
    return SourceGraph(
        name="mag_shape",
        version="1",
        node_types=[NodeType(kind, kind, kind == "paper") for kind in TYPES],
        relation_types=[RelationType(name, name, [ends[0]], [ends[1]]) for name, ends in ENDS.items()],
        nodes=records(rng, types),
        edges=edges,
        notes=(),
        terms_of_use="Free.",
    )


def main() -> None:
    rng = np.random.default_rng(7)
    part = float(sys.argv[1]) if len(sys.argv) > 1 else 1.0
    with tempfile.TemporaryDirectory() as name:
        export, cache = Path(name) / "graphs" / "mag_shape-1", Path(name)
        wall, cpu, _ = timed(lambda: write_export(graph(rng, part), export))
        size = sum(path.stat().st_size for path in (export / "nodes").iterdir())
        print(f"export with {size / 1e9:.2f} GB of nodes written in {wall:.0f} s ({cpu:.0f} s CPU)")
        queries = words_stream(rng, 4_000)
        table = Table("engine", "build s", "peak MB", "index MB", "open ms", "search p50 ms", "p95 ms")
        for engine in ENGINES:
            start, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
            command = [sys.executable, "-c", CHILD, str(Path(__file__).parents[2]), str(export), str(cache), engine]
            subprocess.run(command, check=True)
            build, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
            cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
            opened, _, index = timed(partial(open_index, export, IndexSpec(NAMES, SUMMARY, engine), cache))
            folder = max(cache.glob("indexes/mag*"), key=lambda path: path.stat().st_mtime)
            disk = sum(path.stat().st_size for path in folder.rglob("*"))
            asked = [" ".join(queries[n : n + 3 + n % 4]) for n in range(0, 3_600, 6)]
            runs = [timed(partial(index.search, query, 20)) for query in asked]
            row = (
                f"{build:.0f} ({cpu:.0f})",
                f"{after.ru_maxrss / 1e3:.0f}",
                f"{disk / 1e6:.0f}",
                f"{1000 * opened:.0f}",
            )
            table.add_row(engine, *row, *percentiles(runs[100:]))
        stdout().print(table)


if __name__ == "__main__":
    main()
