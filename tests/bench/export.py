"""What building and exporting hpo costs: `python tests/bench/export.py`.

    step                            wall s   CPU s
    plain orjson dump, one file     0.149   0.137
    write_nodes, four files         0.174   0.144
    ratio write_nodes / plain        1.17    1.05

Medians of interleaved repeats within one run; both sides write the same records to the same file system, without fsync.
Not covered: reading the source's files from a cold disk.
"""

import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.graph import manifest
from dkgi.graph.export import SourceGraph, write_export, write_nodes
from dkgi.graph.sources import hpo
from dkgi.graph.views import make_view

REPEATS = 15
Seconds = tuple[float, float]
"""Wall, CPU."""


def timed(work: Callable[[], object]) -> Seconds:
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu


def plain_dump(graph: SourceGraph, path: Path) -> None:
    """The same records as write_nodes writes, in the plainest way."""
    with path.open("wb") as file:
        for node_id, (type_id, attributes) in enumerate(graph.nodes):
            node_type = graph.node_types[type_id]
            record = {
                "node_id": node_id,
                "node_type": node_type.name,
                "is_candidate": node_type.candidate,
                "attributes": attributes,
            }
            file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))


def median(runs: list[Seconds]) -> Seconds:
    return statistics.median(wall for wall, _ in runs), statistics.median(cpu for _, cpu in runs)


def main() -> None:
    built: list[SourceGraph] = []
    rows = {"build the graph": timed(lambda: built.append(hpo.build()))}
    (graph,) = built
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        plain: list[Seconds] = []
        ours: list[Seconds] = []
        for repeat in range(REPEATS):
            nodes = folder / f"nodes{repeat}"
            nodes.mkdir()
            plain.append(timed(partial(plain_dump, graph, nodes / "plain.jsonl")))
            ours.append(timed(partial(write_nodes, graph, nodes)))
        rows["plain orjson dump, one file"] = median(plain)
        rows["write_nodes, four files"] = median(ours)
        export = folder / "hpo"
        rows["write_export: all, checked, synced"] = timed(lambda: write_export(graph, export))
        rows["manifest.verify"] = timed(lambda: manifest.verify(export))
        rows["manifest.verify, full"] = timed(lambda: manifest.verify(export, full=True))
        rows["make_view"] = timed(lambda: make_view(export, folder / "view", graph=True, edges=False, tools_line=True))
    print(f"{'step':36}{'wall s':>8}{'CPU s':>8}")
    for step, (wall, cpu) in rows.items():
        print(f"{step:36}{wall:8.3f}{cpu:8.3f}")
    print(
        f"{'ratio write_nodes / plain':36}{median(ours)[0] / median(plain)[0]:8.2f}{median(ours)[1] / median(plain)[1]:8.2f}"
    )
    print(f"peak RSS {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MiB")


if __name__ == "__main__":
    main()
