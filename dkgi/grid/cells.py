"""A grid of cells before it runs: composed, checked and priced as a whole, so that a fault in the last cell costs nothing.

>>> grid = make_grid("quickstart_ablation", [(["tools=full_dkgi"], config), (["tools=no_edges"], other)])
>>> [cell.label for cell in grid.cells]
['full_dkgi', 'no_edges']

    grids/quickstart_ablation/manifest.json    which cells, in which order, and those that earlier commands had
    grids/quickstart_ablation/conf/, prompts/  as they were when the command was given: later edits change nothing

A cell's identity is its content, so the same command again finds what is done, and a changed option is a new cell.
Not covered: running it (parent.py).
"""

import fcntl
import hashlib
import os
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import orjson
from omegaconf import DictConfig

from dkgi import console, paths
from dkgi.analysis.labels import label_cells
from dkgi.config import RUN_KEYS, USD_CAPS, Experiment, build
from dkgi.files import cannot_write, read_json, sync_folder, write_atomically
from dkgi.models import open_models
from dkgi.plan import Plan, make_plan
from dkgi.pricing import expected_dollars
from dkgi.types import SetupError

SHARED = ("tracking", "dry_run", "limits.usd_grid", "limits.tokens_grid")
"""What all cells of a grid have to agree in."""
_FROZEN = ("conf", "prompts")
_WAIT_S = 7 * 86_400.0
_POLL_S = 0.5
_LONGEST_NAME = 80


@dataclass(frozen=True, slots=True)
class GridCell:
    """One cell, or a shard of one. `overrides` are what the command set for it and not for all; `label` tells it from the others."""

    plan: Plan
    overrides: tuple[str, ...]
    label: str


@dataclass(frozen=True, slots=True)
class Grid:
    name: str
    cells: tuple[GridCell, ...]

    @property
    def folder(self) -> Path:
        return grid_folder(self.name)

    @property
    def experiment(self) -> Experiment:
        """Any of them, for what all agree in."""
        return self.cells[0].plan.experiment

    @property
    def ids(self) -> list[str]:
        """The cells in their order; that of several shards once."""
        return list(dict.fromkeys(cell.plan.id for cell in self.cells))

    def earlier(self) -> list[str]:
        """Cells that former commands of this grid had and this one has not; what they cost counts."""
        last, before = self._known()
        return [one for one in dict.fromkeys([*before, *last]) if one not in self.ids]

    def left_out(self) -> int:
        """How many cells the last command of this grid had that this one has not."""
        last, _ = self._known()
        return len(set(last) - set(self.ids))

    def _known(self) -> tuple[list[str], list[str]]:
        """The cells of the last command of this grid, and those that only earlier ones had."""
        path = self.folder / "manifest.json"
        if not path.exists():
            return [], []
        manifest = read_json(path)
        try:
            return [cell["id"] for cell in manifest["cells"]], list(manifest["earlier"])
        except (KeyError, TypeError):
            raise SetupError(f"{path}: damaged; remove it and it is made again") from None

    def write_manifest(self, *, jail: bool) -> None:
        cells = [
            {
                "id": cell.plan.id,
                "label": cell.label,
                "axes": cell.plan.experiment.axes,
                "overrides": list(cell.overrides),
                "shard": [cell.plan.experiment.shard.index, cell.plan.experiment.shard.count],
            }
            for cell in self.cells
        ]
        manifest = {
            "name": self.name,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "jail": jail,
            "cells": cells,
            "earlier": self.earlier(),
        }
        write_atomically(self.folder / "manifest.json", orjson.dumps(manifest, option=orjson.OPT_INDENT_2))


def grid_folder(name: str) -> Path:
    return paths.runs_dir() / "grids" / name


def grid_name(experiment: str | None, given: Sequence[str], jobs: Sequence[Sequence[str]]) -> str:
    """The name of an experiment, with what the command has set otherwise (`given`); without an experiment a name that the
    same command always has.

    >>> grid_name("quickstart_ablation", ["experiment=quickstart_ablation", "model=luna", "limit=100"], jobs)
    'quickstart_ablation-model_luna'

    How much is run and spent is no part of it: a command that is given again with a higher cap goes on with its grid.
    """
    if experiment:
        other = sorted(override for override in filter(_names, given) if not override.startswith("experiment="))
        name = "-".join([experiment, *(re.sub(r"[^A-Za-z0-9.]+", "_", override) for override in other)])
        return name if len(name) <= _LONGEST_NAME else f"{experiment}-{_digest(other)}"
    return f"multirun-{_digest(sorted(sorted(filter(_names, job)) for job in jobs))}"


def _digest(value: object) -> str:
    return hashlib.sha256(orjson.dumps(value)).hexdigest()[:8]


