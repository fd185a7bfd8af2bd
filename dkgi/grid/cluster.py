"""Cells on other machines that share this one's folders: by SLURM (submitit) or on a Ray cluster.

    python -m dkgi experiment=quickstart_ablation hydra/launcher=slurm hydra.launcher.partition=cpu
    python -m dkgi experiment=quickstart_ablation hydra/launcher=ray

A job is a cell, or a shard of one: `python -m dkgi.grid.cluster grids/<name>/jobs/0.json` on the machine that it is given,
which is the parent of one jailed worker there. The machine that asked for them logs to MLflow and compares, once all
have ended. Each job may spend an equal share of what the caps of grid and cell leave, since no ledger reaches across machines.
Not covered: machines that share nothing (merge.py).
"""

import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Protocol

import orjson

from dkgi import console, paths, signals
from dkgi.config import Experiment
from dkgi.console import fail
from dkgi.files import read_json, write_atomically
from dkgi.grid.board import GridBoard
from dkgi.grid.cells import Grid, GridCell
from dkgi.grid.parent import Workers, exit_code, run_cells
from dkgi.grid.report import report
from dkgi.grid.running import RunningCell, Shared
from dkgi.lines import Lines
from dkgi.locks import Locked
from dkgi.machine import Guard
from dkgi.meter import GridLedger
from dkgi.paths import runs_dir
from dkgi.plan import make_plan, spent
from dkgi.process import Lifeline
from dkgi.store import Cell
from dkgi.types import SafetyStop, SetupError

_POLL_S = 5.0
_CANCEL_S = 60.0
_LOOK_S = 0.5
_LOCK_S = 10.0
"""How long a job that is over may still hold its cell: its processes end after it."""
_FOR_GOOD = 3
"""The exit code of a job that its provider's quota or a safety stop has ended."""


