"""The whole command, as a user runs it: real data set, real jails, real store, real signals."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

from dkgi.analysis.summary import scored_results
from dkgi.shards import Shard
from dkgi.store import Cell, cells
from tests.logged import logged_runs

Dkgi = Callable[..., subprocess.Popen[str]]
LOOK: dict[str, Any] = {"calls": [{"name": "bash", "arguments": {"command": "sleep 0.2; ls"}}], "usage": {"output": 10}}
ANSWER: dict[str, Any] = {"text": '{"node_ids": [1, 2]}', "usage": {"output": 1}}
PRICES = "model.prices={input: 1, cached_input: 1, cache_write: 1, output: 1000000}"


@pytest.fixture
def dkgi(data: Path, tmp_path: Path) -> Dkgi:
    """Starts `python -m dkgi model=scripted` with these replies, an attempt each (the last one for all later ones)."""

    def start(
        *arguments: str,
        attempts: Sequence[Sequence[dict[str, Any]]] = ([LOOK, ANSWER],),
        stdout: int | IO[str] = subprocess.PIPE,
        **environment: str,
    ) -> subprocess.Popen[str]:
        path = tmp_path / "replies.json"
        replies = json.dumps({"*": attempts})
        # Another process may be reading it.
        if not path.exists() or path.read_text() != replies:
            path.write_text(replies)
        command = [sys.executable, "-m", "dkgi", "model=scripted", f"model.replies={path}", PRICES, *arguments]
        folders = {"DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
        return subprocess.Popen(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **folders, **environment},
        )

    return start


def end(process: subprocess.Popen[str], *, code: int = 0) -> tuple[str, str]:
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stderr
    return stdout, stderr


def the_cell(tmp_path: Path) -> Cell:
    (cell,) = cells(tmp_path / "runs")
    return cell


def wait_for_results(tmp_path: Path, count: int) -> None:
    deadline = time.monotonic() + 60
    while len(list((tmp_path / "runs").glob("cells/*/queries/*/*/result.json"))) < count:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def leftovers(data: Path) -> list[str]:
    return [path.name for path in (data / "w").iterdir()]


def test_a_cell_is_answered_scored_logged_and_not_run_again(dkgi: Dkgi, tmp_path: Path, data: Path) -> None:
    stdout, stderr = end(dkgi("limit=3"))
    assert "3 scored" in stdout
    assert "\x1b" not in stdout + stderr
    results = list(the_cell(tmp_path).results())
    assert [(r.outcome, r.turns, r.tool_calls, r.cost_usd) for r in results] == [("scored", 2, 1, 11.0)] * 3
    scores = [json.loads(line) for line in (the_cell(tmp_path).folder / "scores.jsonl").read_text().splitlines()]
    assert sorted(score["number"] for score in scores) == [result.number for result in results]
    assert leftovers(data) == []
    (overrides,) = (tmp_path / "runs" / "hydra").glob("*/.hydra/overrides.yaml")
    assert "- limit=3\n" in overrides.read_text()
    runs = logged(tmp_path / "runs")
    assert [status for _, status in runs] == ["FINISHED"] * 4

    end(dkgi("limit=3"))
    assert list(the_cell(tmp_path).results()) == results
    assert logged(tmp_path / "runs") == runs

    end(dkgi("limit=5"))
    assert len(list(the_cell(tmp_path).results())) == 5
    assert len(logged(tmp_path / "runs")) == 6


def logged(runs: Path) -> list[tuple[str, str]]:
    """Id and status of all runs in MLflow's database."""
    return sorted((run.info.run_id, run.info.status) for run in logged_runs(runs))


def test_a_dry_run_shows_a_prompt_and_a_price_and_calls_no_model(dkgi: Dkgi, tmp_path: Path) -> None:
    stdout, stderr = end(
        dkgi("dry_run=true", "limit=10", attempts=[[{"error": {"message": "called", "kind": "server"}}]])
    )
    assert "Question: " in stdout
    assert "10 queries to answer, about $" in stderr
    assert list((tmp_path / "runs").iterdir()) == []