def _names(override: str) -> bool:
    """Whether an override says what is run, and not how much of it."""
    key = override.lstrip("+~").partition("=")[0]
    return key.partition(".")[0] not in RUN_KEYS and key not in {f"limits.{cap}" for cap in USD_CAPS}


def make_grid(name: str, jobs: Sequence[tuple[Sequence[str], DictConfig]]) -> Grid:
    """Check all cells. Raises SetupError with a line for each fault, which names the cell's overrides."""
    faults: dict[str, list[str]] = {}
    plans: list[tuple[tuple[str, ...], Plan]] = []
    common = set.intersection(*(set(overrides) for overrides, _ in jobs))
    for job, config in jobs:
        overrides = [override for override in job if override not in common] or list(job)
        try:
            experiment = build(config)
            if not experiment.dry_run:
                open_models(experiment.model)
            plans.append((tuple(overrides), make_plan(experiment)))
        except SetupError as error:
            for line in str(error).splitlines():
                faults.setdefault(line, []).append(" ".join(overrides))
    told = [
        line if len(owners) == len(jobs) else f"{owner}: {line}"
        for line, owners in faults.items()
        for owner in (owners[:1] if len(owners) == len(jobs) else owners)
    ]
    told += _disagreements(plans)
    if told:
        raise SetupError("\n".join(told))
    labels = label_cells(
        [plan.experiment.axes | _shard_axis(plan) for _, plan in plans],
        [plan.config for _, plan in plans],
        [plan.id for _, plan in plans],
    )
    return Grid(
        name,
        tuple(GridCell(plan, overrides, label) for (overrides, plan), label in zip(plans, labels, strict=True)),
    )


def _shard_axis(plan: Plan) -> dict[str, str]:
    shard = plan.experiment.shard
    return {"shard": "" if shard.whole else f"shard {shard.index} of {shard.count}"}


def _disagreements(plans: Sequence[tuple[tuple[str, ...], Plan]]) -> Iterator[str]:
    """What cannot be of a grid: one cell twice, or values that must be the same in all."""
    seen: dict[str, list[tuple[tuple[str, ...], Plan]]] = {}
    for overrides, plan in plans:
        for other, earlier in seen.setdefault(plan.id, []):
            if plan.experiment.shard.overlaps(earlier.experiment.shard):
                yield f"{' '.join(overrides)}: the same cell as {' '.join(other)}; leave one out"
        seen[plan.id].append((overrides, plan))
    for key in SHARED:
        values = {orjson.dumps(_value(plan.experiment, key)) for _, plan in plans}
        if len(values) > 1:
            yield f"{key}: must be the same in all cells of a grid"


def _value(experiment: Experiment, key: str) -> object:
    value: object = experiment
    for part in key.split("."):
        value = getattr(value, part)
    return value


def price(grid: Grid) -> float | None:
    """Dollars that what is not finished may be expected to cost; None where a model has no price."""
    total = 0.0
    for cell in grid.cells:
        spec = cell.plan.experiment
        each = expected_dollars(spec.tools, spec.model.prices)
        if each is None:
            return None
        total += each * len(cell.plan.unfinished())
    return total


@contextmanager
def held_folder(name: str) -> Iterator[Path]:
    """The folder of a grid, for this process alone: another one that runs the same grid is waited for."""
    folder = grid_folder(name)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("a+")
    except OSError as error:
        raise cannot_write(error, folder) from error
    with file:
        deadline, told = time.monotonic() + _WAIT_S, False
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                file.seek(0)
                owner = file.read().strip() or "another process"
            if time.monotonic() >= deadline:
                raise SetupError(f"{folder / 'lock'}: the grid is being run by {owner}; end it and start again")
            if not told:
                console.stderr().print(f"grid {name} is being run by {owner}: waiting for it", soft_wrap=True)
                told = True
            time.sleep(_POLL_S)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {os.uname().nodename}\n")
        file.flush()
        yield folder


def freeze(folder: Path) -> None:
    """Copy conf/ and prompts/, those of `DKGI_CONF` over the shipped ones, and let this process read them from there."""
    try:
        for name in _FROZEN:
            fresh = folder / f".{name}.new"
            shutil.rmtree(fresh, ignore_errors=True)
            shutil.copytree(paths.data_dir(name), fresh)
            for user in reversed(paths.user_folders()):
                _overlay(user, name, fresh)
            shutil.rmtree(folder / name, ignore_errors=True)
            fresh.rename(folder / name)
        sync_folder(folder)
    except OSError as error:
        raise cannot_write(error, folder) from error
    paths.freeze(folder)


def _overlay(user: Path, name: str, fresh: Path) -> None:
    """A folder of the user's own has its options beside a folder prompts/."""
    source = user if name == "conf" else user / name
    if source.is_dir():
        ignored = shutil.ignore_patterns("prompts") if name == "conf" else None
        shutil.copytree(source, fresh, dirs_exist_ok=True, ignore=ignored)
