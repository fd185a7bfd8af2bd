"""Grids on a cluster, as a user starts them: submitit's local processes, and a Ray cluster of this machine."""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.grid.test_grid import TWO, Grid, grid, local, manifest, results
from tests.grids import KEY, end, wait_for
from tests.loopback import Loopback, Turn

__all__ = ["grid"]  # a fixture

QUOTA = Turn(status=429, body={"error": {"message": "no credit", "code": "insufficient_quota", "type": "x"}})
SLURM = ("hydra/launcher=slurm", "hydra.launcher.cluster=local", "tracking=none")


def below(parent: int) -> list[psutil.Process]:
    return psutil.Process(parent).children(recursive=True)


def test_jobs_of_submitit_answer_all_cells_once(grid: Grid, tmp_path: Path, data: Path) -> None:
    stdout, stderr = end(grid(TWO, *SLURM, "tracking=mlflow", "tracking.traces=false"))
    assert "no_edges minus full_dkgi, 4 questions" in stdout
    found = results(tmp_path)
    assert [result.outcome for result in found.values()] == ["scored"] * 8
    assert all(result.stops == ("answered",) for result in found.values())
    assert list((data / "w").iterdir()) == []
    again, stderr = end(grid(TWO, *SLURM, "tracking=mlflow", "tracking.traces=false"))
    assert again == stdout
    assert "0 queries to answer" in stderr
    assert results(tmp_path) == found


def test_a_job_that_dies_fails_its_cell_alone_and_the_same_command_goes_on(
    grid: Grid, tmp_path: Path, data: Path
) -> None:
    process = grid(TWO, *SLURM, "limit=8")
    wait_for(lambda: len(results(tmp_path)) >= 2)
    jobs = [one for one in below(process.pid) if "dkgi.grid.cluster" in _command(one)]
    victim = next(one for one in jobs if "/jobs/0.json" in " ".join(_command(one)))
    victim.kill()
    _, stderr = end(process, code=1)
    assert "full_dkgi failed: its job ended with exit code" in stderr
    assert "Traceback" not in stderr
    first = results(tmp_path)
    assert len([key for key in first if key[0] == manifest(tmp_path)["cells"][1]["id"]]) == 8
    end(grid(TWO, *SLURM, "limit=8"))
    whole = results(tmp_path)
    assert len(whole) == 16
    assert {key: whole[key] for key in first} == first
    assert list((data / "w").iterdir()) == []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []


def test_ctrl_c_ends_all_jobs(grid: Grid, tmp_path: Path, data: Path) -> None:
    process = grid(TWO, *SLURM, "limit=8")
    wait_for(lambda: len(results(tmp_path)) >= 2)
    started = below(process.pid)
    process.send_signal(signal.SIGINT)
    _, stderr = end(process, code=130)
    assert "the same command goes on" in stderr
    assert "\nfull_dkgi stopped\n" in stderr
    assert "failed" not in stderr
    assert "Traceback" not in stderr
    _, alive = psutil.wait_procs(started, timeout=20)
    assert alive == []
    end(grid(TWO, *SLURM, "limit=8"))
    assert len(results(tmp_path)) == 16
    assert list((data / "w").iterdir()) == []


def test_a_job_that_fails_says_why_and_where(grid: Grid, tmp_path: Path) -> None:
    fails = [{"error": {"message": "down", "kind": "server"}, "usage": {"output": 1}}]
    _, stderr = end(grid(TWO, *SLURM, "limits.attempts=1", "limit=40", attempts=[fails]), code=1)
    line = next(line for line in stderr.splitlines() if line.startswith("full_dkgi failed: "))
    log = Path(line.split("; ")[1])
    assert "the first 5 queries all failed around the agent" in log.read_text()


def test_a_quota_that_is_used_up_in_a_job_ends_with_3(grid: Grid) -> None:
    with Loopback([QUOTA]) as server:
        _, stderr = end(grid(TWO, *SLURM, *local(server), model="local", TEST_KEY=KEY), code=3)
    assert "full_dkgi failed: its job ended with exit code 3" in stderr


