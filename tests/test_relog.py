"""`python -m dkgi.relog` makes from the cells' folders what the runs had logged."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from dkgi import relog, tracking
from dkgi.analysis.summary import scored_results, summarise
from dkgi.collect import Collector
from dkgi.locks import Lock
from dkgi.store import Cell, Journal, open_cell
from dkgi.types import Attempt, SetupError, Step, Usage
from tests.results import query_result

AXES = {name: name for name in tracking.AXES} | {"dataset": "hpo"}
SPENT = Usage(input_fresh=1000, cache_read=500, output=50, requests=1)


@pytest.fixture
def runs(tmp_path: Path, mlflow_tables: Path) -> Path:
    (tmp_path / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    return tmp_path


def run_cell(runs: Path, cell_id: str, tracker: tracking.Tracker | None = None) -> Cell:
    """A finished cell of three queries: right, wrong, failed."""
    config = {"model": {"name": "model", "prices": {"input": 1.0, "cached_input": 0.1, "cache_write": 1, "output": 5}}}
    manifest = {"cell": cell_id, "axes": AXES, "config": config, "git_commit": "abc"}
    cell = open_cell(runs, cell_id, manifest)
    info = tracking.CellInfo(cell_id, AXES, config, "abc")
    tracker = tracker or tracking.open(info, runs, traces=True)
    collector = Collector(cell, {0: {1}, 1: {2}, 2: {3}}, {"the canary": "canary"}, tracker)
    for number in range(3):
        with Journal(cell, number, 0) as journal:
            journal.step(1, Step("user", "Which?"))
            journal.step(1, Step("assistant", '{"node_ids": [1]}', usage=SPENT))
            journal.end(1, Attempt("answered", '{"node_ids": [1]}', SPENT, 2.0, 1, 0, 0))
        right = number < 2
        result = query_result(
            number,
            cell=cell_id,
            outcome="scored" if right else "failed_agent",
            stops=("answered" if right else "time_limit",),
            usage=SPENT,
            cost_usd=0.0013,
            started=1000.0 + number,
        )
        cell.write(result)
        collector.take(result)
    tracker.finish(summarise(collector.scored).metrics("hpo"), complete=True)
    return cell


def logged(runs: Path) -> list[Any]:
    """All that a reader of MLflow sees, without the ids and the time at which it was written."""
    client, experiment = tracking.connect(runs)
    seen = []
    for run in client.search_runs([experiment]):
        tags = {name: value for name, value in run.data.tags.items() if name != "mlflow.parentRunId"}
        files = sorted(path.name for path in Path(urlsplit(run.info.artifact_uri).path).iterdir())
        started = run.info.start_time if tags["dkgi.kind"] == "query" else None
        seen.append([tags, run.data.metrics, run.data.params, run.info.status, started, files])
    spans = sorted(
        (trace.info.request_time, [span.name for span in trace.data.spans], trace.info.cost)
        for trace in client.search_traces(locations=[experiment])
    )
    return [sorted(seen, key=str), spans]


def command(runs: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"DKGI_RUNS": str(runs), "PYTHONPATH": str(Path(relog.__file__).parents[1])}
    argv = [sys.executable, "-m", "dkgi.relog", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, timeout=120, cwd="/")


def test_a_cell_is_logged_again_as_it_was(runs: Path) -> None:
    cell = run_cell(runs, "5d1f0c9a7e42")
    before = logged(runs)
    assert len(before[0]) == 4
    assert len(before[1]) == 3
    client, experiment = tracking.connect(runs)
    for run in client.search_runs([experiment]):
        client.set_tag(run.info.run_id, "dkgi.stop", "spoilt")
    lost = client.create_run(experiment, tags=client.get_run(run.info.run_id).data.tags | {"dkgi.query": "9"})
    (runs / "artifacts" / lost.info.run_id).mkdir()
    assert relog.relog(cell, runs, traces=True)
    assert logged(runs) == before
    assert len(list((runs / "artifacts").iterdir())) == 4


def test_the_command_makes_a_lost_database_again_for_all_cells(runs: Path) -> None:
    (runs / "mlflow.db").unlink()
    run_cell(runs, "5d1f0c9a7e42", tracking.NullTracker())
    run_cell(runs, "c0ffee000000", tracking.NullTracker())
    done = command(runs)
    assert done.stdout == ""
    assert done.stderr == "5d1f0c9a7e42: 3 queries logged\nc0ffee000000: 3 queries logged\n"
    assert done.returncode == 0
    found, traces = logged(runs)
    assert len(found) == 8
    assert len(traces) == 6


@pytest.mark.parametrize(("cells", "told"), [([], "no cell is there"), (["5d1f"], "5d1f: no cell in")])
def test_the_command_says_in_one_line_that_there_is_no_cell(tmp_path: Path, cells: list[str], told: str) -> None:
    done = command(tmp_path, *cells)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert told in done.stderr


def test_other_cells_are_left_alone_and_traces_left_out_if_asked(runs: Path) -> None:
    first, second = run_cell(runs, "5d1f0c9a7e42"), run_cell(runs, "c0ffee000000")
    client, experiment = tracking.connect(runs)
    kept = {run.info.run_id for run in client.search_runs([experiment], f"tags.`dkgi.cell` = '{second.id}'")}
    relog.relog(first, runs, traces=False)
    found, traces = logged(runs)
    assert len(found) == 8
    assert len(traces) == 3
    assert kept <= {run.info.run_id for run in client.search_runs([experiment])}


def test_a_cell_at_work_is_refused_and_keeps_its_log(runs: Path) -> None:
    cell = run_cell(runs, "5d1f0c9a7e42")
    with Lock(cell), pytest.raises(SetupError, match="is being run"):
        relog.relog(cell, runs, traces=True)
    assert len(logged(runs)[0]) == 4


def test_a_query_that_cannot_be_logged_is_told_by_the_return_value(runs: Path) -> None:
    cell = run_cell(runs, "5d1f0c9a7e42")
    (cell.query_folder(1, 0) / "steps.jsonl").unlink()
    assert not relog.relog(cell, runs, traces=False)


def test_scores_are_read_without_gold_and_past_a_torn_line(runs: Path) -> None:
    cell = run_cell(runs, "5d1f0c9a7e42", tracking.NullTracker())
    assert [score.hit_at_1 for _, score in scored_results(cell)] == [1.0, 0.0, 0.0]
    path = cell.folder / "scores.jsonl"
    path.write_bytes(path.read_bytes()[:-9])
    assert [result.number for result, _ in scored_results(cell)] == [0, 1]
    path.unlink()
    assert scored_results(cell) == []
