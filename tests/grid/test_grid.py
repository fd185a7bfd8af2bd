"""Grids as a user runs them: `python -m dkgi -m ...`, with real workers in real jails."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
import pytest

from dkgi.analysis.summary import scored_results
from dkgi.locks import Lock
from dkgi.store import Cell, cells
from tests.grids import KEY, end, wait_for, workers
from tests.logged import logged_runs
from tests.loopback import Loopback, Turn

Grid = Callable[..., subprocess.Popen[str]]
LOOK: dict[str, Any] = {"calls": [{"name": "bash", "arguments": {"command": "sleep 0.2; ls"}}], "usage": {"output": 10}}
ANSWER: dict[str, Any] = {"text": '{"node_ids": [1, 2]}', "usage": {"output": 1}}
TWO = "tools=full_dkgi,no_edges"


@pytest.fixture
def grid(data: Path, tmp_path: Path) -> Grid:
    """Starts `python -m dkgi -m model=scripted` with these replies, an attempt each."""

    def start(
        *arguments: str,
        attempts: Sequence[Sequence[dict[str, Any]]] = ([LOOK, ANSWER],),
        model: str = "scripted",
        **environment: str,
    ) -> subprocess.Popen[str]:
        path = tmp_path / "replies.json"
        path.write_text(json.dumps({"*": attempts}))
        scripted = [f"model.replies={path}"] if model == "scripted" else []
        command = [sys.executable, "-m", "dkgi", "-m", f"model={model}", *scripted, "limit=4", "threads=2", *arguments]
        folders = {"DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
        return subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **folders, **environment},
        )

    return start


def results(tmp_path: Path) -> dict[tuple[str, int, int], Any]:
    """All finished queries of all cells."""
    return {
        (cell.id, result.number, result.repeat): result
        for cell in cells(tmp_path / "runs")
        for result in cell.results()
    }


def manifest(tmp_path: Path) -> Mapping[str, Any]:
    (path,) = (tmp_path / "runs" / "grids").glob("*/manifest.json")
    found: Mapping[str, Any] = json.loads(path.read_text())
    return found


def test_all_cells_are_answered_compared_and_logged_and_none_of_it_again(
    grid: Grid, tmp_path: Path, data: Path
) -> None:
    stdout, stderr = end(grid(TWO))
    assert "no_edges minus full_dkgi, 4 questions" in stdout
    assert "\x1b" not in stdout + stderr
    found = results(tmp_path)
    assert [result.outcome for result in found.values()] == ["scored"] * 8
    made = manifest(tmp_path)
    assert [(cell["label"], cell["overrides"]) for cell in made["cells"]] == [
        ("full_dkgi", ["tools=full_dkgi"]),
        ("no_edges", ["tools=no_edges"]),
    ]
    folder = tmp_path / "runs" / "grids" / made["name"]
    assert r"no\_edges" in (folder / "comparison.md").read_text()
    assert (folder / "conf" / "config.yaml").is_file()
    assert list((data / "w").iterdir()) == []
    runs = logged(tmp_path)
    assert [kind for kind, *_ in runs] == ["cell"] * 2 + ["grid"] + ["query"] * 8
    assert {status for *_, status in runs} == {"FINISHED"}

    again, stderr = end(grid(TWO))
    assert again == stdout
    assert "0 queries to answer" in stderr
    assert results(tmp_path) == found
    assert logged(tmp_path) == runs


@pytest.mark.usefixtures("runs")
def test_relog_makes_the_log_of_a_grid_again(grid: Grid, tmp_path: Path) -> None:
    end(grid(TWO, "limit=2"))
    before = [kind for kind, *_ in logged(tmp_path)]
    for path in (tmp_path / "runs").glob("mlflow.db*"):
        path.unlink()
    environment = {**os.environ, "DKGI_RUNS": str(tmp_path / "runs")}
    command = [sys.executable, "-m", "dkgi.relog", "--no-traces"]
    subprocess.run(command, env=environment, timeout=120, check=True, capture_output=True)
    assert [kind for kind, *_ in logged(tmp_path)] == before
    _, stderr = end(grid(TWO, "limit=2"))
    assert "MLflow:" not in stderr
    assert [kind for kind, *_ in logged(tmp_path)] == before


def logged(tmp_path: Path) -> list[tuple[str, str, str]]:
    """Kind, id and status of all runs in MLflow's database."""
    runs = logged_runs(tmp_path / "runs")
    return sorted((run.data.tags["dkgi.kind"], run.info.run_id, run.info.status) for run in runs)


def test_a_fault_in_any_cell_is_told_before_the_first_one_begins(grid: Grid, tmp_path: Path) -> None:
    _, stderr = end(grid("harness=native,codex", "tools=full_dkgi,shell_only", "tracking=none"), code=2)
    assert "tools=shell_only" in stderr
    assert "Traceback" not in stderr
    assert results(tmp_path) == {}


def test_the_same_cell_twice_is_refused(grid: Grid) -> None:
    _, stderr = end(grid("threads=1,2", "tracking=none"), code=2)
    assert "threads=2: the same cell as threads=1" in stderr