def test_the_cap_of_a_cell_is_shared_out_among_its_shards(grid: Grid, tmp_path: Path) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100)
    with Loopback([answer]) as server:
        arguments = ("tools=no_edges", "shard.count=2", "shard.index=0,1", *SLURM, "limit=20", *local(server))
        end(grid(*arguments, "limits.usd_run=0.02", model="local", TEST_KEY=KEY), code=1)
    assert 0 < sum(result.cost_usd for result in results(tmp_path).values()) <= 0.02
    jobs = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").rglob("jobs/*.json"))]
    assert [job["experiment"]["limits"]["usd_run"] for job in jobs] == [0.01] * 2


def test_the_caps_of_a_grid_are_shared_out(grid: Grid, tmp_path: Path) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100)
    with Loopback([answer]) as server:
        arguments = ("tools=closed_book,no_edges", *SLURM, "limit=20", *local(server), "limits.tokens_grid=40000")
        _, stderr = end(grid(*arguments, "limits.usd_grid=0.02", model="local", TEST_KEY=KEY), code=1)
        asked = len(server.requests)
    jobs = [json.loads(path.read_text()) for path in sorted((tmp_path / "runs").rglob("jobs/*.json"))]
    assert [(job["usd"], job["tokens"]) for job in jobs] == [(0.01, 20_000)] * 2
    assert 0 < sum(result.cost_usd for result in results(tmp_path).values()) <= 0.02
    assert 2 <= asked <= 20
    assert KEY not in stderr
    for path in (tmp_path / "runs").rglob("*"):
        assert not path.is_file() or KEY.encode() not in path.read_bytes(), path


# ------------------------------------------------------------------- Ray


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]


@pytest.fixture(scope="module")
def ray() -> Iterator[Mapping[str, str]]:
    """A Ray cluster of this machine, as a driver's environment finds it."""
    pytest.importorskip("ray")
    folder = Path(tempfile.mkdtemp(prefix="r", dir="/tmp"))  # sockets in it have long names
    head, listen, grpc, metrics, agent = free_ports(5)
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(16)}
    options = [f"--port={head}", "--num-cpus=2", "--include-dashboard=false", "--disable-usage-stats", "--block"]
    options += [f"--dashboard-agent-listen-port={listen}", f"--dashboard-agent-grpc-port={grpc}"]
    options += [f"--metrics-export-port={metrics}", f"--runtime-env-agent-port={agent}", f"--temp-dir={folder}"]
    command = [sys.executable, "-m", "ray.scripts.scripts", "start", "--head", "--node-ip-address=127.0.0.1", *options]
    with (folder / "head.log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, **token})
    try:
        wait_for(lambda: "Ray runtime started" in (folder / "head.log").read_text(), 90)
        yield {**token, "RAY_ADDRESS": f"127.0.0.1:{head}"}
    finally:
        started: list[Any] = [process, *_children(process.pid)]
        process.terminate()
        with_end = time.monotonic() + 20
        while process.poll() is None and time.monotonic() < with_end:
            time.sleep(0.1)
        for one in started:
            try:
                one.kill()
            except (psutil.Error, OSError):
                continue
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _children(parent: int) -> Sequence[psutil.Process]:
    try:
        return psutil.Process(parent).children(recursive=True)
    except psutil.Error:
        return []


def test_tasks_of_ray_answer_all_cells_once(grid: Grid, tmp_path: Path, data: Path, ray: Mapping[str, str]) -> None:
    stdout, _ = end(grid(TWO, "hydra/launcher=ray", "hydra.launcher.cpus_per_task=1", "tracking=none", **ray))
    assert "no_edges minus full_dkgi, 4 questions" in stdout
    found = results(tmp_path)
    assert [result.outcome for result in found.values()] == ["scored"] * 8
    assert all(result.stops == ("answered",) for result in found.values())
    assert list((data / "w").iterdir()) == []


def test_a_task_that_dies_is_not_run_twice(grid: Grid, tmp_path: Path, data: Path, ray: Mapping[str, str]) -> None:
    arguments = (TWO, "hydra/launcher=ray", "hydra.launcher.cpus_per_task=1", "tracking=none", "limit=8")
    process = grid(*arguments, **ray)
    wait_for(lambda: len(results(tmp_path)) >= 2, 90)
    jobs = [one for one in psutil.process_iter() if "/jobs/0.json" in " ".join(_command(one))]
    for one in jobs:
        if str(tmp_path) in " ".join(_command(one)):
            psutil.Process(one.ppid()).kill()  # the task, and what it started with it
    _, stderr = end(process, code=1)
    assert "full_dkgi failed: its task ended before its end: " in stderr
    assert "Traceback" not in stderr
    first = results(tmp_path)
    assert len([key for key in first if key[0] == manifest(tmp_path)["cells"][0]["id"]]) < 8
    end(grid(*arguments, **ray))
    whole = results(tmp_path)
    assert len(whole) == 16
    assert {key: whole[key] for key in first} == first
    assert list((data / "w").iterdir()) == []


def test_a_quota_that_is_used_up_in_a_task_ends_with_3(grid: Grid, ray: Mapping[str, str]) -> None:
    arguments = (TWO, "hydra/launcher=ray", "hydra.launcher.cpus_per_task=1", "tracking=none")
    with Loopback([QUOTA]) as server:  # without a key, which a task finds in the environment of its cluster
        end(grid(*arguments, *local(server), "model.key_variable=null", model="local", **ray), code=3)


def test_ctrl_c_ends_all_tasks(grid: Grid, tmp_path: Path, data: Path, ray: Mapping[str, str]) -> None:
    arguments = (TWO, "hydra/launcher=ray", "hydra.launcher.cpus_per_task=1", "tracking=none", "limit=8")
    process = grid(*arguments, **ray)
    wait_for(lambda: len(results(tmp_path)) >= 2, 90)
    process.send_signal(signal.SIGINT)
    _, stderr = end(process, code=130)
    assert "the same command goes on" in stderr
    assert "\nfull_dkgi stopped\n" in stderr
    assert "failed" not in stderr
    assert "Traceback" not in stderr
    wait_for(lambda: not [one for one in psutil.process_iter() if f"{tmp_path}/runs/grids" in " ".join(_command(one))])
    end(grid(*arguments, **ray))
    assert len(results(tmp_path)) == 16


def test_no_cluster_at_an_address_is_told_in_a_line(grid: Grid) -> None:
    pytest.importorskip("ray")
    (port,) = free_ports(1)
    arguments = ("hydra/launcher=ray", f"hydra.launcher.address=127.0.0.1:{port}", "tracking=none", TWO)
    _, stderr = end(grid(*arguments), code=2)
    (line,) = [line for line in stderr.splitlines() if line.startswith("dkgi: ")]
    assert f"hydra.launcher.address=127.0.0.1:{port}: no Ray cluster answers there" in line
    assert "Traceback" not in stderr


@pytest.mark.parametrize(("launcher", "package"), [("ray", "ray"), ("slurm", "submitit")])
def test_a_launcher_whose_package_is_missing_names_the_extra(
    launcher: str, package: str, grid: Grid, tmp_path: Path
) -> None:
    missing = tmp_path / "missing"
    missing.mkdir()
    (missing / f"{package}.py").write_text(f"raise ImportError('no {package}')\n")
    path = f"{missing}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    _, stderr = end(grid(TWO, f"hydra/launcher={launcher}", "tracking=none", PYTHONPATH=path), code=2)
    assert f"dkgi: hydra/launcher={launcher}: {package} is not installed; run pip install 'dkgi[{launcher}]'" in stderr
    assert "Traceback" not in stderr