def test_repeats_are_independent_answers_to_the_same_query(dkgi: Dkgi, tmp_path: Path) -> None:
    end(dkgi("limit=2", "repeats=2", "tracking=none"))
    keys = [(result.number, result.repeat) for result in the_cell(tmp_path).results()]
    assert len(keys) == 4
    assert {repeat for _, repeat in keys} == {0, 1}


def test_failed_queries_are_tried_again_only_when_asked(dkgi: Dkgi, tmp_path: Path) -> None:
    broken = [{"error": {"message": "down", "kind": "server"}}]
    attempts = [broken, broken, broken, [ANSWER]]
    fast = ["limit=2", "tracking=none", "limits.backoff_s=0"]
    for _ in range(2):
        end(dkgi(*fast, attempts=attempts))
        assert [result.outcome for result in the_cell(tmp_path).results()] == ["failed_infra"] * 2
    end(dkgi(*fast, "retry=infra", attempts=attempts))
    results = list(the_cell(tmp_path).results())
    assert [(r.outcome, r.stops) for r in results] == [("scored", ("model_error",) * 3 + ("answered",))] * 2


def test_after_kill_9_the_same_command_finishes_and_nothing_is_lost_or_doubled(
    dkgi: Dkgi, runs: Path, tmp_path: Path, data: Path
) -> None:
    process = dkgi("limit=8", "threads=2")
    wait_for_results(tmp_path, 3)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=60)
    before = {result.number: result for result in the_cell(tmp_path).results()}
    assert 3 <= len(before) < 8

    end(dkgi("limit=8", "threads=2"))
    cell = the_cell(tmp_path)
    after = {result.number: result for result in cell.results()}
    assert len(after) == 8
    assert {number: after[number] for number in before} == before
    spent = sum(step.usage.output for n in after for a in cell.attempts(n, 0) for step in a.steps if step.usage)
    assert sum(result.usage.output for result in after.values()) == spent
    assert [status for _, status in logged(runs)] == ["FINISHED"] * 9
    assert leftovers(data) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_keeps_what_is_done_ends_all_jails_and_says_how_to_go_on(
    number: signal.Signals, code: int, dkgi: Dkgi, tmp_path: Path, data: Path
) -> None:
    sleep = f"sleep {100_000 + os.getpid()}"  # told apart from those of another suite on this machine
    slow = {"calls": [{"name": "bash", "arguments": {"command": sleep}}]}
    process = dkgi("limit=6", "threads=2", "tracking=none", attempts=[[LOOK, slow]])
    deadline = time.monotonic() + 60
    while not jailed(sleep):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, stderr = end(process, code=code)
    assert "6 queries are not finished: the same command goes on with them" in stderr
    assert "Traceback" not in stderr
    assert not jailed(sleep)
    assert leftovers(data) == []


