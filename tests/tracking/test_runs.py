"""Every query has exactly one run in MLflow, whatever fails or dies on the way."""

from __future__ import annotations

import os
import pickle
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from dkgi import tracking
from dkgi.types import Step

if TYPE_CHECKING:
    from tests.tracking.conftest import Log


def test_a_query_run_holds_the_fixed_tags_and_metrics(log: Log) -> None:
    log.write(log.open(), log.result())
    (run,) = log.found()
    (parent,) = log.found("cell")
    tags = {key: value for key, value in run.data.tags.items() if key.startswith("dkgi.")}
    assert tags == {
        "dkgi.kind": "query",
        "dkgi.cell": "5d1f0c9a7e42",
        "dkgi.query": "17",
        "dkgi.repeat": "0",
        "dkgi.dataset": "hpo",
        "dkgi.split": "test",
        "dkgi.harness": "native",
        "dkgi.tools": "full_dkgi",
        "dkgi.model": "luna",
        "dkgi.prompt": "final",
        "dkgi.sandbox": "nsjail",
        "dkgi.stop": "answered",
        "dkgi.outcome": "scored",
        "dkgi.usage": "complete",
    }
    assert run.data.tags["mlflow.parentRunId"] == parent.info.run_id
    assert run.data.metrics == {
        "hit_at_1": 1.0,
        "recall_at_20": 0.6667,
        "mrr": 0.5,
        "input_tokens": 2400.0,
        "cache_read_tokens": 900.0,
        "cache_write_tokens": 0.0,
        "output_tokens": 70.0,
        "reasoning_tokens": 10.0,
        "cost_usd": 0.000194,
        "wall_s": 5.2,
        "turns": 2.0,
        "tool_calls": 1.0,
        "tool_errors": 0.0,
        "graph_calls": 0.0,
        "attempts": 2.0,
    }
    assert (run.info.start_time, run.info.end_time, run.info.status) == (100_000, 105_250, "FINISHED")
    trajectory = Path(urlsplit(run.info.artifact_uri).path) / "trajectory.jsonl"
    assert trajectory.read_bytes() == log.steps_path.read_bytes()


def test_an_unknown_cost_is_no_metric(log: Log) -> None:
    log.write(log.open(), log.result(cost_usd=None))
    (run,) = log.found()
    assert "cost_usd" not in run.data.metrics


def test_the_cell_run_holds_figures_configuration_and_axes(log: Log) -> None:
    tracker = log.open()
    tracker.finish({"hit_at_1": 0.45678, "hpo/hit_at_1": 0.45678, "cost_usd_total": 0.1234567}, complete=True)
    (parent,) = log.found("cell")
    assert parent.info.status == "FINISHED"
    assert parent.info.run_name == "full_dkgi · luna · native · hpo · test"
    assert parent.data.metrics == {"hit_at_1": 0.4568, "hpo/hit_at_1": 0.4568, "cost_usd_total": 0.123457}
    assert parent.data.params["limits.attempts"] == "3"
    assert parent.data.params["tools.tools"] == '["bash", "read"]'
    assert parent.data.params["tools"] == parent.data.tags["dkgi.tools"] == "full_dkgi"
    assert "attempts: 3" in (Path(urlsplit(parent.info.artifact_uri).path) / "config.yaml").read_text()


def test_a_cell_that_is_opened_again_keeps_its_run_and_its_queries(log: Log) -> None:
    first = log.open()
    log.write(first, log.result(1), log.result(2))
    first.finish({"hit_at_1": 0.1}, complete=False)
    assert [run.info.status for run in log.found("cell")] == ["KILLED"]
    again = log.open()
    assert [run.info.status for run in log.found("cell")] == ["RUNNING"]
    assert again.has(log.result(1))
    assert not again.has(log.result(3))
    log.write(again, log.result(3))
    again.finish({"hit_at_1": 0.2}, complete=True)
    (parent,) = log.found("cell")
    assert parent.data.metrics["hit_at_1"] == 0.2
    assert [run.data.tags["dkgi.query"] for run in log.found()] == ["1", "2", "3"]


