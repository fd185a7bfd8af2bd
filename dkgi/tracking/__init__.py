"""The log of experiments for people: MLflow, a run a cell and below it a run a query.

>>> tracker = open(CellInfo("1a2b3c4d5e6f", axes={"dataset": "hpo", ...}, config={...}), runs_dir(), traces=True)
>>> if not tracker.has(result):
...     tracker.log(result, score, folder / "steps.jsonl", read_steps)
>>> tracker.finish(summary.metrics("hpo"), complete=True)

The cell's folder is the truth and all of this can be made again from it (`python -m dkgi.relog`). So a log that fails
never ends an experiment, and a query that is logged again replaces what was there. Nothing else imports mlflow.
Not covered: the server (ui.py) and the figures of a cell (analysis/summary.py).
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from dkgi.tracking.database import DATABASE, connect, locked, usable
from dkgi.tracking.fields import AXES, CellInfo
from dkgi.tracking.runs import MlflowTracker, ReadSteps, create_parent, discard_cell, reopen_parent
from dkgi.types import QueryResult, Score

__all__ = ["AXES", "DATABASE", "CellInfo", "NullTracker", "Tracker", "connect", "forget", "open"]


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


def open(cell: CellInfo, runs_dir: Path, *, traces: bool) -> MlflowTracker:
    """The log of `cell` in `<runs_dir>/mlflow.db`, made or reopened. Raises SetupError where that cannot be."""
    client, experiment = connect(runs_dir)
    with usable(runs_dir), locked(runs_dir):
        parent = reopen_parent(client, experiment, cell.cell) or create_parent(client, experiment, cell)
        return MlflowTracker(client, experiment, parent, cell, traces=traces)


def forget(cell: str, runs_dir: Path) -> None:
    """Delete all runs, trajectories and traces of a cell; MLflow keeps the bare rows until `mlflow gc`."""
    client, experiment = connect(runs_dir)
    with usable(runs_dir):
        discard_cell(client, experiment, cell)
