"""A cell that is checked and priced and not begun: what `python -m dkgi` and grids of cells make of a configuration.

>>> plan = make_plan(load(["limit=5"]))
>>> plan.id, len(plan.queries)
('1fc2ae772239', 5)

Not covered: jails (seats.py); answering (experiment.py, grid/).
"""

import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from dkgi import __version__, console
from dkgi.config import RUN_KEYS, USD_CAPS, Experiment, cell_id
from dkgi.dataset import Dataset, prepare
from dkgi.harness import open_harness
from dkgi.kg.bm25 import PARAMETERS
from dkgi.kg.index import Index, open_index
from dkgi.kg.tools import graph_tools
from dkgi.metrics import NodesOf, node_of
from dkgi.names import read_names
from dkgi.paths import cache_dir, runs_dir
from dkgi.pricing import dollars
from dkgi.prompt import check_prompt, prompt_digest
from dkgi.seats import Seats, telling_names
from dkgi.store import Cell, open_cell
from dkgi.tools import GRAPH_TOOLS
from dkgi.types import Prices, Query

Entry = tuple[Query, int]
"""A query and which of its repeats."""


@dataclass(frozen=True)
class Plan:
    """What a run of a cell needs to know before it begins. `index` is None where the policy has no graph tools."""

    experiment: Experiment
    dataset: Dataset
    queries: tuple[Query, ...]
    digests: Mapping[str, str]
    index: Index | None

    @cached_property
    def id(self) -> str:
        return cell_id(self.experiment, self.digests)

    @property
    def cell(self) -> Cell:
        """Its folder, which need not exist."""
        return Cell(runs_dir() / "cells" / self.id)

    @property
    def label(self) -> str:
        """The axes that people name a cell by."""
        axes = self.experiment.axes
        return " · ".join(axes[axis] for axis in ("dataset", "split", "harness", "tools", "model"))

    @property
    def config(self) -> dict[str, Any]:
        """The configuration, without what says how much to run and to spend."""
        return self.experiment.model_dump(mode="json", exclude={**dict.fromkeys(RUN_KEYS, True), "limits": USD_CAPS})

    @property
    def engine(self) -> str:
        """What graph tools search with, and its parameters, as JSON; empty where there are none."""
        if self.index is None:
            return ""
        return json.dumps({key: self.index.manifest[key] for key in ("engine", *PARAMETERS)})

    @property
    def wanted(self) -> list[Entry]:
        """All that is asked for, finished or not: repeat by repeat, so that an early end leaves whole repeats."""
        return [(query, repeat) for repeat in range(self.experiment.repeats) for query in self.queries]

    def unfinished(self) -> list[Entry]:
        """What is still to do, what was begun first."""
        again = {"none": (), "infra": ("failed_infra",), "failed": ("failed_infra", "failed_agent")}
        cell, todo = self.cell, []
        for query, repeat in self.wanted:
            result = cell.result(query.number, repeat)
            if result is None or result.outcome in again[self.experiment.retry]:
                todo.append((query, repeat))
        return sorted(todo, key=lambda entry: not cell.query_folder(entry[0].number, entry[1]).exists())

    def open_seats(self) -> Seats:
        """Places for attempts, proved to hold. Raises SetupError where a jail cannot."""
        offered = graph_tools(self.index) if self.index else {}
        return Seats(self.experiment, self.dataset.export, cache_dir(), offered, self.engine)

    def open_cell(self, programs: Mapping[str, str]) -> Cell:
        """Its folder, made where there is none; `programs` are the versions of what agents get."""
        cell = open_cell(runs_dir(), self.id, self._manifest(programs))
        _warn_of_other_code(cell)
        return cell

    def nodes_of(self) -> NodesOf:
        """What an entry of an answer stands for."""
        spec = self.experiment
        return read_names(self.dataset.export, spec.dataset.index.names) if spec.prompt.names else node_of

    def _manifest(self, programs: Mapping[str, str]) -> dict[str, Any]:
        """What a cell is and where it was made; written once, at its first run."""
        spec = self.experiment
        return {
            "agent_programs": programs,
            "index": dict(self.index.manifest) if self.index else None,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "dkgi_version": __version__,
            "git_commit": _git_commit(),
            "config": self.config,
            "axes": spec.axes,
            "digests": dict(self.digests),
            "python": platform.python_version(),
            "machine": {"system": platform.platform(), "processor": platform.machine()},
        }


def make_plan(experiment: Experiment) -> Plan:
    """Check what can be checked without a jail or a model. Makes the data set and its index where they are missing.

    Raises SetupError.
    """
    harness = open_harness(experiment.harness)
    harness.check(experiment.tools)
    check_prompt(experiment.prompt, experiment.told, telling_names(experiment))
    dataset = prepare(experiment.dataset, cache_dir())
    # First the limit, then the shard: all shards together are what one run would answer.
    selected = dataset.queries(experiment.dataset.split)[: experiment.limit]
    queries = [query for query in selected if experiment.shard.holds(dataset.name, query.number)]
    digests = {
        "export": dataset.export_digest,
        "queries": dataset.queries_digest,
        "labels": dataset.labels_digest,
        "prompts": prompt_digest(experiment.prompt, experiment.told),
    }
    index = _index(experiment, dataset)
    if index:
        digests["index"] = hashlib.sha256(json.dumps(index.manifest, sort_keys=True).encode()).hexdigest()
    return Plan(experiment, dataset, tuple(queries), digests, index)


def spent(cells: Iterable[Cell]) -> tuple[float, int]:
    """Dollars and tokens that all runs of these cells have cost; those that do not exist cost nothing."""
    usd, tokens = 0.0, 0
    for cell in cells:
        if not (cell.folder / "manifest.json").exists():
            continue
        prices = cell.manifest["config"]["model"].get("prices")
        for usage in cell.spent().values():
            usd += dollars(usage, Prices(**prices) if prices else None) or 0.0
            tokens += usage.input_tokens + usage.output
    return usd, tokens


def spent_usd(experiment: Experiment, cell: Cell) -> float:
    """Dollars that all earlier runs of the cell have cost; also those whose queries are not finished."""
    return sum(dollars(usage, experiment.model.prices) or 0.0 for usage in cell.spent().values())


def _index(experiment: Experiment, dataset: Dataset) -> Index | None:
    """What the graph tools of the policy look into; None where it has none of them."""
    policy = experiment.tools
    if not policy.client and not set(policy.tools) & set(GRAPH_TOOLS):
        return None
    return open_index(dataset.export, experiment.dataset.index, cache_dir())


def _git_commit() -> str:
    """Commit of the checkout that this code runs from, or an empty string."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    # Not the whole environment, which holds the key.
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=environment)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _warn_of_other_code(cell: Cell) -> None:
    """Code is not part of a cell's identity; say so where a cell goes on under another version of it."""
    made_with = (cell.manifest["dkgi_version"], cell.manifest["git_commit"])
    if made_with != (__version__, _git_commit()):
        made = made_with[1][:12] or made_with[0]
        console.stderr().print(f"cell {cell.id} was begun with another version of dkgi ({made})", soft_wrap=True)
