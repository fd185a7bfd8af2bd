"""The log of experiments for people: MLflow, a run a cell and below it a run a query.

>>> tracker = open(CellInfo("1a2b3c4d5e6f", axes={"dataset": "hpo", ...}, config={...}), runs_dir(), traces=True)
>>> if not tracker.has(result):
...     tracker.log(result, score, folder / "steps.jsonl", read_steps)
>>> tracker.finish(summary.metrics("hpo"), complete=True)

The cell's folder is the truth and all of this can be made again from it (`python -m dkgi.relog`). So a log that fails
never ends an experiment, and a query that is logged again replaces what was there. Nothing else imports mlflow.
Not covered: the server (ui.py) and the figures of a cell (analysis/summary.py).
"""

from pathlib import Path

from dkgi.tracking.database import DATABASE, connect, usable
from dkgi.tracking.fields import AXES, CellInfo
from dkgi.tracking.runs import discard_cell
from dkgi.tracking.tracker import MlflowTracker, NullTracker, Tracker

__all__ = ["AXES", "DATABASE", "CellInfo", "NullTracker", "Tracker", "connect", "forget", "open"]


def open(cell: CellInfo, runs_dir: Path, *, traces: bool) -> Tracker:
    """The log of `cell` in `<runs_dir>/mlflow.db`, made or reopened. Raises SetupError where that cannot be."""
    return MlflowTracker(cell, runs_dir, traces=traces)


def forget(cell: str, runs_dir: Path) -> None:
    """Delete all runs, trajectories and traces of a cell; MLflow keeps the bare rows until `mlflow gc`."""
    client, experiment = connect(runs_dir)
    with usable(runs_dir):
        discard_cell(client, experiment, cell)