def test_a_dry_run_lists_the_cells_and_runs_none(grid: Grid, tmp_path: Path) -> None:
    stdout, stderr = end(grid(TWO, "dry_run=true"))
    assert stdout.count("4 of 4     to answer") == 2
    assert "8 queries to answer" in stderr
    assert results(tmp_path) == {}
    assert not (tmp_path / "runs" / "grids").exists()


def test_a_worker_that_dies_stops_no_other_cell_and_the_same_command_goes_on(
    grid: Grid, tmp_path: Path, data: Path
) -> None:
    process = grid(TWO, "tracking=none", "limit=8", "hydra.launcher.n_jobs=1")
    wait_for(lambda: len(results(tmp_path)) >= 2)
    (worker,) = workers(process.pid)
    worker.kill()
    _, stderr = end(process, code=1)
    assert "full_dkgi failed: its worker was ended by SIGKILL" in stderr
    first = results(tmp_path)
    assert [key for key in first if first[key].cell == manifest(tmp_path)["cells"][1]["id"]].__len__() == 8
    end(grid(TWO, "tracking=none", "limit=8", "hydra.launcher.n_jobs=1"))
    whole = results(tmp_path)
    assert len(whole) == 16
    assert {key: whole[key] for key in first} == first
    assert list((data / "w").iterdir()) == []


def test_a_parent_that_is_killed_leaves_no_process_and_the_same_command_goes_on(
    grid: Grid, tmp_path: Path, data: Path
) -> None:
    process = grid(TWO, "tracking=none", "limit=8")
    wait_for(lambda: len(results(tmp_path)) >= 3)
    below = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate(timeout=60)
    _, alive = psutil.wait_procs(below, timeout=10)
    assert alive == []
    first = results(tmp_path)
    end(grid(TWO, "tracking=none", "limit=8"))
    whole = results(tmp_path)
    assert len(whole) == 16
    assert {key: whole[key] for key in first} == first
    assert list((data / "w").iterdir()) == []


def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(grid: Grid, tmp_path: Path, data: Path) -> None:
    process = grid(TWO, "tracking=none", "limit=8")
    wait_for(lambda: len(results(tmp_path)) >= 3)
    process.send_signal(signal.SIGINT)
    _, stderr = end(process, code=130)
    assert "the same command goes on" in stderr
    assert "Traceback" not in stderr
    scored = [pair for cell in cells(tmp_path / "runs") for pair in scored_results(cell)]
    assert len(scored) == len(results(tmp_path)) >= 3
    assert list((data / "w").iterdir()) == []


def test_a_cell_that_takes_too_long_is_ended_and_told(grid: Grid, tmp_path: Path) -> None:
    slow = [{**ANSWER, "sleep_s": 600}]
    process = grid("tools=closed_book,no_edges", "tracking=none", "hydra.launcher.timeout_s=3", attempts=[slow])
    _, stderr = end(process, code=1)
    assert "no_edges failed: not finished after hydra.launcher.timeout_s=3 s" in stderr
    assert results(tmp_path) == {}


def test_a_cell_that_another_process_works_on_is_waited_for(grid: Grid, tmp_path: Path) -> None:
    end(grid(TWO, "tracking=none", "limit=1"))
    first, second = (Cell(tmp_path / "runs" / "cells" / cell["id"]) for cell in manifest(tmp_path)["cells"])
    with Lock(first):
        process = grid(TWO, "tracking=none", "limit=2")
        wait_for(lambda: len(list(second.results())) == 2)
        assert len(list(first.results())) == 1
    end(process)
    assert len(list(first.results())) == 2


def test_shards_as_a_dimension_are_one_cell(grid: Grid, tmp_path: Path) -> None:
    stdout, _ = end(grid("shard.count=2", "shard.index=0,1", "tracking=none", "limit=8"))
    assert len(results(tmp_path)) == 8
    (cell,) = cells(tmp_path / "runs")
    assert len(scored_results(cell)) == 8
    assert [made["shard"] for made in manifest(tmp_path)["cells"]] == [[0, 2], [1, 2]]
    assert "8 scored" in stdout


def test_retry_runs_only_what_failed_around_the_agent(grid: Grid, tmp_path: Path) -> None:
    fails = [{"error": {"message": "down", "kind": "server"}, "usage": {"output": 1}}]
    limits = ("limits.attempts=1", "tracking=none", "limit=3", "tools=full_dkgi,no_edges")
    end(grid(*limits, attempts=[fails, [ANSWER]]))
    assert {result.outcome for result in results(tmp_path).values()} == {"failed_infra"}
    end(grid(*limits, "retry=infra", attempts=[fails, [ANSWER]]))
    found = results(tmp_path)
    assert {result.outcome for result in found.values()} == {"scored"}
    assert {result.usage.output for result in found.values()} == {2}
    end(grid(*limits, "retry=infra", attempts=[fails, [ANSWER]]))
    assert results(tmp_path) == found


