"""What collects results logs them through: MLflow where it works, the cell's folder alone where it does not.

>>> tracker = NullTracker()
>>> tracker.log(result, score, folder / "steps.jsonl", read_steps)

Importing MLflow and opening its database takes seconds, so a cell that is logged whole is told apart without it.
Not covered: what is written (runs.py).
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dkgi import console
from dkgi.tracking.database import brief
from dkgi.tracking.fields import CellInfo
from dkgi.tracking.glance import logged_queries
from dkgi.tracking.runs import CellRuns, ReadSteps, milliseconds
from dkgi.types import QueryResult, Score

_PATIENCE = 3
"""Failed logs after which the rest waits for the end of the run, so that a stuck database does not slow it down."""


_SHARE = 0.1
"""How much of this process's time logs may take while agents work; the interpreter is held meanwhile."""
_BURST_S = 0.3


class _Time:
    """Seconds that the logs of a cell may take now: they come back by and by, up to a bound. What this postpones, the end of
    the cell's run makes up for.
    """

    def __init__(self) -> None:
        self._seconds, self._at = _BURST_S, time.monotonic()

    def left(self) -> bool:
        now = time.monotonic()
        self._seconds = min(_BURST_S, self._seconds + _SHARE * (now - self._at))
        self._at = now
        return self._seconds > 0

    def spend(self, seconds: float) -> None:
        self._seconds -= seconds


class Tracker(Protocol):
    def has(self, result: QueryResult) -> bool:
        """Whether exactly this result is in the log; an earlier one of the same query does not count."""

    def log(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        """Log a result in place of any earlier one of its query; `steps` is called if traces are on. Never raises."""

    def finish(self, metrics: Mapping[str, float], *, complete: bool) -> None:
        """Try again what failed, log the cell's figures and close its run. Never raises."""


class NullTracker:
    """Logs nothing (`tracking=none`)."""

    def has(self, result: QueryResult) -> bool:
        return True

    def log(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        pass

    def finish(self, metrics: Mapping[str, float], *, complete: bool) -> None:
        pass


class MlflowTracker:
    """The log of one cell, for one thread. Raises SetupError where the database or the server cannot be used."""

    def __init__(self, cell: CellInfo, runs_dir: Path, *, traces: bool, uri: str | None) -> None:
        self._cell = cell
        self._runs_dir = runs_dir
        self._traces = traces
        self._uri = uri
        self._late: list[tuple[QueryResult, Score, Path, ReadSteps]] = []
        self._failures = 0
        self._time = _Time()
        self._runs: CellRuns | None = None
        # A shard's figures may be those of before another's last queries, so that one is always looked at.
        self._logged = {} if uri or cell.shard else logged_queries(runs_dir, cell.cell)
        if not self._logged:
            self._open()

    def has(self, result: QueryResult) -> bool:
        if self._runs is None:
            return self._logged.get((result.number, result.repeat)) == milliseconds(result.started)
        return self._runs.has(result)

    def log(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        # Until it is written, so that Ctrl-C in the middle leaves it to `finish`.
        self._late.append((result, score, steps_path, steps))
        while self._late and self._failures <= _PATIENCE and self._time.left():
            began = time.monotonic()
            try:
                self._open().write(*self._late[0])
            # The one border where any failure is caught: the answer is paid for and safe in the cell's folder.
            except Exception as error:
                self._failures += 1
                if self._failures == 1:
                    number = self._late[0][0].number
                    report(f"query {number} could not be logged and will be tried again at the end", error)
                return
            finally:
                self._time.spend(time.monotonic() - began)
            self._late.pop(0)

    def finish(self, metrics: Mapping[str, float], *, complete: bool) -> None:
        if self._runs is None and not self._late:
            return
        try:
            while self._late:
                self._open().write(*self._late[0])
                self._late.pop(0)
            self._open().finish(metrics, complete=complete)
        except Exception as error:
            server = f" --uri {self._uri}" if self._uri else ""
            way_out = f"`python -m dkgi.relog {self._cell.cell}{server}` makes them from the cell's folder"
            report(f"{len(self._late)} queries and the cell's figures are not up to date; {way_out}", error)

    def _open(self) -> CellRuns:
        if self._runs is None:
            self._runs = CellRuns.open(self._cell, self._runs_dir, traces=self._traces, uri=self._uri)
        return self._runs


def report(message: str, error: Exception) -> None:
    """Tell what is not in the log, and why."""
    console.stderr().print(f"MLflow: {message} ({brief(error)})", soft_wrap=True)