class Submitted(Protocol):
    """A job that another machine was given; what it says is in `log`."""

    @property
    def log(self) -> Path: ...

    def over(self) -> bool: ...

    def end(self) -> int | str:
        """Its exit code, or in a line why it did not run to its end; asked once it is over."""

    def cancel(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Job:
    """What a machine is told, in a file. `folders` are those of runs and of data, `usd` and `tokens` what it may spend at
    most (None: no bound).
    """

    folders: Mapping[str, str]
    grid: str
    label: str
    overrides: tuple[str, ...]
    experiment: Mapping[str, Any]
    usd: float | None
    tokens: int | None
    jail: bool


def run_cluster(grid: Grid, submit: Callable[[Sequence[Path]], Sequence[Submitted]], *, jail: bool) -> int:
    """Hand out the cells that are not finished, wait for all, and compare. Returns the exit code; raises SetupError."""
    usd, tokens = spent(Cell(runs_dir() / "cells" / one) for one in (*grid.ids, *grid.earlier()))
    grid.write_manifest(jail=jail)
    open_cells = [cell for cell in grid.cells if cell.plan.unfinished()]
    limits = grid.experiment.limits
    shares = len(open_cells) or 1
    left_usd = None if limits.usd_grid is None else max(0.0, limits.usd_grid - usd) / shares
    left_tokens = None if limits.tokens_grid is None else max(0, limits.tokens_grid - tokens) // shares
    shards = Counter(cell.plan.id for cell in open_cells)
    folders = {"DKGI_RUNS": str(runs_dir()), "DKGI_DATA": str(paths.cache_dir())}
    files = []
    for place, cell in enumerate(open_cells):
        experiment = cell.plan.experiment.model_dump(mode="json")
        experiment["limits"]["usd_run"] = _share_of_cell(cell, shards[cell.plan.id])
        job = Job(folders, grid.name, cell.label, cell.overrides, experiment, left_usd, left_tokens, jail)
        files.append(grid.folder / "jobs" / f"{place}.json")
        write_atomically(files[-1], orjson.dumps(asdict(job), option=orjson.OPT_INDENT_2))
    waiting = dict(zip((cell.label for cell in open_cells), submit(files) if files else (), strict=True))
    ended: dict[str, Submitted] = {}
    code = 0
    try:
        _wait(waiting, ended)
    except signals.Stopped as stop:
        code = stop.exit_code
        for submitted in waiting.values():
            submitted.cancel()
        _wait_for_the_end(waiting)
    return _collect(grid, ended, code, jail=jail)


def _share_of_cell(cell: GridCell, shards: int) -> float | None:
    """`limits.usd_run` of a job that answers one of so many open shards of a cell: each counts what the whole cell had cost."""
    cap = cell.plan.experiment.limits.usd_run
    if cap is None:
        return None
    usd, _ = spent([cell.plan.cell])
    return usd + max(0.0, cap - usd) / shards


def _wait(waiting: dict[str, Submitted], ended: dict[str, Submitted]) -> None:
    """Until all are over, which moves them: as long as the cluster lets them run."""
    while waiting:
        for label, job in list(waiting.items()):
            if job.over():
                ended[label] = waiting.pop(label)
                line = f"{label}: {_error(job) or 'its job has ended'}, {len(waiting)} to go"
                console.stderr().print(line, soft_wrap=True)
        if waiting:
            time.sleep(_POLL_S)


def _error(job: Submitted) -> str:
    """Why a job that is over has not done all of its cell, empty where it has."""
    end = job.end()
    if isinstance(end, str):
        return end
    return f"its job ended with exit code {end}; {job.log}" if end else ""


def _wait_for_the_end(jobs: Mapping[str, Submitted]) -> None:
    """Until jobs that were cancelled hold their cells no more, or are not expected to end."""
    deadline = time.monotonic() + _CANCEL_S
    while time.monotonic() < deadline and not all(job.over() for job in jobs.values()):
        time.sleep(_LOOK_S)


def _collect(grid: Grid, ended: Mapping[str, Submitted], code: int, *, jail: bool) -> int:
    """Log what all machines have done, and compare. Jobs that had not `ended` by themselves were stopped."""
    with ExitStack() as stack:
        shared = Shared(grid.folder, GridLedger(cap_usd=None, cap_tokens=None), Lines(), Guard(), {}, jail=jail)
        cells = [stack.enter_context(RunningCell(cell, shared)) for cell in grid.cells]
        for cell in cells:
            if (cell.plan.cell.folder / "manifest.json").exists():
                _take_all(cell, stopped=cell.label not in ended)
            job = ended.get(cell.label)
            if cell.state != "done" and job is not None:
                cell.state, cell.error, cell.quota = "failed", _error(job) or cell.error, job.end() == _FOR_GOOD
        code = code or exit_code(cells)
        report(grid, cells, jail=jail, complete=code == 0)
    return code


def _take_all(cell: RunningCell, *, stopped: bool) -> None:
    """Score and log what its folder has, unless another process works on it."""
    deadline = time.monotonic() + _LOCK_S
    while True:
        try:
            cell.hold()
            break
        except Locked as error:
            if time.monotonic() > deadline:
                cell.error = str(error)
                return
            time.sleep(_LOOK_S)
    cell.end(stopped=stopped)


# ------------------------------------------------------------------- on the machine that was given a job


def run_file(path: str) -> int:
    """Run a job in a process of its own, which ends with this one; what it says is beside its file. Returns its exit code."""
    environment = os.environ | Job(**read_json(Path(path))).folders
    command = [sys.executable, "-m", "dkgi.grid.cluster", path]
    with Lifeline() as lifeline, log_of(Path(path)).open("ab") as log:
        return subprocess.run(
            command, check=False, stdout=log, stderr=log, env=environment, process_group=lifeline.group
        ).returncode


def log_of(job: Path) -> Path:
    return job.with_suffix(".log")


def run_job(path: Path) -> int:
    """Run the cell of a job. Returns the exit code; raises SetupError and SafetyStop."""
    job = Job(**read_json(path))
    folder = runs_dir() / "grids" / job.grid
    paths.freeze(folder)
    # Logged by who asked for it, since MLflow's own database is no place for many machines.
    experiment = Experiment.model_validate(dict(job.experiment) | {"tracking": {"kind": "none"}})
    ledger = GridLedger(cap_usd=job.usd, cap_tokens=job.tokens)
    with ExitStack() as stack:
        shared = Shared(folder, ledger, Lines(), Guard(), {}, jail=job.jail)
        cell = GridCell(make_plan(experiment), tuple(job.overrides), job.label)
        running = stack.enter_context(RunningCell(cell, shared))
        running.prepare()
        code = run_cells([running], Workers(1, job.jail, None), GridBoard(job.grid))
        if running.error:
            console.stderr().print(f"{job.label} {running.state}: {running.error}; {running.log}", soft_wrap=True)
    return code


@signals.watched()
def main() -> None:
    """Run the job of the command line."""
    try:
        sys.exit(run_job(Path(sys.argv[1])))
    except SetupError as error:
        fail(error)
    except SafetyStop as error:
        console.stderr().print(f"dkgi: {error}", soft_wrap=True)
        sys.exit(_FOR_GOOD)


if __name__ == "__main__":
    main()
