"""One cell of a grid while the grid runs: its places, its worker, its scores.

>>> with RunningCell(cell, shared) as running:
...     running.prepare()
...     running.begin()
...     while not running.hear()[1]: ...
...     running.end()
...     running.state
'done'

Not covered: which cells run at a time (parent.py).
"""

import os
import secrets
import signal
import subprocess
import time
from contextlib import ExitStack, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal, Self

import orjson

from dkgi import paths
from dkgi.grid.cells import GridCell
from dkgi.held import GIVE_UP, HeldCell, Scored
from dkgi.jail.outer import WorkerJail, WorkerProcess, python_folders, worker_process
from dkgi.lines import Lines
from dkgi.locks import Locked
from dkgi.machine import Guard
from dkgi.meter import GridLedger, Ledger
from dkgi.models import open_models
from dkgi.models.provider import ProviderSpec
from dkgi.plan import spent_usd
from dkgi.seats import Seats
from dkgi.tally import Tally
from dkgi.types import SetupError
from dkgi.worker.run import COMMAND, WorkerJob, as_json
from dkgi.worker.server import WorkerServer

State = Literal["waiting", "running", "done", "at a cap", "stopped", "failed"]
_BLOCK = 65_536
_GONE_S = 10.0
_LONGEST_LINE = 2**20
_UNUSABLE = (SetupError, ValueError, LookupError, TypeError, OverflowError, RecursionError)
"""What comes of taking what a worker said or wrote that cannot be used."""


@dataclass(frozen=True, slots=True)
class Shared:
    """What the cells of a grid share: its folder, money, lines to providers, and the ledgers of cells by their id."""

    folder: Path
    ledger: GridLedger
    lines: Lines
    guard: Guard
    ledgers: dict[str, Ledger]
    jail: bool


