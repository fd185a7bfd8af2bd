"""What the database already holds, read with SQLite alone: MLflow takes seconds to load, and then often for nothing.

>>> logged_queries(runs_dir(), "1a2b3c4d5e6f")
{(17, 0): 1754000000123, ...}

Every look is empty in any doubt, and whoever asked opens the log as usual.
Not covered: logs on a server, which are always opened.
"""

import contextlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dkgi.tracking import run_table
from dkgi.tracking.database import DATABASE
from dkgi.tracking.fields import plain


def logged_queries(runs_dir: Path, cell: str) -> dict[tuple[int, int], int]:
    """Start (Unix milliseconds) of every logged query by (number, repeat), for a cell whose run has finished."""
    rows = _ask(runs_dir, _LOGGED, (cell,))
    return {(int(number), int(repeat)): started for number, repeat, started in rows}


def cell_links(runs_dir: Path, cells: Sequence[str]) -> dict[str, str]:
    """The page of each cell's run, by the cell's id."""
    rows = _ask(runs_dir, _LATEST, ("cell",))
    return {cell: run_table.run_link(str(experiment), run) for cell, experiment, run in rows if cell in cells}


def grid_digest(runs_dir: Path, grid: str) -> str:
    """What the finished run of a grid was made from, as its tag `dkgi.digest` says."""
    return next((digest for (digest,) in _ask(runs_dir, _GRID, (plain(grid),))), "")


def grid_links(runs_dir: Path) -> dict[str, str]:
    """The page of each grid's run by the grid's name, latest first."""
    return {
        grid: run_table.run_link(str(experiment), run) for grid, experiment, run in _ask(runs_dir, _LATEST, ("grid",))
    }


def _ask(runs_dir: Path, query: str, values: tuple[str, ...]) -> list[Any]:
    try:
        path = (runs_dir / DATABASE).as_uri()
        with contextlib.closing(sqlite3.connect(f"{path}?mode=ro", uri=True)) as connection:
            return connection.execute(query, values).fetchall()
    except sqlite3.Error:
        return []


_LOGGED = """
SELECT number.value, repeat.value, child.start_time
FROM tags AS cell
JOIN runs AS parent ON parent.run_uuid = cell.run_uuid AND parent.status = 'FINISHED'
JOIN tags AS kind ON kind.run_uuid = parent.run_uuid AND kind.key = 'dkgi.kind' AND kind.value = 'cell'
JOIN tags AS link ON link.key = 'mlflow.parentRunId' AND link.value = parent.run_uuid
JOIN runs AS child ON child.run_uuid = link.run_uuid AND child.status = 'FINISHED'
JOIN tags AS number ON number.run_uuid = child.run_uuid AND number.key = 'dkgi.query'
JOIN tags AS repeat ON repeat.run_uuid = child.run_uuid AND repeat.key = 'dkgi.repeat'
WHERE cell.key = 'dkgi.cell' AND cell.value = ?
AND parent.lifecycle_stage = 'active' AND child.lifecycle_stage = 'active'
"""
_LATEST = """
SELECT name.value, run.experiment_id, run.run_uuid
FROM tags AS kind
JOIN runs AS run ON run.run_uuid = kind.run_uuid AND run.lifecycle_stage = 'active'
JOIN tags AS name ON name.run_uuid = run.run_uuid AND name.key = 'dkgi.' || kind.value
WHERE kind.key = 'dkgi.kind' AND kind.value = ?
ORDER BY run.start_time DESC
"""
_GRID = """
SELECT digest.value
FROM tags AS grid
JOIN runs AS run ON run.run_uuid = grid.run_uuid AND run.status = 'FINISHED' AND run.lifecycle_stage = 'active'
JOIN tags AS kind ON kind.run_uuid = run.run_uuid AND kind.key = 'dkgi.kind' AND kind.value = 'grid'
JOIN tags AS digest ON digest.run_uuid = run.run_uuid AND digest.key = 'dkgi.digest'
WHERE grid.key = 'dkgi.grid' AND grid.value = ?
"""