def jailed(text: str) -> list[int]:
    """Processes of this machine whose command line is exactly these words."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")[:-1]
        except OSError:
            continue
        if words == text.encode().split():
            found.append(int(folder.name))
    return found


def test_a_second_process_on_a_cell_says_so_and_stops(dkgi: Dkgi, tmp_path: Path) -> None:
    first = dkgi("limit=20", "threads=1", "tracking=none")
    wait_for_results(tmp_path, 1)
    _, stderr = end(dkgi("limit=20", "tracking=none"), code=2)
    assert f"is being run by process {first.pid}" in stderr
    first.send_signal(signal.SIGINT)
    end(first, code=130)


def test_a_canary_in_a_trajectory_stops_the_run_with_exit_3(dkgi: Dkgi, tmp_path: Path, data: Path) -> None:
    canary = (data / "labels" / "hpo" / "canary").read_text()
    for _ in range(2):
        _, stderr = end(dkgi("limit=2", "tracking=none", attempts=[[{"text": canary}]]), code=3)
        assert "canary" in stderr
        assert canary not in stderr


@pytest.mark.parametrize("arguments", [["limit=1", "tracking=none"], ["dry_run=true"], ["--help"], ["--cfg", "job"]])
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_that_cannot_be_written_is_named_in_one_line(
    dkgi: Dkgi, tmp_path: Path, arguments: list[str], unbuffered: str
) -> None:
    with Path("/dev/full").open("w") as full:
        _, stderr = end(dkgi(*arguments, stdout=full, PYTHONUNBUFFERED=unbuffered), code=2)
    *progress, line = stderr.splitlines()
    assert all(earlier.startswith(("hpo · test", "1 query to answer")) for earlier in progress)
    assert line.startswith("dkgi: standard output cannot be written: No space left on device")


@pytest.mark.parametrize("variable", ["DKGI_RUNS", "DKGI_DATA"])
def test_a_folder_that_cannot_be_made_is_named_in_one_line(dkgi: Dkgi, tmp_path: Path, variable: str) -> None:
    (tmp_path / "file").write_text("")
    _, stderr = end(dkgi(**{variable: str(tmp_path / "file" / "inside")}), code=2)
    (line,) = [line for line in stderr.splitlines() if "waiting" not in line and "once" not in line]
    assert line.startswith("dkgi: ")
    assert variable in line


def test_an_unknown_split_is_told_with_those_that_exist(dkgi: Dkgi) -> None:
    _, stderr = end(dkgi("dataset.split=train"), code=2)
    assert stderr == "dkgi: dataset.split=train: hpo has test, test-0.1, val\n"


def test_shards_that_run_at_the_same_time_come_to_what_one_run_comes_to(dkgi: Dkgi, tmp_path: Path) -> None:
    shards = [dkgi("limit=6", "shard.count=3", f"shard.index={index}", "tracking=none") for index in range(3)]
    for process in shards:
        end(process)
    cell = the_cell(tmp_path)
    found = scored_results(cell)
    assert len(found) == 6
    assert sorted(path.name for path in cell.folder.glob("scores*")) == [f"scores.{n}-3.jsonl" for n in range(3)]
    _, stderr = end(dkgi("limit=6", "tracking=none"))
    assert "6/6" in stderr
    assert scored_results(the_cell(tmp_path)) == found


def test_a_shard_without_queries_is_finished_at_once(dkgi: Dkgi, data: Path) -> None:
    (number,) = [json.loads(line)["number"] for line in (data / "queries/hpo/test.jsonl").read_text().splitlines()[:1]]
    empty = next(index for index in range(2) if not Shard(2, index).holds("hpo", number))
    arguments = ("limit=1", "shard.count=2", f"shard.index={empty}", "tracking=none")
    _, stderr = end(dkgi(*arguments, "dry_run=true"))
    assert "0 queries to answer" in stderr
    _, stderr = end(dkgi(*arguments))
    assert "0/0" in stderr


def test_the_subset_split_shares_results_with_the_whole_one(dkgi: Dkgi, tmp_path: Path) -> None:
    end(dkgi("dataset.split=test-0.1", "limit=2", "tracking=none"))
    end(dkgi("dataset.split=test", "limit=1", "tracking=none"))
    assert len(cells(tmp_path / "runs")) == 1


def test_kept_scratch_is_named_beside_the_commands(dkgi: Dkgi, tmp_path: Path) -> None:
    write = {"calls": [{"name": "bash", "arguments": {"command": "echo hello > /scratch/note"}}]}
    end(dkgi("limit=1", "tracking=none", "keep_scratch=true", attempts=[[write, ANSWER]]))
    (log,) = (tmp_path / "runs").glob("cells/*/queries/*/*/commands.jsonl")
    kept = Path(json.loads(log.read_text().splitlines()[-1])["kept"])
    assert (kept / "scratch" / "note").read_text() == "hello\n"


def test_a_reply_that_no_file_can_hold_does_not_stop_a_cell_or_its_log(dkgi: Dkgi, runs: Path) -> None:
    calls = [{"name": "read", "arguments": arguments} for arguments in ('{"path": "\\ud800"}', "[" * 100_000)]
    _, stderr = end(dkgi("limit=1", attempts=[[{"calls": calls, "text": "\ud800"}, ANSWER]]))
    assert "MLflow" not in stderr.replace("MLflow UI", "")
    assert [status for _, status in logged(runs)] == ["FINISHED"] * 2


def test_a_worker_that_cannot_go_on_ends_the_run_with_its_own_message(dkgi: Dkgi, tmp_path: Path, data: Path) -> None:
    _, stderr = end(dkgi("limit=3", "threads=3", "tracking=none", attempts=[]), code=2)
    assert "no script for query" in stderr
    assert leftovers(data) == []
