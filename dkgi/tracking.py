"""MLflow as the log of experiments: a run a cell, below it a run a query. The only importer of mlflow.

>>> tracker = open(CellInfo("1a2b3c4d5e6f", axes={"dataset": "hpo", ...}, config={...}), runs_dir())
>>> if not tracker.has(result):
...     tracker.log(result, score, folder / "steps.jsonl")
>>> tracker.finish(summary.metrics("hpo"))

The cell's folder is the truth and everything here can be made again from it (`python -m dkgi.relog`).
So a log that fails never ends an experiment, and a query that is logged again replaces what was there.
One thread writes. The database uses SQLite's write-ahead log, which wants a local disk.
Not covered: the UI (ui.py), the form of traces (spans.py), the figures of a cell (analysis/summary.py).
"""

import contextlib
import fcntl
import json
import os
import re
import shutil
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from dkgi import console, run_table
from dkgi.analysis.summary import measures
from dkgi.types import QueryResult, Score, SetupError, Step

EXPERIMENT = "dkgi"
DATABASE = "mlflow.db"
AXES = ("dataset", "split", "harness", "tools", "model", "prompt", "sandbox")
"""What a cell is made of, in the order in which people name it."""

_PARENT = "mlflow.parentRunId"
_ANEW = f"delete {DATABASE} and let `python -m dkgi.relog` make it again"
_LOCK_S = 300.0
_PATIENCE = 3
"""Failed logs after which the rest waits for the end of the run, so that a stuck database does not slow it down."""
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
_REDIRECTIONS = ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")

ReadSteps = Callable[[], Sequence[Step]]


@dataclass(frozen=True, slots=True)
class CellInfo:
    """What MLflow shows of a cell: its id, short names by axis (`AXES`), resolved configuration, git commit."""

    cell: str
    axes: Mapping[str, str]
    config: Mapping[str, Any]
    git_commit: str = ""


@dataclass(frozen=True, slots=True)
class _Child:
    run_id: str
    started_ms: int
    finished: bool


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


def open(cell: CellInfo, runs_dir: Path, *, traces: bool = False) -> "MlflowTracker":
    """The log of `cell` in `<runs_dir>/mlflow.db`, made or reopened. Raises SetupError where that cannot be."""
    client, experiment = connect(runs_dir)
    with _usable(runs_dir), _lock(runs_dir):
        parent = _reopen(client, experiment, cell.cell) or _create(client, experiment, cell)
        return MlflowTracker(client, experiment, parent, cell, traces=traces)


