"""Graph calls over the socket: `python tests/bench/graph_server.py [CLIENTS] [CALLS]`, on hpo, against the same calls in process.

Clients are threads that call `search` with words of test questions, each call on a connection of its own as harnesses make
them. The slowest client against the fastest says whether one was starved.
Not covered: the index itself (kg.py).
"""

import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.config import load
from dkgi.console import stdout
from dkgi.dataset import prepare
from dkgi.kg.index import open_index
from dkgi.kg.server import GraphServer
from dkgi.kg.tools import graph_tools
from dkgi.paths import cache_dir
from dkgi.types import Tool


def measure(tool: Tool, texts: list[str], clients: int) -> tuple[list[float], list[float]]:
    """Seconds of each call, and seconds that each client took in all."""
    calls: list[list[float]] = [[] for _ in range(clients)]

    def work(number: int) -> None:
        for place in range(len(texts)):
            started = time.perf_counter()
            output = tool.call({"query": texts[(place + number) % len(texts)], "k": 5}, timeout_s=120)
            calls[number].append(time.perf_counter() - started)
            if output.is_error:
                raise RuntimeError(output.text)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [second for own in calls for second in own], [sum(own) for own in calls]


def main() -> None:
    clients, count = (int(value) for value in [*sys.argv[1:], "64", "20"][:2])
    spec = load(["dataset=hpo"]).dataset
    dataset = prepare(spec, cache_dir())
    tools = graph_tools(open_index(dataset.export, spec.index, cache_dir()))
    texts = [" ".join(query.text.split()[:6]) for query in dataset.queries("test")[:count]]
    table = Table("search", "clients", "calls", "p50 ms", "p95 ms", "slowest client / fastest")
    with (
        tempfile.TemporaryDirectory() as folder,
        GraphServer(Path(folder), tools, "") as server,
        server.attempt(("search",), (), Path(folder) / "calls.jsonl") as seat,
    ):
        for name, tool in (("in process", tools["search"]), ("over the socket", seat.tools["search"])):
            for number in (1, clients):
                seconds, totals = measure(tool, texts, number)
                p50, p95 = (1000 * np.percentile(seconds, part) for part in (50, 95))
                row = (f"{p50:.2f}", f"{p95:.2f}", f"{max(totals) / min(totals):.2f}")
                table.add_row(name, str(number), str(len(seconds)), *row)
    stdout().print(table)


if __name__ == "__main__":
    main()
