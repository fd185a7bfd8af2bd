"""The run of a grid: the comparison of its cells, with links to their runs, which get a tag that finds them again.

>>> tracker = GridTracker(GridInfo("quickstart_ablation", ["1a2b3c4d5e6f", "5d1f0c9a7e42"]), runs_dir(), None)
>>> tracker.links()
{'1a2b3c4d5e6f': '#/experiments/1/runs/8203b3d48ddf44cd81c5761e22cef84e', ...}
>>> tracker.finish(markdown, rows, note=brief, complete=True)

A grid has one run, however often it is gone on with. Links are those of the pages themselves, so that they hold on any
port and host. A grid whose comparison has not changed is told without loading MLflow.
Not covered: how cells compare (analysis/comparison.py).
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkgi import __version__
from dkgi.tracking import fields, run_table
from dkgi.tracking.database import connect, folder_name, locked
from dkgi.tracking.glance import cell_links, grid_digest
from dkgi.tracking.runs import cell_runs, search
from dkgi.tracking.tracker import report

Row = Mapping[str, str | float | int | None]
"""One cell in a comparison, by column."""

_NOTE = 7000
"""Characters of a comparison that is shown in the description; MLflow cuts what is over 8,000, maybe within a link."""
_COLOURS = (
    "#4269d0",
    "#efb118",
    "#ff725c",
    "#3ca951",
    "#a463f2",
    "#6cc5b0",
    "#9c6b4e",
    "#ff8ab7",
    "#97bbf5",
    "#9498a0",
)
"""The ten of Observable Plot (observable10), which people tell apart."""


@dataclass(frozen=True, slots=True)
class GridInfo:
    """What MLflow shows of a grid: its name, the ids of its cells in order, and whether its workers were jailed."""

    name: str
    cells: Sequence[str]
    jail: bool = True


class GridTracker:
    """The log of one grid, for one thread. Nothing of it raises: all can be made again from the cells' folders."""

    def __init__(self, grid: GridInfo, runs_dir: Path, uri: str | None) -> None:
        self._grid = grid
        self._runs_dir = runs_dir
        self._uri = uri
        # Only a digest of nothing tells a grid that has never been finished.
        if uri or not grid_digest(runs_dir, grid.name):
            self._try(self._open)

    def links(self) -> dict[str, str]:
        """The page of each cell's run by the cell's id, as a link for a text on a page of MLflow's UI."""
        if not self._uri:
            return cell_links(self._runs_dir, self._grid.cells)
        found: dict[str, str] = {}
        self._try(lambda: found.update(self._find_links()))
        return found

    def finish(self, markdown: str, rows: Sequence[Row], *, note: str, complete: bool) -> None:
        """Log the comparison, tag the cells' runs, and end the grid's run. `note` is its description, in Markdown."""
        self._try(lambda: self._finish(markdown, rows, note, complete=complete))

    def _try(self, action: Callable[[], object]) -> None:
        try:
            action()
        # As with cells: no failure of a log ends an experiment.
        except Exception as error:
            report(f"the comparison of {self._grid.name} is not up to date; the same command makes it again", error)

    def _finish(self, markdown: str, rows: Sequence[Row], note: str, *, complete: bool) -> None:
        grid = self._grid
        content = json.dumps([__version__, markdown, note, list(rows), list(grid.cells), grid.jail, self.links()])
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        if not self._uri and complete and grid_digest(self._runs_dir, grid.name) == digest:
            return
        client, experiment, run_id = self._open()
        self._mark_cells(client, experiment)
        key = run_table.grid_key(grid.name)
        client.set_experiment_tag(experiment, run_table.tag(key), run_table.state(fields.grid_filter(grid.name)))
        client.log_text(run_id, markdown, "comparison.md")
        client.log_text(run_id, _table(rows), "comparison.json")
        tags = {
            # So that the UI shows the file as a table.
            "mlflow.loggedArtifacts": json.dumps([{"path": "comparison.json", "type": "table"}]),
            "mlflow.note.content": _note(experiment, run_id, key, note),
            "dkgi.jail": "yes" if grid.jail else "no",
            "dkgi.cells": str(len(grid.cells)),
            "dkgi.digest": digest,
        }
        for name, value in tags.items():
            client.set_tag(run_id, name, value)
        client.set_terminated(run_id, "FINISHED" if complete else "KILLED")

    def _mark_cells(self, client: Any, experiment: str) -> None:
        """Tag the cells' runs, and give each a colour of its own: MLflow's follow from run ids, and many are alike."""
        folder = folder_name(self._runs_dir, self._uri)
        for number, cell in enumerate(self._grid.cells):
            for run in cell_runs(client, experiment, cell, folder):
                client.set_tag(run.info.run_id, fields.grid_tag(self._grid.name), "yes")
                client.set_tag(run.info.run_id, "mlflow.runColor", _COLOURS[number % len(_COLOURS)])

    def _open(self) -> tuple[Any, str, str]:
        """Find or make the grid's run, which is running again."""
        client, experiment = connect(self._runs_dir, self._uri)
        folder = folder_name(self._runs_dir, self._uri)
        tags = fields.grid_tags(self._grid.name, folder)
        query = f"tags.`dkgi.kind` = 'grid' AND tags.`dkgi.grid` = '{tags['dkgi.grid']}'"
        with locked(self._runs_dir):
            found = search(client, experiment, query, ["attributes.start_time ASC"])
            own = [run for run in found if run.data.tags.get(fields.FOLDER, "") == folder]
            run = own[0] if own else client.create_run(experiment, tags=tags, run_name=self._grid.name)
            client.update_run(run.info.run_id, status="RUNNING")
        return client, experiment, run.info.run_id

    def _find_links(self) -> dict[str, str]:
        client, experiment = connect(self._runs_dir, self._uri)
        folder = folder_name(self._runs_dir, self._uri)
        runs = {cell: cell_runs(client, experiment, cell, folder) for cell in self._grid.cells}
        return {cell: run_table.run_link(experiment, own[0].info.run_id) for cell, own in runs.items() if own}


def _note(experiment: str, run_id: str, key: str, note: str) -> str:
    """The run's description: first the ways to the grid's pages, then what it is in short, if that is short enough."""
    ways = {
        "comparison": f"{run_table.run_link(experiment, run_id)}/artifacts/comparison.md",
        "table of its cells": run_table.table_link(experiment, key),
        "charts": run_table.table_link(experiment, key, charts=True),
    }
    first = " · ".join(f"[{name}]({link})" for name, link in ways.items())
    return f"{first}\n\n{note}" if len(note) <= _NOTE else first


def _table(rows: Sequence[Row]) -> str:
    """Rows in the form that MLflow's UI shows as a table."""
    columns = list(dict.fromkeys(name for row in rows for name in row))
    return json.dumps({"columns": columns, "data": [[row.get(name) for name in columns] for row in rows]})