def test_texts_that_change_while_a_grid_runs_change_nothing_in_it(grid: Grid, tmp_path: Path) -> None:
    user = tmp_path / "user"
    (user / "prompts").mkdir(parents=True)
    text = user / "prompts" / "question.txt"
    text.write_text("Before: $query\n")
    arguments = (TWO, "tracking=none", "prompt.question=question.txt", "hydra.launcher.n_jobs=1")
    process = grid(*arguments, DKGI_CONF=str(user))
    wait_for(lambda: results(tmp_path))
    text.write_text("After: $query\n")
    end(process)
    prompts = [
        cell.steps(result.number, result.repeat)[0].text
        for cell in cells(tmp_path / "runs")
        for result in cell.results()
    ]
    assert len(prompts) == 8
    assert all("Before: " in prompt and "After: " not in prompt for prompt in prompts)


# ------------------------------------------------------------------- models behind a provider


def local(server: Loopback) -> list[str]:
    prices = "model.prices={input: 1, cached_input: 1, cache_write: 1, output: 1}"
    return [f"model.base_url={server.url}", "model.key_variable=TEST_KEY", "model.max_output_tokens=1000", prices]


def test_requests_go_by_the_parent_and_the_key_stays_there(grid: Grid, tmp_path: Path) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100, delay_s=1.0)
    with Loopback([answer]) as server:
        process = grid("tools=closed_book,no_edges", *local(server), model="local", TEST_KEY=KEY)
        found = wait_for(lambda: workers(process.pid))
        for worker in found:
            assert KEY.encode() not in Path(f"/proc/{worker.pid}/environ").read_bytes()
        stdout, stderr = end(process)
        assert {request.headers["authorization"] for request in server.requests} == {f"Bearer {KEY}"}
        assert len(server.requests) == 8
    done = results(tmp_path)
    assert [(result.outcome, result.usage.requests, result.cost_usd) for result in done.values()] == [
        ("scored", 1, pytest.approx(0.001))
    ] * 8
    assert len(list((tmp_path / "runs").rglob("exchange.jsonl.zst"))) == 8
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path
    assert KEY not in stdout + stderr


def test_no_cap_of_a_grid_is_passed_and_a_higher_one_goes_on(grid: Grid, tmp_path: Path) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100)
    with Loopback([answer]) as server:
        arguments = ("tools=closed_book,no_edges", "tracking=none", "limit=20", *local(server))
        _, stderr = end(grid(*arguments, "limits.usd_grid=0.02", model="local", TEST_KEY=KEY), code=1)
        assert "limits.usd_grid=0.02" in stderr
        spent = sum(result.cost_usd for result in results(tmp_path).values())
        assert 0 < spent <= 0.02
        asked = len(server.requests)
        end(grid(*arguments, "limits.usd_grid=1", model="local", TEST_KEY=KEY))
        assert len(results(tmp_path)) == 40
        assert len(server.requests) == 40 > asked


def test_a_cap_in_tokens_bounds_models_without_a_price(grid: Grid, tmp_path: Path) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100)
    with Loopback([answer]) as server:
        arguments = [f"model.base_url={server.url}", "model.max_output_tokens=1000", "limit=20", "tracking=none"]
        _, stderr = end(grid(TWO, *arguments, "limits.tokens_grid=20000", model="local"), code=1)
        assert "limits.tokens_grid=20000" in stderr
        assert 1 <= len(server.requests) <= 20


def test_a_quota_that_is_used_up_is_told_and_ends_with_3(grid: Grid) -> None:
    quota = Turn(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota", "type": "x"}})
    with Loopback([quota]) as server:
        _, stderr = end(grid(TWO, "tracking=none", *local(server), model="local", TEST_KEY=KEY), code=3)
    assert "no credit" in stderr


# ------------------------------------------------------------------- what stops all of it


def test_labels_in_a_trajectory_stop_the_whole_grid(grid: Grid, tmp_path: Path, data: Path) -> None:
    canary = (data / "labels" / "hpo" / "canary").read_text()
    leak = [{"text": f'{{"node_ids": [1], "{canary}": 1}}'}]
    process = grid(TWO, "tracking=none", "limit=8", "hydra.launcher.n_jobs=1", "limits.attempts=1", attempts=[leak])
    _, stderr = end(process, code=3)
    assert "nothing of this cell counts" in stderr
    assert "Traceback" not in stderr
    assert {key[0] for key in results(tmp_path)} == {manifest(tmp_path)["cells"][0]["id"]}
    assert list((data / "w").iterdir()) == []


def test_the_first_results_that_all_fail_around_the_agent_end_a_cell_and_no_other(grid: Grid, tmp_path: Path) -> None:
    fails = [{"error": {"message": "down", "kind": "server"}}]
    _, stderr = end(grid(TWO, "tracking=none", "limit=20", "limits.attempts=1", attempts=[fails]), code=1)
    assert stderr.count("the first 5 queries all failed around the agent") == 2
    assert len(results(tmp_path)) < 40
