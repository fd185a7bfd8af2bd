"""MLflow's SQLite database in the runs folder: made, opened, locked; no other process and no network is needed.

>>> client, experiment = connect(runs_dir())
>>> client.get_experiment(experiment).name
'dkgi'

It is made under a lock, since MLflow breaks when two processes do that at once, and in a file beside, so that a kill
leaves no half of one. SQLite keeps a write-ahead log, which halves the time of a write and wants a local disk.
Not covered: what is written into it (runs.py).
"""

import contextlib
import fcntl
import os
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from dkgi.tracking import run_table
from dkgi.types import SetupError

EXPERIMENT = "dkgi"
DATABASE = "mlflow.db"

_LOCK_S = 300.0
_ANEW = f"delete {DATABASE} and let `python -m dkgi.relog` make it again"
_ENVIRONMENT = {
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "DO_NOT_TRACK": "true",
    "MLFLOW_MODEL_CATALOG_URI": "",
    "MLFLOW_DISABLE_AGENT_HINT": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
}
_REDIRECTIONS = ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")


def connect(runs_dir: Path) -> tuple[Any, str]:
    """An MlflowClient of `<runs_dir>/mlflow.db` and the id of our experiment, both made if they are missing.

    Sets MLflow's variables in this process's environment, so that it never goes to the network and nothing
    redirects it. Raises SetupError where the folder, the database or its version cannot be used.
    """
    _prepare_environment()
    database = runs_dir / DATABASE
    artifacts = (runs_dir / "artifacts").as_uri()
    with usable(runs_dir):
        runs_dir.mkdir(parents=True, exist_ok=True)
        with locked(runs_dir):
            if not database.exists():
                create(database, artifacts)
            # SQLAlchemy would try for minutes.
            if not os.access(database, os.R_OK | os.W_OK):
                raise SetupError(f"{database}: not yours to read and write; mend its mode, or run with tracking=none")
            from mlflow.tracking import MlflowClient

            client = MlflowClient(f"sqlite:///{database}")
            experiment = client.get_experiment_by_name(EXPERIMENT)
            if experiment is None:
                experiment = client.get_experiment(client.create_experiment(EXPERIMENT, artifact_location=artifacts))
            if experiment.tags.get(run_table.TAG) != run_table.STATE:
                client.set_experiment_tag(experiment.experiment_id, run_table.TAG, run_table.STATE)
        if experiment.artifact_location != artifacts:
            raise SetupError(f"{database} was made for {local_path(experiment.artifact_location).parent}; {_ANEW}")
    return client, experiment.experiment_id


def _prepare_environment() -> None:
    os.environ.update(_ENVIRONMENT)
    for name in _REDIRECTIONS:
        os.environ.pop(name, None)


def create(database: Path, artifacts: str) -> None:
    """A database with MLflow's tables and no experiment of ours; takes seconds. `artifacts`: URI of their folder."""
    _prepare_environment()
    from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

    fresh = database.with_suffix(".new")
    fresh.unlink(missing_ok=True)
    SqlAlchemyStore(f"sqlite:///{fresh}", artifacts).engine.dispose()
    with contextlib.closing(sqlite3.connect(fresh)) as connection:
        connection.execute("PRAGMA journal_mode=WAL")
    fresh.rename(database)


def logged_queries(runs_dir: Path, cell: str) -> dict[tuple[int, int], int]:
    """Start (Unix milliseconds) of every logged query by (number, repeat), for a cell whose run has finished.

    Reads MLflow's tables without MLflow, which takes seconds to load; empty in any doubt.
    """
    try:
        path = (runs_dir / DATABASE).as_uri()
        with contextlib.closing(sqlite3.connect(f"{path}?mode=ro", uri=True)) as connection:
            rows = connection.execute(_LOGGED, (cell,)).fetchall()
    except sqlite3.Error:
        return {}
    return {(int(number), int(repeat)): started for number, repeat, started in rows}


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


@contextlib.contextmanager
def usable(runs_dir: Path) -> Iterator[None]:
    """Turn any failure into a SetupError: MLflow, SQLAlchemy, Alembic and SQLite have no exception in common."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:
        way_out = f"make {runs_dir} writable, or {_ANEW}, or run with tracking=none"
        raise SetupError(f"{runs_dir / DATABASE}: {brief(error)}; {way_out}") from error


@contextlib.contextmanager
def locked(runs_dir: Path) -> Iterator[None]:
    """Hold `<runs_dir>/.mlflow.lock` for what two processes must not do at once, "find or create" above all."""
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


def local_path(uri: str) -> Path:
    return Path(unquote(urlsplit(uri).path))


def brief(error: Exception) -> str:
    """An error in one line: its first, which for SQLAlchemy's is the one that says something."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"