class RunningCell:
    """Its places are kept from `prepare` to its end, and the cell itself from `hold`.

    state   what the board shows
    error   why it failed, in a line
    quota   its provider's quota is used up
    """

    def __init__(self, cell: GridCell, shared: Shared) -> None:
        self.label, self.plan = cell.label, cell.plan
        self.state: State = "waiting"
        self.error = ""
        self.quota = False
        self.scored: list[Scored] = []
        self.tally = Tally(len(self.plan.wanted))
        self._shared = shared
        self._held: HeldCell | None = None
        self._worker: WorkerProcess | None = None
        self._server: WorkerServer | None = None
        self._received = b""
        self._began = 0.0
        self._holding, self._working = ExitStack(), ExitStack()
        self._seats: Seats | None = None

    def prepare(self) -> None:
        """Open its places, and so prove that they hold, where there is anything to do. Raises SetupError."""
        if self.plan.unfinished():
            if self._shared.jail:
                python_folders()  # raises where they cannot be shown
            self._open_seats()

    def _open_seats(self) -> Seats:
        if self._seats is None:
            try:
                self._seats = self._working.enter_context(self.plan.open_seats())
            except SetupError as error:
                raise SetupError("\n".join(f"{self.label}: {line}" for line in str(error).splitlines())) from None
        return self._seats

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._holding:
            self._working.close()

    @property
    def ledger(self) -> Ledger | None:
        """The money of the cell, once it has begun."""
        return self._shared.ledgers.get(self.plan.id)

    @property
    def log(self) -> Path:
        """What its workers said on standard error."""
        shard = self.plan.experiment.shard
        return self.plan.cell.folder / ("worker.log" if shard.whole else f"worker.{shard.tag}.log")

    @property
    def stdout(self) -> int:
        assert self._worker is not None
        return self._worker.stdout.fileno()

    def hold(self) -> HeldCell:
        """Keep other processes from the cell. Raises Locked while one works on it, SetupError."""
        begun = (self.plan.cell.folder / "manifest.json").exists()
        cell = self.plan.open_cell({} if begun else self._open_seats().programs)
        held = self._held = self._holding.enter_context(HeldCell(self.plan, cell))
        self.tally = Tally(len(self.plan.wanted), held.earlier)
        return held

    def begin(self) -> bool:
        """Hold the cell and start its worker; False where there is nothing to do, or that cannot be. Raises Locked."""
        try:
            held = self.hold()
            if held.todo:
                self._start(held, self._open_seats())
                self.state = "running"
                self._began = time.monotonic()
            return bool(held.todo)
        except Locked:
            raise
        except (SetupError, OSError) as error:
            self.error = str(error)
            self.state = "failed"
            return False

    def _start(self, held: HeldCell, seats: Seats) -> None:
        experiment, shared = self.plan.experiment, self._shared
        model = experiment.model
        ledger = shared.ledgers.get(self.plan.id)
        if ledger is None:
            ledger = shared.ledgers[self.plan.id] = Ledger(
                cap_usd=experiment.limits.usd_run,
                prices=model.prices,
                spent_usd=spent_usd(experiment, held.cell),
                grid=shared.ledger,
            )
        models = open_models(model, lines=shared.lines) if isinstance(model, ProviderSpec) else None
        own = seats.folder / secrets.token_hex(4)
        own.mkdir(mode=0o700)
        jail = self._jail(held, seats, own) if shared.jail else None
        visible = (*jail.read_only, *jail.writable, Path("/usr")) if jail else (Path("/"),)
        server = self._server = self._working.enter_context(
            WorkerServer(
                seats,
                held.cell,
                models,
                ledger,
                experiment.limits,
                model.prices,
                shared.guard,
                todo={(query.number, repeat) for query, repeat in held.todo},
                threads=experiment.threads,
                visible=visible,
            )
        )
        job = WorkerJob(
            experiment=experiment.model_dump(mode="json"),
            cell=str(held.cell.folder),
            own=str(own),
            frozen=str(shared.folder),
            socket=str(server.socket),
            token=server.token,
            engine=self.plan.engine,
            todo=tuple((asdict(query), repeat) for query, repeat in held.todo),
            hidden=tuple(map(str, _hidden(jail, held))) if jail else (),
        )
        self._worker = self._working.enter_context(worker_process(jail, COMMAND, self.log))
        os.set_blocking(self.stdout, False)
        with suppress(BrokenPipeError):  # it is dead, which is heard of it
            self._worker.stdin.write(as_json(job))
            self._worker.stdin.flush()

    def _jail(self, held: HeldCell, seats: Seats, own: Path) -> WorkerJail:
        experiment = self.plan.experiment
        reads = [*python_folders(), seats.folder, *getattr(experiment.model, "reads", ())]
        tools = paths.cache_dir() / "tools"
        if experiment.harness.external and tools.is_dir():
            reads.append(tools)
        return WorkerJail(tuple(reads), (held.cell.folder, own))

    def hear(self) -> tuple[bool, bool]:
        """Take what the worker said: whether queries were finished, and whether no more is to be heard of it.

        What cannot be used ends the worker, and no other cell: a disk that is full, a result that is none.
        """
        try:
            block = os.read(self.stdout, _BLOCK)
        except BlockingIOError:
            return False, False
        *lines, self._received = (self._received + block).split(b"\n")
        finished = False
        try:
            for line in filter(None, lines):
                finished = self._understood(orjson.loads(line)) or finished
        except _UNUSABLE as error:
            self.error = _fault(error)
        if len(self._received) > _LONGEST_LINE:
            self.error = "its worker said what is no message (too long)"
        return finished, bool(self.error) or not block

    def _understood(self, said: dict[str, Any]) -> bool:
        """Take one line; whether a query was finished."""
        assert self._held is not None
        if "finished" in said:
            number, repeat = said["finished"]
            finished = self._take(self._held, int(number), int(repeat))
            if self._held.gave_up:
                self.error = f"the first {GIVE_UP} queries all failed around the agent, and no more were begun"
            return finished
        if "sees" in said:
            assert self._server is not None
            if self._shared.jail and said["sees"] != []:
                self.error = f"its worker could see {said['sees'][0]}, and was not trusted with the cell"
            else:
                self._server.trust()
        elif "ended" in said:
            self.error, self.quota = " ".join(str(said["error"]).split()), said["ended"] == "run_stop"
        return False

    def over_time(self, timeout_s: float | None) -> bool:
        """Whether the worker has had its time."""
        over = timeout_s is not None and time.monotonic() - self._began > timeout_s
        if over:
            self.error = f"not finished after hydra.launcher.timeout_s={timeout_s:g} s"
        return over

    def end(self, *, stopped: bool = False) -> None:
        """End its worker, if it has one, and leave the cell. What is finished and was not told is scored as well.

        `stopped`: somebody has stopped the grid, so that an end before its end is no failure of the cell.
        """
        worker, self._worker = self._worker, None
        death = _death(worker) if worker is not None and not self.error and not stopped else ""
        self._working.close()
        held, self._held = self._held, None
        if held is None:
            return
        try:
            self._take_the_rest(held)
            self.scored = held.scored
            held.complete = held.missing == 0
            if held.missing == 0:
                self.state, self.error = "done", ""
            else:
                self.error = self.error or death
                refused = self.ledger is not None and self.ledger.refused
                self.state = "failed" if self.error else "stopped" if stopped else "at a cap" if refused else "failed"
        finally:
            self._holding.close()

    def _take_the_rest(self, held: HeldCell) -> None:
        try:
            for query, repeat in held.todo:
                self._take(held, query.number, repeat)
        except _UNUSABLE as error:
            self.error = self.error or _fault(error)

    def _take(self, held: HeldCell, number: int, repeat: int) -> bool:
        """Score a query that is finished, once. Raises ValueError for one that was not to be answered."""
        if not held.asked(number, repeat):
            raise ValueError(f"query {number}, repeat {repeat}, is none of its own")
        result = held.cell.result(number, repeat)
        if result is None or held.knows(result):
            return False
        self.tally.count(result, held.take(result))
        return True


