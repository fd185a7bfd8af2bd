"""How long MLflow searches among 71,080 query runs, and whether a grid opens in a browser: `python tests/bench/mlflow_search.py`.

    seeded 10 cells, 71,080 query runs, 1 grid in 73 s: 1495 MB
    100 runs of one kind                                                     client      REST
    tags.`dkgi.kind` = 'query'                                               0.42 s    0.47 s
    tags.`dkgi.kind` = 'cell'                                                0.01 s    0.03 s
    tags.`dkgi.kind` = 'query' AND tags.`dkgi.cell` = '000000000000'         0.64 s    0.69 s
    chromium: the table of the grid: no error (5 s)

Each cell and its first query are logged as a run does it; the other queries are copies of that query's rows in MLflow's
own tables (runs, tags, metrics, latest_metrics), inserted by SQL with ids, numbers and times of their own. Their files
and traces are left out. Exit 1 where a page of 100 runs takes a second or a page of the browser shows an error.
Not covered: the time that the browser takes; a server on another database (docs/mlflow_server.md).
"""

import contextlib
import json
import os
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi import tracking, ui
from dkgi.tracking import run_table
from dkgi.types import QueryResult, Score, Step, Usage
from tests.tracking.servers import free_port

CELLS, QUERIES, PAGE, BOUND_S = 10, 7108, 100, 1.0
SPENT = Usage(input_fresh=12_000, cache_read=108_000, output=2_200, requests=10)
STEPS = [Step("user", "Which?", time=1000.0), Step("assistant", '{"node_ids": [17]}', time=1100.0, usage=SPENT)]
SCORES = [Score(hit, hit, hit, hit, hit, hit) for hit in (0.0, 1.0)]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        began = time.monotonic()
        cells = seed(runs)
        size = sum(file.stat().st_size for file in runs.glob("mlflow.db*")) / 1e6
        print(
            f"seeded {CELLS} cells, {CELLS * QUERIES:,} query runs, 1 grid in {time.monotonic() - began:.0f} s: {size:.0f} MB"
        )
        slow = search(runs, cells[0])
        faults = browse(runs)
    sys.exit(1 if slow or faults else 0)


def seed(runs: Path) -> list[str]:
    """A log of many finished cells, and a grid of them. Returns the ids of the cells."""
    cells = [f"{number:012x}" for number in range(CELLS)]
    path = runs / "steps.jsonl"
    path.write_text("{}\n")
    for number, cell in enumerate(cells):
        axes = {axis: axis for axis in tracking.AXES} | {"tools": f"policy_{number}", "dataset": "mag"}
        tracker = tracking.open(tracking.CellInfo(cell, axes, {"model": {"prices": None}}), runs, traces=False)
        result = QueryResult(
            cell, 0, 0, "mag", "test", False, "Which?", "scored", ("answered",), 0, "{}", (), SPENT, SPENT,
            0.003, 273.0, 10, 9, 0, 1000.0,
        )  # fmt: skip
        tracker.log(result, SCORES[number % 2], path, lambda: STEPS)
        tracker.finish({"hit_at_1": number / CELLS, "mag/hit_at_1": number / CELLS}, complete=True)
    with contextlib.closing(sqlite3.connect(runs / "mlflow.db")) as connection, connection:
        connection.execute("PRAGMA synchronous = OFF")
        for cell in cells:
            multiply(connection, cell)
    grid = tracking.open_grid(tracking.GridInfo("a_grid", cells), runs)
    links = grid.links()
    rows = [f"| [{cell}]({links[cell]}) | 0.5 |" for cell in cells]
    grid.finish(
        "\n".join(["| cell | H@1 |", "|---|---|", *rows]),
        [{"cell": cell, "H@1": 0.5} for cell in cells],
        note="",
        complete=True,
    )
    return cells


def multiply(connection: sqlite3.Connection, cell: str) -> None:
    """Copies of a cell's one query run, until it has all."""
    query = "SELECT run_uuid FROM tags WHERE key = 'dkgi.cell' AND value = ? INTERSECT SELECT run_uuid FROM tags WHERE key = 'dkgi.query'"
    ((original,),) = connection.execute(query, (cell,)).fetchall()
    copies = [(uuid.uuid4().hex, number) for number in range(1, QUERIES)]
    for table in ("runs", "tags", "metrics", "latest_metrics"):
        cursor = connection.execute(f"SELECT * FROM {table} WHERE run_uuid = ?", (original,))
        names = [column[0] for column in cursor.description]
        originals = [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
        rows = (tuple(copied(row, run, number).values()) for run, number in copies for row in originals)
        connection.executemany(f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})", rows)


