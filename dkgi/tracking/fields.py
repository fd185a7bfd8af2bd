"""What MLflow shows of a cell and of a query: names, tags, parameters, metrics. Pure data, no mlflow.

>>> query_tags(cell, result, parent="8203b3d48ddf44cd81c5761e22cef84e")
{'dkgi.kind': 'query', 'dkgi.cell': '1a2b3c4d5e6f', 'dkgi.dataset': 'hpo', ..., 'dkgi.outcome': 'scored'}

Texts that an agent wrote are shortened and escaped for the place where the UI shows them.
Not covered: trajectories (spans.py) and the writing (runs.py).
"""

import html
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dkgi.types import Prices, QueryResult

AXES = ("dataset", "split", "harness", "tools", "model", "prompt", "sandbox")
"""What a cell is made of, in the order in which people name it."""
PARENT = "mlflow.parentRunId"
FOLDER = "dkgi.folder"
"""Which runs folder made the run of a cell or a grid, where several share a server."""
SHARD = "dkgi.shard"

_ESTIMATES = {"tools.expected"}
"""What prices a run beforehand is no parameter of it, and would lead the plots of MLflow's comparison."""
_PREVIEW = 1000
_PARAMETER = 6000
_PARAMETER_NAME = 250


@dataclass(frozen=True, slots=True)
class CellInfo:
    """What MLflow shows of a cell: its id, short names by axis (`AXES`), resolved configuration, git commit.

    `shard` is `0 of 4` where this folder has a part of the cell's queries and others have the rest, else empty.
    """

    cell: str
    axes: Mapping[str, str]
    config: Mapping[str, Any]
    git_commit: str = ""
    shard: str = ""

    @property
    def prices(self) -> Prices | None:
        prices = self.config["model"]["prices"]
        return Prices(**prices) if prices else None


def cell_name(cell: CellInfo, folder: str = "") -> str:
    """`full_dkgi · heuristic · native · hpo · test`: what differs most comes first, since lists cut names off."""
    parts = [cell.axes[axis] for axis in ("tools", "model", "harness", "dataset", "split")]
    return " · ".join([*parts, f"shard {cell.shard}"] if folder and cell.shard else parts)


def cell_tags(cell: CellInfo, folder: str = "") -> dict[str, str]:
    """The tags of a cell's run. In a database of its own a folder's shards share one run, which is then no part."""
    source = {"mlflow.source.name": "dkgi", "mlflow.source.type": "LOCAL", "mlflow.source.git.commit": cell.git_commit}
    place = {FOLDER: folder} | ({SHARD: cell.shard} if cell.shard else {}) if folder else {}
    return axis_tags(cell, kind="cell") | source | place


def grid_tag(grid: str) -> str:
    """The tag of the runs of a grid's cells; a cell may be in several grids."""
    return f"dkgi.grid.{plain(grid)}"


def grid_filter(grid: str) -> str:
    """What the runs of a grid's cells are found by."""
    return f"tags.`{grid_tag(grid)}` = 'yes'"


def grid_tags(grid: str, folder: str) -> dict[str, str]:
    """The tags of the run of a grid."""
    source = {"mlflow.source.name": "dkgi", "mlflow.source.type": "LOCAL"}
    return {"dkgi.kind": "grid", "dkgi.grid": plain(grid)} | source | ({FOLDER: folder} if folder else {})


def plain(name: str) -> str:
    """A name in the letters that MLflow's filters and tags take."""
    return re.sub(r"[^\w.\- /]", "_", name)


def cell_params(cell: CellInfo) -> dict[str, str]:
    """The configuration as `limits.attempts` -> `3`, and the axes under their short names."""
    shown = {name: value for name, value in _flat(cell.config).items() if name not in _ESTIMATES}
    return shown | {axis: cell.axes[axis] for axis in AXES}


def query_name(result: QueryResult) -> str:
    """`hpo:00017`, with `#1` for its second run under `repeats`."""
    return f"{result.dataset}:{result.number:05}" + (f" #{result.repeat}" if result.repeat else "")


def query_tags(cell: CellInfo, result: QueryResult, *, parent: str) -> dict[str, str]:
    """The tags of a query's run; its description is the question and the final message."""
    return (
        axis_tags(cell, kind="query")
        | {
            PARENT: parent,
            "dkgi.query": str(result.number),
            "dkgi.repeat": str(result.repeat),
            "dkgi.stop": result.stops[-1] if result.stops else "",
            "dkgi.outcome": result.outcome,
            "dkgi.usage": "complete" if result.usage.complete else "incomplete",
            "mlflow.note.content": f"{_escaped(preview(result.query))}\n\n{_escaped(preview(result.final_answer))}",
        }
        | ({"dkgi.flags": " ".join(result.flags)} if result.flags else {})
    )


def axis_tags(cell: CellInfo, *, kind: str) -> dict[str, str]:
    return {"dkgi.kind": kind, "dkgi.cell": cell.cell} | {f"dkgi.{axis}": cell.axes[axis] for axis in AXES}


def rounded(name: str, value: float) -> float:
    """A metric as the UI should print it, since it prints every digit: shares to 4 places, micro-dollars, else tenths."""
    return round(value, 6 if "cost" in name else 4 if value <= 1 else 1)


def preview(text: str) -> str:
    """The beginning of a text, in one line."""
    line = " ".join(text[: 2 * _PREVIEW].split())
    return line if len(line) <= _PREVIEW else f"{line[:_PREVIEW]} …"


def _escaped(text: str) -> str:
    """Text as Markdown that shows it and does nothing else: no image, markup or heading."""
    return re.sub(r"([\\`*_{}\[\]()#!~|])", r"\\\1", html.escape(text, quote=False))


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested configuration within MLflow's limits for a parameter; the artifact config.yaml has all of it."""
    params: dict[str, str] = {}
    for key, value in config.items():
        name = re.sub(r"[^\w\-. :/]", "_", f"{prefix}{key}")[:_PARAMETER_NAME]
        if isinstance(value, Mapping):
            params |= _flat(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
            params[name] = text if len(text) <= _PARAMETER else f"{text[: _PARAMETER - 1]}…"
    return params
