"""What MLflow's database in a runs folder holds, read as other programs may: by MLflow's own client.

>>> [run.info.status for run in logged_runs(tmp_path / "runs")]
['FINISHED', 'FINISHED']

Starting another program to read it takes seconds. Not covered: traces and files (tests/tracking).
"""

import os
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any


def logged_runs(runs: Path) -> list[Any]:
    """All runs of our experiment. From a copy: MLflow keeps a database open, also one that is made again later."""
    # Read when MLflow is loaded: what is ours in this process finds it as it wants it.
    os.environ |= {"MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_LOGGING_LEVEL": "CRITICAL"}
    from mlflow.tracking import MlflowClient

    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "mlflow.db"
        with (
            closing(sqlite3.connect(f"file:{runs}/mlflow.db?mode=ro", uri=True)) as found,
            closing(sqlite3.connect(copy)) as into,
        ):
            found.backup(into)
        client = MlflowClient(f"sqlite:///{copy}")
        experiment = client.get_experiment_by_name("dkgi").experiment_id
        return list(client.search_runs([experiment], max_results=5000))
