"""Files of a run: in the folder beside the database, or behind the server that the runs are on.

>>> put(client, run, "trajectory.jsonl", folder / "steps.jsonl")
>>> remove(client, run)

A server gets files over HTTP and keeps them where it was told to; no machine needs a way of its own to that place.
Not covered: files that MLflow makes out of values (log_dict, log_text of its client).
"""

import contextlib
import shutil
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit


def put(client: Any, run: Any, name: str, path: Path) -> None:
    """Copy the text file at `path` to the run's files, as `name`."""
    folder = local_path(run.info.artifact_uri)
    if folder is None:
        client.log_text(run.info.run_id, path.read_text(), name)
    else:
        folder.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, folder / name)


def remove(client: Any, run: Any) -> None:
    """Take the run's files away, as far as they are still there."""
    folder = local_path(run.info.artifact_uri)
    if folder is not None:
        shutil.rmtree(folder.parent, ignore_errors=True)
        return
    from mlflow.exceptions import MlflowException
    from mlflow.store.artifact.artifact_repository_registry import get_artifact_repository

    # A server also answers with an error where a run never had a file.
    with contextlib.suppress(MlflowException, OSError):
        get_artifact_repository(run.info.artifact_uri, tracking_uri=client.tracking_uri).delete_artifacts()


def local_path(uri: str) -> Path | None:
    """The folder of a `file:` URI; None where a server keeps the files."""
    parts = urlsplit(uri)
    return Path(unquote(parts.path)) if parts.scheme == "file" else None
