"""Runs the cells of a grid: a worker process each, `n_jobs` at a time, and everything that no worker may do.

>>> run_grid(grid, Workers(n_jobs=2, jail=True, timeout_s=None))
0

    worker (jail/outer.py)  ──  {"finished": [17, 0]}  ──►  score, log, board        (one thread, this one)
    worker                  ──  places, requests       ──►  jails, exchange, ledger  (worker/server.py)

A cell that fails, dies or takes too long does not stop the others. What is finished lies in the cells' folders, so a
grid that was killed goes on with the same command.
Not covered: which cells there are (cells.py); what is told at the end (report.py).
"""

import selectors
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from dkgi import console, signals
from dkgi.grid.board import GridBoard
from dkgi.grid.cells import Grid
from dkgi.grid.report import report
from dkgi.grid.running import RunningCell, Shared
from dkgi.lines import Lines
from dkgi.locks import Locked
from dkgi.machine import Guard
from dkgi.meter import GridLedger
from dkgi.paths import runs_dir
from dkgi.plan import spent
from dkgi.store import Cell

_LOOK_S = 0.2
_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Workers:
    """From conf/hydra/launcher/worker.yaml.

    n_jobs     workers at a time
    jail       each in a jail of its own; without, only where nsjail cannot be had for it
    timeout_s  seconds after which a cell's worker is ended; None: never
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    n_jobs: Annotated[int, Field(gt=0, le=1000, strict=True)]
    jail: bool
    timeout_s: Annotated[float, Field(gt=0)] | None


def run_grid(grid: Grid, workers: Workers) -> int:
    """Run what is not finished and compare all cells. Returns the exit code; raises SetupError and SafetyStop."""
    limits = grid.experiment.limits
    usd, tokens = spent(Cell(runs_dir() / "cells" / one) for one in (*grid.ids, *grid.earlier()))
    ledger = GridLedger(cap_usd=limits.usd_grid, cap_tokens=limits.tokens_grid, spent_usd=usd, spent_tokens=tokens)
    with ExitStack() as stack:
        shared = Shared(grid.folder, ledger, Lines(), Guard(), {}, jail=workers.jail)
        cells = [stack.enter_context(RunningCell(cell, shared)) for cell in grid.cells]
        # All places are proved to hold before the first cell begins.
        for cell in cells:
            cell.prepare()
        grid.write_manifest(jail=workers.jail)
        code = run_cells(cells, workers, GridBoard(grid.name))
        report(grid, cells, jail=workers.jail, complete=code == 0)
    return code


def run_cells(cells: Sequence[RunningCell], workers: Workers, board: GridBoard) -> int:
    """Run cells to their ends, `workers.n_jobs` at a time. Returns the exit code; raises SafetyStop."""
    code = 0
    try:
        with board:
            _Run(cells, workers, board).run()
    except signals.Stopped as stop:
        code = stop.exit_code
    for cell in cells:
        cell.end(stopped=code != 0)
    return code or exit_code(cells)


def exit_code(cells: Sequence[RunningCell]) -> int:
    """What a grid ends with that nobody stopped."""
    return 3 if any(cell.quota for cell in cells) else int(any(cell.state != "done" for cell in cells))


class _Run:
    """The workers of a grid, for one thread."""

    def __init__(self, cells: Sequence[RunningCell], workers: Workers, board: GridBoard) -> None:
        self._waiting = list(cells)
        self._running: list[RunningCell] = []
        self._workers, self._board = workers, board
        self._selector = selectors.DefaultSelector()
        self._next_try = 0.0
        self._told: set[str] = set()

    def run(self) -> None:
        for cell in self._waiting:
            self._show(cell)
        with self._selector:
            while self._waiting or self._running:
                self._begin_some()
                for key, _ in self._selector.select(_LOOK_S):
                    self._hear(key.data)
                for cell in list(self._running):
                    if cell.over_time(self._workers.timeout_s):
                        self._end(cell)

    def _begin_some(self) -> None:
        """Begin waiting cells while there are workers for them; one that another process works on comes later."""
        if time.monotonic() < self._next_try:
            return
        for cell in list(self._waiting):
            if len(self._running) >= self._workers.n_jobs:
                return
            try:
                begun = cell.begin()
            except Locked as other:
                self._tell_once(cell, other)
                continue
            self._waiting.remove(cell)
            if begun:
                self._running.append(cell)
                self._selector.register(cell.stdout, selectors.EVENT_READ, cell)
            else:
                cell.end()
            self._show(cell)
        if self._waiting:
            self._next_try = time.monotonic() + _RETRY_S

    def _tell_once(self, cell: RunningCell, other: Locked) -> None:
        """Who works on a cell that is waited for."""
        if cell.label not in self._told:
            self._told.add(cell.label)
            console.stderr().print(f"{cell.label} waits: {other}", soft_wrap=True)

    def _hear(self, cell: RunningCell) -> None:
        finished, over = cell.hear()
        if finished:
            self._board.update(cell.label)
        if over:
            self._end(cell)

    def _end(self, cell: RunningCell) -> None:
        self._selector.unregister(cell.stdout)
        self._running.remove(cell)
        self._next_try = 0.0
        cell.end()
        self._show(cell)

    def _show(self, cell: RunningCell) -> None:
        self._board.show(cell.label, cell.state, cell.tally)
