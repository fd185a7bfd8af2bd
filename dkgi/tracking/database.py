"""Where MLflow keeps what we log: a SQLite database in the runs folder, or a server that `tracking.uri` names.

>>> client, experiment = connect(runs_dir())
>>> client.get_experiment(experiment).name
'dkgi'

The database needs no other process and no network. It is made under a lock, since MLflow breaks when two processes do
that at once, and in a file beside, so that a kill leaves no half of one. SQLite keeps a write-ahead log, which halves
the time of a write and wants a local disk. A server may have several runs folders, on several machines: each finds its
own runs by a name in `.mlflow.id`. User, password and token stay in MLflow's variables, in the environment alone.
Not covered: what is written (runs.py, grids.py) and how a server is set up (docs/mlflow_server.md).
"""

import contextlib
import fcntl
import os
import sqlite3
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dkgi import signals
from dkgi.files import write_atomically
from dkgi.keys import ADDRESS_RULE, is_address
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
    # What fails is raised as well, and told in a line of ours; MLflow's own is a traceback.
    "MLFLOW_LOGGING_LEVEL": "CRITICAL",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    # Scoring waits for a server that is away: a minute at most, not MLflow's quarter of an hour.
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "20",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
}
_REDIRECTIONS = ("MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI", "MLFLOW_EXPERIMENT_NAME", "MLFLOW_EXPERIMENT_ID")


def connect(runs_dir: Path, uri: str | None = None) -> tuple[Any, str]:
    """An MlflowClient of `<runs_dir>/mlflow.db`, or of the server at `uri`, and the id of our experiment in it.

    What is missing is made. Sets MLflow's variables in this process's environment, so that nothing redirects it and it goes to no other place.
    Raises SetupError where the folder, the database or its version, or the server cannot be used.
    """
    _prepare_environment()
    if uri and not is_address(uri):
        raise SetupError(f"tracking.uri: {ADDRESS_RULE}")
    with usable(runs_dir, uri):
        runs_dir.mkdir(parents=True, exist_ok=True)
        with locked(runs_dir):
            if uri:
                return _at_server(uri)
            with signals.held():
                return _in_folder(runs_dir)


def _in_folder(runs_dir: Path) -> tuple[Any, str]:
    database = runs_dir / DATABASE
    artifacts = (runs_dir / "artifacts").as_uri()
    if not database.exists():
        create(database, artifacts)
    # SQLAlchemy would try for minutes.
    if not os.access(database, os.R_OK | os.W_OK):
        raise SetupError(f"{database}: not yours to read and write; mend its mode, or run with tracking=none")
    # MLflow has no index for a tag's value: among 71,000 runs, the few cells are found ten times sooner with one.
    with contextlib.closing(sqlite3.connect(database)) as connection:
        connection.execute("CREATE INDEX IF NOT EXISTS dkgi_tags ON tags (key, value, run_uuid)")
    from mlflow.tracking import MlflowClient

    client = MlflowClient(f"sqlite:///{database}")
    experiment = _experiment(client, artifacts)
    if experiment.artifact_location != artifacts:
        made_for = experiment.artifact_location.removesuffix("/artifacts").removeprefix("file://")
        raise SetupError(f"{database} was made for {made_for}; {_ANEW}")
    return client, experiment.experiment_id


def _at_server(uri: str) -> tuple[Any, str]:
    # What is cut while it is imported cannot be imported again, and is needed on the way out.
    with signals.held():
        from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    experiment = _experiment(client, None)
    # Any other place is one that each machine would have to reach by itself; a folder would be one of its own.
    if not experiment.artifact_location.startswith("mlflow-artifacts:"):
        raise SetupError(
            f"tracking.uri: {uri} keeps files at {experiment.artifact_location}, not behind itself; "
            f"start it with --serve-artifacts and --artifacts-destination, on a database without experiment {EXPERIMENT}"
        )
    return client, experiment.experiment_id


def folder_name(runs_dir: Path, uri: str | None) -> str:
    """What tells this folder's runs from those of others on one server; "" where it has a database to itself."""
    if not uri:
        return ""
    path = runs_dir / ".mlflow.id"
    with locked(runs_dir):
        if not path.exists():
            write_atomically(path, uuid.uuid4().hex[:16].encode())
        return path.read_text()


def _experiment(client: Any, artifacts: str | None) -> Any:
    """Our experiment, with the run table that the UI opens; of two machines that make it at once, one finds the other's."""
    from mlflow.exceptions import MlflowException

    experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None:
        with contextlib.suppress(MlflowException):
            client.create_experiment(EXPERIMENT, artifact_location=artifacts)
        experiment = client.get_experiment_by_name(EXPERIMENT)
    if experiment is None or experiment.lifecycle_stage != "active":
        raise SetupError(f"MLflow's experiment {EXPERIMENT} cannot be made or is deleted; restore it in MLflow")
    view, state = run_table.tag(run_table.KEY), run_table.state()
    if experiment.tags.get(view) != state:
        client.set_experiment_tag(experiment.experiment_id, view, state)
    return experiment


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


@contextlib.contextmanager
def usable(runs_dir: Path, uri: str | None = None) -> Iterator[None]:
    """Turn any failure into a SetupError: MLflow, SQLAlchemy, Alembic and SQLite have no exception in common."""
    try:
        yield
    except SetupError:
        raise
    except Exception as error:
        if uri:
            way_out = "start that MLflow server, name another, or run with tracking=none and relog later"
            raise SetupError(f"tracking.uri: {uri}: {brief(error)}; {way_out}") from error
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


def brief(error: Exception) -> str:
    """An error in one line: its first, which for SQLAlchemy's is the one that says something."""
    return f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:200]}"