class MlflowTracker:
    """Writes the runs of one cell. It knows the run of each query, so that no query ever has two."""

    def __init__(self, client: Any, experiment: str, parent: str, cell: CellInfo, *, traces: bool) -> None:
        self._client = client
        self._experiment = experiment
        self._parent = parent
        self._cell = cell
        self._traces = traces
        self._children = _children(client, experiment, parent)
        self._late: list[tuple[QueryResult, Score, Path, ReadSteps]] = []

    def has(self, result: QueryResult) -> bool:
        runs = self._children.get((result.number, result.repeat), [])
        return [(run.started_ms, run.finished) for run in runs] == [(_milliseconds(result.started), True)]

    def log(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        if len(self._late) < _PATIENCE:
            try:
                self._write(result, score, steps_path, steps)
            # The one border where any failure is caught: the answer is paid for and safe in the cell's folder.
            except Exception as error:
                if not self._late:
                    _report(f"query {result.number} could not be logged, will be tried again at the end", error)
            else:
                return
        self._late.append((result, score, steps_path, steps))

    def finish(self, metrics: Mapping[str, float], *, complete: bool) -> None:
        try:
            while self._late:
                self._write(*self._late[0])
                self._late.pop(0)
            self._client.log_batch(self._parent, metrics=_metrics(metrics, round(time.time() * 1000)))
            self._client.set_terminated(self._parent, "FINISHED" if complete else "KILLED")
        except Exception as error:
            way_out = f"`python -m dkgi.relog {self._cell.cell}` logs them from the cell's folder"
            _report(f"{len(self._late)} queries and the cell's figures are not up to date; {way_out}", error)

    def _write(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        key = (result.number, result.repeat)
        for old in self._children.get(key, []):
            _discard(self._client, self._experiment, old.run_id)
        started = _milliseconds(result.started)
        ended = started + round(result.wall_s * 1000)
        name = f"{result.dataset}:{result.number:05}" + (f" #{result.repeat}" if result.repeat else "")
        run = self._client.create_run(self._experiment, started, tags=self._tags(result), run_name=name)
        run_id = run.info.run_id
        self._children[key] = [_Child(run_id, started, finished=False)]
        self._client.log_batch(run_id, metrics=_metrics(measures(result, score), ended))
        folder = _local(run.info.artifact_uri)
        folder.mkdir(parents=True)
        shutil.copyfile(steps_path, folder / "trajectory.jsonl")
        # Last: a run that is FINISHED is whole.
        self._client.set_terminated(run_id, "FINISHED", ended)
        self._children[key] = [_Child(run_id, started, finished=True)]

    def _tags(self, result: QueryResult) -> dict[str, str]:
        return _cell_tags(self._cell, kind="query") | {
            _PARENT: self._parent,
            "dkgi.query": str(result.number),
            "dkgi.repeat": str(result.repeat),
            "dkgi.stop": result.stops[-1] if result.stops else "",
            "dkgi.outcome": result.outcome,
        }


def forget(runs_dir: Path, cell: str) -> None:
    """Delete all runs, trajectories and traces of `cell`. MLflow keeps the bare rows until `mlflow gc`."""
    client, experiment = connect(runs_dir)
    for run in _search(client, experiment, f"tags.`dkgi.cell` = '{cell}'"):
        _discard(client, experiment, run.info.run_id)


def connect(runs_dir: Path) -> tuple[Any, str]:
    """An MlflowClient of `<runs_dir>/mlflow.db` and the id of our experiment, both made if they are missing.

    Raises SetupError where the folder, the database or its version cannot be used. Never goes to the network.
    """
    os.environ.update(_ENVIRONMENT)
    for name in _REDIRECTIONS:
        os.environ.pop(name, None)
    database = runs_dir / DATABASE
    artifacts = (runs_dir / "artifacts").as_uri()
    with _usable(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        with _lock(runs_dir):
            if not database.exists():
                _create_database(database, artifacts)
            from mlflow.tracking import MlflowClient

            client = MlflowClient(f"sqlite:///{database}")
            experiment = client.get_experiment_by_name(EXPERIMENT)
            if experiment is None:
                experiment = client.get_experiment(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
            if experiment.tags.get(run_table.TAG) != run_table.STATE:
                client.set_experiment_tag(experiment.experiment_id, run_table.TAG, run_table.STATE)
        if experiment.artifact_location != artifacts:
            raise SetupError(f"{database} was made for {_local(experiment.artifact_location).parent}; {_ANEW}")
    return client, experiment.experiment_id


@contextlib.contextmanager
def _usable(runs_dir: Path) -> Iterator[None]:
    """Turn any failure into a SetupError: MLflow, SQLAlchemy, Alembic and SQLite have no exception in common."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:
        way_out = f"make {runs_dir} writable, or {_ANEW}, or run with tracking=none"
        raise SetupError(f"{runs_dir / DATABASE}: {_brief(error)}; {way_out}") from error


def _create_database(database: Path, artifacts: str) -> None:
    """Make the tables in a file beside, then rename: a process killed in between leaves no half-made database."""
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    fresh = database.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    SqlAlchemyStore(f"sqlite:///{fresh}", artifacts).engine.dispose()
    with contextlib.closing(sqlite3.connect(fresh)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    fresh.rename(database)


@contextlib.contextmanager
def _lock(runs_dir: Path) -> Iterator[None]:
    """Hold `<runs_dir>/.mlflow.lock`: MLflow's set-up and "find or create" break when two processes do them at once."""
    path = runs_dir / ".mlflow.lock"
    deadline = time.monotonic() + _LOCK_S
    with path.open("w") as file:
        while True:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise SetupError(f"{path} is held by another process for {_LOCK_S:.0f} s; end that one") from None
                time.sleep(0.05)
        yield


def _reopen(client: Any, experiment: str, cell: str) -> str | None:
    found = client.search_runs(
        [experiment],
        f"tags.`dkgi.cell` = '{cell}' AND tags.`dkgi.kind` = 'cell'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    if not found:
        return None
    run_id: str = found[0].info.run_id
    client.update_run(run_id, status="RUNNING")
    return run_id


def _create(client: Any, experiment: str, cell: CellInfo) -> str:
    from mlflow.entities import Param

    tags = _cell_tags(cell, kind="cell") | {"mlflow.source.name": "dkgi", "mlflow.source.type": "LOCAL"}
    if cell.git_commit:
        tags["mlflow.source.git.commit"] = cell.git_commit
    name = " · ".join(cell.axes[axis] for axis in ("dataset", "split", "harness", "tools", "model"))
    run = client.create_run(experiment, tags=tags, run_name=name)
    run_id: str = run.info.run_id
    params = _flat(cell.config) | {axis: cell.axes[axis] for axis in AXES}
    client.log_batch(run_id, params=[Param(key, value) for key, value in params.items()])
    client.log_dict(run_id, dict(cell.config), "config.yaml")
    return run_id


def _children(client: Any, experiment: str, parent: str) -> dict[tuple[int, int], list[_Child]]:
    """The query runs of a cell by (number, repeat), those included that a dying process left open."""
    children: dict[tuple[int, int], list[_Child]] = {}
    for run in _search(client, experiment, f"tags.`{_PARENT}` = '{parent}'"):
        key = (int(run.data.tags["dkgi.query"]), int(run.data.tags["dkgi.repeat"]))
        child = _Child(run.info.run_id, run.info.start_time, run.info.status == "FINISHED")
        children.setdefault(key, []).append(child)
    return children


def _search(client: Any, experiment: str, query: str) -> list[Any]:
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment], query, max_results=1000, page_token=token)
        runs.extend(page)
        token = page.token
        if not token:
            return runs


def _discard(client: Any, experiment: str, run_id: str) -> None:
    """Take a run out of every list, with its files and its trace."""
    run = client.get_run(run_id)
    if run.info.status == "RUNNING":
        client.set_terminated(run_id, "KILLED")
    client.delete_traces(experiment, trace_ids=[f"tr-{run_id}"])
    client.delete_run(run_id)
    shutil.rmtree(_local(run.info.artifact_uri).parent, ignore_errors=True)


def _cell_tags(cell: CellInfo, *, kind: str) -> dict[str, str]:
    return {"dkgi.kind": kind, "dkgi.cell": cell.cell} | {f"dkgi.{axis}": cell.axes[axis] for axis in AXES}


def _metrics(values: Mapping[str, float], at_ms: int) -> list[Any]:
    """Rounded, since the UI prints every digit; a later value of the same metric wins by its time."""
    from mlflow.entities import Metric

    return [Metric(name, round(value, 8 if "cost" in name else 4), at_ms, 0) for name, value in values.items()]


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """Nested configuration as `limits.attempts` -> `3`, within MLflow's limits for a parameter; config.yaml has all."""
    params: dict[str, str] = {}
    for key, value in config.items():
        name = re.sub(r"[^\w\-. :/]", "_", f"{prefix}{key}")[:250]
        if isinstance(value, Mapping):
            params |= _flat(value, f"{name}.")
        else:
            text = value if isinstance(value, str) else json.dumps(value, default=str)
            params[name] = text if len(text) <= 6000 else text[:5999] + "…"
    return params


def _local(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


def _brief(error: Exception) -> str:
    """The first line of an error, which for SQLAlchemy's is the one that says something."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"


def _report(message: str, error: Exception) -> None:
    console.stderr().print(f"MLflow: {message} ({_brief(error)})", soft_wrap=True)
