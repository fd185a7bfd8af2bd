"""The log of experiments for people: MLflow, a run a cell and below it a run a query.

>>> tracker = open(CellInfo("1a2b3c4d5e6f", axes={"dataset": "hpo", ...}, config={...}), runs_dir(), traces=True)
>>> if not tracker.has(result):
...     tracker.log(result, score, folder / "steps.jsonl", read_steps)
>>> tracker.finish(summary.metrics("hpo"), complete=True)
>>> open_grid(GridInfo("quickstart_ablation", ["1a2b3c4d5e6f"]), runs_dir()).finish(markdown, rows, note=brief, complete=True)

The cell's folder is the truth and all of this can be made again from it (`python -m dkgi.relog`). So a log that fails
never ends an experiment, and a query that is logged again replaces what was there. Nothing else imports mlflow.
Not covered: the server (ui.py) and the figures of a cell (analysis/summary.py).
"""

from pathlib import Path

from dkgi.tracking.database import DATABASE, connect, folder_name, usable
from dkgi.tracking.fields import AXES, CellInfo
from dkgi.tracking.grids import GridInfo, GridTracker
from dkgi.tracking.runs import discard_cell
from dkgi.tracking.tracker import MlflowTracker, NullTracker, Tracker

__all__ = [
    "AXES",
    "DATABASE",
    "CellInfo",
    "GridInfo",
    "GridTracker",
    "NullTracker",
    "Tracker",
    "connect",
    "forget",
    "open",
    "open_grid",
]


def open(cell: CellInfo, runs_dir: Path, *, traces: bool, uri: str | None = None) -> Tracker:
    """The log of `cell`, made or reopened, in `<runs_dir>/mlflow.db` or on the MLflow server at `uri`.

    Raises SetupError where that cannot be.
    """
    return MlflowTracker(cell, runs_dir, traces=traces, uri=uri)


def open_grid(grid: GridInfo, runs_dir: Path, uri: str | None = None) -> GridTracker:
    """The log of `grid`, in the same place as its cells."""
    return GridTracker(grid, runs_dir, uri)


def forget(cell: str, runs_dir: Path, uri: str | None = None) -> None:
    """Delete all runs, trajectories and traces of a cell; MLflow keeps the bare rows until `mlflow gc`.

    On a server, those of this runs folder, and those that shards in other folders made.
    """
    client, experiment = connect(runs_dir, uri)
    folder = folder_name(runs_dir, uri)
    with usable(runs_dir, uri):
        discard_cell(client, experiment, cell, folder)