def _fault(error: Exception) -> str:
    return str(error) if isinstance(error, SetupError) else f"its worker said what is no message ({error!r})"


def _death(worker: WorkerProcess) -> str:
    """How a worker ended that did not say so; empty where it ended well."""
    try:
        # Its pipe is closed a moment before it is gone.
        code = worker.process.wait(_GONE_S)
    except subprocess.TimeoutExpired:
        return f"its worker said no more, and did not end within {_GONE_S:g} s"
    if code == 0:
        return ""
    if told := worker.told:
        return f"its worker could not be started: {told}"
    number = -code if code < 0 else code - 128
    name = signal.Signals(number).name if number in set(signal.Signals) else ""
    return f"its worker was ended by {name}" if name else f"its worker ended with exit code {code}"


def _hidden(jail: WorkerJail, held: HeldCell) -> list[Path]:
    """What the worker must find absent: labels, queries, results of others, and all of home that is not shown to it."""
    runs, cache, home = paths.runs_dir(), paths.cache_dir(), Path.home()
    private = [cache / "labels", cache / "queries", runs / "mlflow.db", runs / "artifacts", runs / "hydra"]
    private += [folder for folder in (runs / "cells").iterdir() if folder != held.cell.folder]
    # By their real names as well: a folder of the user's may lie behind a link.
    found = [*private, *(path.resolve() for path in private)]
    for top in (home, home.resolve()):
        if top != Path("/") and os.access(top, os.R_OK | os.X_OK):
            found += top.iterdir()
    shown = [form for path in (*jail.read_only, *jail.writable) for form in (path, path.resolve())]
    return [path for path in dict.fromkeys(found) if not any(other.is_relative_to(path) for other in shown)]