def test_two_cells_and_two_repeats_do_not_mix(log: Log) -> None:
    other = tracking.CellInfo("0ther0000000", log.cell.axes, log.cell.config)
    first, second = log.open(), log.open(cell=other)
    log.write(first, log.result(1, 0), log.result(1, 1))
    assert not second.has(log.result(1))
    assert not first.has(log.result(1, 2))
    assert len(log.found("cell")) == 2
    assert [run.info.run_name for run in log.found()] == ["hpo:00001", "hpo:00001 #1"]
    again = log.open()
    assert again.has(log.result(1, 0))
    assert again.has(log.result(1, 1))


def test_a_query_that_was_tried_again_replaces_its_run_files_and_trace(log: Log) -> None:
    tracker = log.open(traces=True)
    log.write(tracker, log.result(outcome="failed_infra", stops=("crashed",)))
    (old,) = log.found()
    again = log.result(started=200.0)
    assert not tracker.has(again)
    log.write(tracker, again)
    assert tracker.has(again)
    (new,) = log.found()
    assert new.data.tags["dkgi.outcome"] == "scored"
    assert [trace.info.trace_id for trace in log.traces()] == [f"tr-{new.info.run_id}"]
    assert not Path(urlsplit(old.info.artifact_uri).path).parent.exists()


def test_a_cell_that_is_logged_whole_is_recognised_without_loading_mlflow(log: Log) -> None:
    tracker = log.open()
    log.write(tracker, log.result(1), log.result(2, started=200.0))
    tracker.finish({"hit_at_1": 0.5}, complete=True)
    before = [(run.info.run_id, run.info.end_time, run.data.metrics) for run in [*log.found(), *log.found("cell")]]
    script = """
import pickle, sys
from dkgi import tracking
cell, runs, results = pickle.load(sys.stdin.buffer)
tracker = tracking.open(cell, runs, traces=True)
found = [tracker.has(result) for result in results]
tracker.finish({"hit_at_1": 0.0}, complete=True)
print(found, "mlflow" in sys.modules)
"""
    results = [log.result(1), log.result(2, started=200.0), log.result(2), log.result(3), log.result(1, 1)]
    environment = os.environ | {"PYTHONPATH": str(Path(tracking.__file__).parents[2])}
    task = pickle.dumps((log.cell, log.runs, results))
    done = subprocess.run([sys.executable, "-c", script], input=task, env=environment, capture_output=True, timeout=60)
    assert done.stdout.decode() == "[True, True, False, False, False] False\n"
    after = [(run.info.run_id, run.info.end_time, run.data.metrics) for run in [*log.found(), *log.found("cell")]]
    assert after == before


def test_an_unfinished_query_below_a_finished_cell_is_not_logged(log: Log) -> None:
    tracker = log.open()
    log.write(tracker, log.result(1), log.result(2))
    tracker.finish({}, complete=True)
    client, _ = tracking.connect(log.runs)
    client.update_run(log.found()[0].info.run_id, status="RUNNING")
    again = log.open()
    assert not again.has(log.result(1))
    assert again.has(log.result(2))


def test_a_cell_whose_run_was_cut_off_is_finished_though_all_queries_are_logged(log: Log) -> None:
    log.write(log.open(), log.result())
    again = log.open()
    assert again.has(log.result())
    again.finish({"hit_at_1": 1.0}, complete=True)
    (parent,) = log.found("cell")
    assert (parent.info.status, parent.data.metrics) == ("FINISHED", {"hit_at_1": 1.0})


# ------------------------------------------------------------------- failures


