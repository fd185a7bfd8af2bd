"""Make the MLflow log of cells again from their folders: `python -m dkgi.relog [CELL ...] [--no-traces] [--uri URI]`.

    $ python -m dkgi.relog 5d1f
    5d1f0c9a7e42: 300 queries logged

CELL is the beginning of a cell's id; without one, all cells are logged. URI is the MLflow server to log to (as
`tracking.uri`); without it, the log is the database in the runs folder. It calls no model and reads no gold.
Not covered: cells that a process is working on, which it refuses.
"""

import argparse
import sys
from functools import partial
from pathlib import Path

from dkgi import console, signals, tracking
from dkgi.analysis.summary import scored_results, summarise
from dkgi.grid.log import relog_grids
from dkgi.locks import Lock
from dkgi.paths import runs_dir
from dkgi.store import Cell, find_cells
from dkgi.types import SetupError


def relog(cell: Cell, runs: Path, *, traces: bool, uri: str | None = None) -> bool:
    """Replace what MLflow has of `cell`. Returns whether all of it is logged; raises SetupError."""
    manifest = cell.manifest
    info = tracking.CellInfo(cell.id, manifest["axes"], manifest["config"], manifest["git_commit"])
    with Lock(cell):
        scored = scored_results(cell)
        tracking.forget(cell.id, runs, uri)
        tracker = tracking.open(info, runs, traces=traces, uri=uri)
        for result, score in scored:
            steps = partial(cell.steps, result.number, result.repeat)
            tracker.log(result, score, cell.query_folder(result.number, result.repeat) / "steps.jsonl", steps)
        tracker.finish(summarise(scored).metrics(info.axes["dataset"]), complete=True)
    logged = sum(tracker.has(result) for result, _ in scored)
    console.stderr().print(f"{cell.id}: {logged:,} queries logged", soft_wrap=True)
    return logged == len(scored)


@signals.watched()
def main() -> None:
    """Run the command line of this process."""
    parser = argparse.ArgumentParser(prog="python -m dkgi.relog", description="Make the MLflow log again.")
    parser.add_argument("cells", nargs="*", metavar="CELL", help="the beginning of a cell's id; without one, all cells")
    parser.add_argument("--no-traces", action="store_true", help="leave the traces out")
    parser.add_argument("--uri", help="an MLflow server to log to instead of the database in the runs folder")
    arguments = parser.parse_args()
    try:
        cells = find_cells(runs_dir(), arguments.cells)
        if not cells:
            raise SetupError(f"{runs_dir() / 'cells'}: no cell is there; `python -m dkgi` runs one")
        whole = [relog(cell, runs_dir(), traces=not arguments.no_traces, uri=arguments.uri) for cell in cells]
        relog_grids([cell.id for cell in cells], arguments.uri)
    except SetupError as error:
        console.fail(error)
    sys.exit(0 if all(whole) else 1)


if __name__ == "__main__":
    main()
