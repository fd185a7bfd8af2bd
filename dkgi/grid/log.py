"""A grid's comparison in MLflow: when it ends, and again from the folders of its cells.

>>> log_grid(GridInfo("quickstart_ablation", ["1a2b3c4d5e6f", "5d1f0c9a7e42"]), comparison, uri=None, complete=True)

Not covered: what MLflow shows of it (tracking/grids.py).
"""

from collections.abc import Collection

from dkgi import console, tracking
from dkgi.analysis.comparison import Comparison, compare
from dkgi.analysis.labels import label_cells
from dkgi.analysis.markdown import brief, markdown
from dkgi.analysis.summary import scored_results
from dkgi.files import read_json
from dkgi.paths import runs_dir
from dkgi.store import Cell
from dkgi.types import SetupError


def log_grid(info: tracking.GridInfo, comparison: Comparison, *, uri: str | None, complete: bool) -> None:
    """Log what the cells of `info`, in its order, have come to. Never raises."""
    tracker = tracking.open_grid(info, runs_dir(), uri)
    of_cell = tracker.links()
    links = {row.label: of_cell[one] for row, one in zip(comparison.rows, info.cells, strict=True) if one in of_cell}
    tracker.finish(markdown(comparison, links), comparison.records(), note=brief(comparison, links), complete=complete)


def relog_grids(cells: Collection[str], uri: str | None) -> None:
    """Log the grids once more that have one of `cells`, by all that is finished in their cells' folders."""
    for path in sorted((runs_dir() / "grids").glob("*/manifest.json")):
        manifest = read_json(path)
        try:
            name, jail, ids = manifest["name"], manifest["jail"], [cell["id"] for cell in manifest["cells"]]
        except (KeyError, TypeError):
            raise SetupError(f"{path}: damaged; remove it and the grid's command makes it again") from None
        if not set(ids) & set(cells):
            continue
        found = [Cell(runs_dir() / "cells" / one) for one in dict.fromkeys(ids)]
        found = [cell for cell in found if (cell.folder / "manifest.json").exists()]
        made = [cell.manifest for cell in found]
        labels = label_cells([each["axes"] for each in made], [each["config"] for each in made], [c.id for c in found])
        comparison = compare(labels, [scored_results(cell) for cell in found])
        log_grid(tracking.GridInfo(name, [cell.id for cell in found], jail), comparison, uri=uri, complete=True)
        console.stderr().print(f"grid {name} logged", soft_wrap=True)