def copied(row: dict[str, Any], run: str, number: int) -> dict[str, Any]:
    """A row of the first query as that of another."""
    changed: dict[str, Any] = {"run_uuid": run}
    if "start_time" in row:
        uri = row["artifact_uri"].replace(row["run_uuid"], run)
        changed |= {"name": f"mag:{number:05}", "start_time": row["start_time"] + 1000 * number, "artifact_uri": uri}
    if row.get("key") in ("dkgi.query", "mlflow.runName"):
        changed["value"] = str(number) if row["key"] == "dkgi.query" else f"mag:{number:05}"
    return row | changed


def search(runs: Path, cell: str) -> bool:
    """Time pages of runs, by the client and by the server's REST. Returns whether one was too slow."""
    client, experiment = tracking.connect(runs)
    filters = ["tags.`dkgi.kind` = 'query'", "tags.`dkgi.kind` = 'cell'", "tags.`dkgi.kind` = 'grid'"]
    filters += [
        f"tags.`dkgi.kind` = 'query' AND tags.`dkgi.cell` = '{cell}'",
        "tags.`dkgi.kind` = 'query' AND metrics.hit_at_1 < 1",
    ]
    filters += [json.loads(run_table.state("tags.`dkgi.grid.a_grid` = 'yes'"))["searchFilter"]]
    slow = False
    with server(runs) as address:
        print(f"{PAGE} runs of one kind{'client':>68}{'REST':>10}")
        for condition in filters:
            body = {"experiment_ids": [experiment], "filter": condition, "max_results": PAGE}
            request = urllib.request.Request(
                f"{address}/api/2.0/mlflow/runs/search", json.dumps(body).encode(), {"Content-Type": "application/json"}
            )
            times = [
                seconds(partial(client.search_runs, [experiment], condition, max_results=PAGE)),
                seconds(partial(fetch, request)),
            ]
            slow = slow or max(times) >= BOUND_S
            print(f"{condition:<78}{times[0]:6.2f} s{times[1]:8.2f} s")
    return slow


def fetch(request: urllib.request.Request) -> None:
    with urllib.request.urlopen(request, timeout=300) as reply:
        reply.read()


def seconds(action: Callable[[], object]) -> float:
    """The median of five, after one that fills the caches."""
    taken = []
    for _ in range(6):
        began = time.monotonic()
        action()
        taken.append(time.monotonic() - began)
    return statistics.median(taken[1:])


@contextlib.contextmanager
def server(runs: Path) -> Iterator[str]:
    """MLflow's UI over the runs."""
    port = free_port()
    environment = os.environ | {"DKGI_RUNS": str(runs), "PYTHONPATH": str(Path(ui.__file__).parents[1])}
    command = [sys.executable, "-m", "dkgi.ui", "--port", str(port)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        address, deadline = f"http://127.0.0.1:{port}", time.monotonic() + 180
        while True:
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/health", timeout=10):
                break
            if time.monotonic() > deadline:
                raise TimeoutError(f"{address} does not answer")
            time.sleep(0.2)
        yield address
    finally:
        process.terminate()
        process.wait(timeout=60)


def browse(runs: Path) -> bool:
    """Open the pages of the grid in headless Chromium. Returns whether one shows an error or not what it should."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if not browser:
        print("NOT CHECKED: no Chromium here, so no page was opened")
        return False
    client, experiment = tracking.connect(runs)
    cells = [run.info.run_id for run in client.search_runs([experiment], "tags.`dkgi.kind` = 'cell'")]
    (grid,) = client.search_runs([experiment], "tags.`dkgi.kind` = 'grid'")
    key = run_table.grid_key("a_grid")
    pages = {
        "the table of the grid": (run_table.table_link(experiment, key), "policy_9"),
        "its charts": (run_table.table_link(experiment, key, charts=True), "mag/hit_at_1"),
        "the comparison of its runs": (f"#/compare-runs?runs={quote(json.dumps(cells))}&experiments={quote(json.dumps([experiment]))}", "Comparing 10 Runs"),
        "the run of the grid": (run_table.run_link(experiment, grid.info.run_id), "table of its cells"),
    }  # fmt: skip
    faults = False
    with server(runs) as address, tempfile.TemporaryDirectory() as profile:
        for name, (link, expected) in pages.items():
            command = [
                browser,
                "--headless=new",
                "--no-sandbox",
                "--disable-gpu",
                "--window-size=1500,900",
                f"--user-data-dir={profile}",
            ]
            command += [
                "--disable-background-networking",
                "--virtual-time-budget=60000",
                "--timeout=60000",
                "--dump-dom",
                f"{address}/{link}",
            ]
            began = time.monotonic()
            page = subprocess.run(command, capture_output=True, text=True, timeout=300).stdout
            wrong = expected not in page or "Something went wrong" in page or "error-fallback" in page
            faults = faults or wrong
            print(f"chromium: {name}: {'AN ERROR' if wrong else 'no error'} ({time.monotonic() - began:.0f} s)")
    return faults


if __name__ == "__main__":
    main()