def test_a_failed_log_is_tried_again_at_the_end_and_told_once(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = log.open()
    steps = log.steps_path.rename(log.steps_path.with_name("moved"))
    log.write(tracker, *(log.result(number) for number in range(5)))
    assert capsys.readouterr().err.count("MLflow:") == 1
    assert not tracker.has(log.result(0))
    steps.rename(log.steps_path)
    tracker.finish({}, complete=True)
    assert capsys.readouterr().err == ""
    assert [(run.data.tags["dkgi.query"], run.info.status) for run in log.found()] == [
        (str(number), "FINISHED") for number in range(5)
    ]


def test_a_log_that_cannot_be_written_ends_no_experiment_and_names_the_way_out(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    tracker = log.open()
    (log.runs / "artifacts").rename(log.runs / "elsewhere")
    (log.runs / "artifacts").write_text("in the way")
    log.write(tracker, log.result(1), log.result(2))
    tracker.finish({"hit_at_1": 1.0}, complete=True)
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2
    assert "2 queries" in told[1]
    assert "python -m dkgi.relog 5d1f0c9a7e42" in told[1]
    assert not tracker.has(log.result(1))


def test_a_database_that_cannot_grow_is_told_in_lines_of_ours(log: Log, capfd: pytest.CaptureFixture[str]) -> None:
    tracker = log.open()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    # As a full disk: SQLite gets an error for each write.
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        log.write(tracker, log.result(1), log.result(2))
        tracker.finish({"hit_at_1": 1.0}, complete=True)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    told = capfd.readouterr().err.splitlines()
    assert [line.startswith("MLflow: ") and "OperationalError" in line for line in told] == [True, True]
    assert "python -m dkgi.relog 5d1f0c9a7e42" in told[1]


def test_a_stuck_log_is_not_tried_for_every_query(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = log.open()
    log.steps_path.unlink()
    log.write(tracker, *(log.result(number) for number in range(20)))
    assert len(log.found()) <= 3


def test_a_query_whose_logging_was_interrupted_is_logged_at_the_end(log: Log) -> None:
    calls = []

    def steps() -> Sequence[Step]:
        calls.append(1)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return log.steps()

    tracker = log.open(traces=True)
    with pytest.raises(KeyboardInterrupt):
        tracker.log(log.result(), log.score, log.steps_path, steps)
    tracker.finish({}, complete=False)
    (run,) = log.found()
    assert run.info.status == "FINISHED"
    assert len(log.traces()) == 1


# ------------------------------------------------------------------- kills

POINTS = {
    "before the run": ("create_run", 1),
    "before the metrics": ("log_batch", 1),
    "before the trajectory": ("copyfile", 1),
    "before the trace": ("start_trace", 1),
    "within the trace": ("log_spans", 1),
    "before the end": ("set_terminated", 1),
    "between two queries": ("query_tags", 2),
    "before the earlier trace goes": ("delete_traces", 1),
    "before the earlier files go": ("rmtree", 1),
    "before the earlier run goes": ("delete_run", 1),
}
"""Where the writing process dies: on entering a function for the n-th time."""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory, make_log: Callable[[Path], Log]) -> dict[str, Log]:
    """Logs of processes that died at each of the points, on the way from query 1 to query 2 to query 1 tried again."""
    logs = {name: make_log(tmp_path_factory.mktemp("killed")) for name in POINTS}
    log = next(iter(logs.values()))
    tries = [log.result(1), log.result(2), log.result(1, started=200.0)]
    points = [(*point, logs[name].runs) for name, point in POINTS.items()]
    task = pickle.dumps((log.cell, tries, log.score, log.steps_path, log.steps(), points))
    script = Path(__file__).with_name("killed_writer.py")
    environment = os.environ | {"PYTHONPATH": str(Path(tracking.__file__).parents[2])}
    done = subprocess.run([sys.executable, script], input=task, env=environment, capture_output=True, timeout=240)
    assert done.returncode == 0, done.stderr.decode()
    assert [int(line) for line in done.stdout.split()] == [-signal.SIGKILL] * len(points)
    return logs


@pytest.mark.parametrize("point", POINTS)
def test_after_a_kill_every_query_is_logged_exactly_once(killed: dict[str, Log], point: str) -> None:
    log = killed[point]
    started = 200.0 if "earlier" in point else 100.0
    tracker = log.open(traces=True)
    for result in (log.result(1, started=started), log.result(2)):
        if not tracker.has(result):
            log.write(tracker, result)
    tracker.finish({}, complete=True)
    runs = log.found()
    assert [(run.data.tags["dkgi.query"], run.info.start_time) for run in runs] == [("1", started * 1000), ("2", 1e5)]
    assert [(run.info.status, len(run.data.metrics)) for run in runs] == [("FINISHED", 15)] * 2
    assert {trace.info.trace_id for trace in log.traces()} == {f"tr-{run.info.run_id}" for run in runs}
    assert [len(trace.data.spans) for trace in log.traces()] == [4, 4]
    kept = {path.name for path in (log.runs / "artifacts").iterdir()}
    assert kept == {run.info.run_id for run in [*runs, *log.found("cell")]}
