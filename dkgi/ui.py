"""MLflow's UI over the runs folder, for this machine only: `make ui`, or `python -m dkgi.ui [--port 5001]`.

    Runs: http://127.0.0.1:5000/#/experiments/1/runs?viewStateShareKey=dkgi (in a few seconds; Ctrl-C ends the server)
    quickstart_ablation: http://127.0.0.1:5000/#/experiments/1/runs/8203b3d48ddf44cd81c5761e22cef84e

The latest grids follow, each with the page of its run.

Not covered: the view behind that address (tracking/run_table.py); access from other machines, for which MLflow asks
no password; and a server that is killed with SIGKILL, whose worker goes on.
"""

import argparse
import os
import socket
import sys
from itertools import islice
from pathlib import Path

from dkgi import console, signals, tracking
from dkgi.paths import runs_dir
from dkgi.tracking import run_table
from dkgi.tracking.glance import grid_links
from dkgi.types import SetupError

_GRIDS = 5
"""Grids that are named at the start."""

# Job runners are processes for features that nobody here uses; the warnings are about MLflow's own libraries.
_ENVIRONMENT = {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "PYTHONWARNINGS": "ignore"}


def server(runs: Path, port: int) -> list[str]:
    """The command of the MLflow server of `runs`. Raises SetupError without a database or a free port."""
    database = runs / tracking.DATABASE
    if not database.exists():
        raise SetupError(
            f"{database} does not exist; run `python -m dkgi`, or `python -m dkgi.relog` if there are cells"
        )
    _refuse_taken(port)
    store = f"sqlite:///{database}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--registry-store-uri", store, "--no-serve-artifacts"]
    return [*command, "--default-artifact-root", (runs / "artifacts").as_uri(), "--uvicorn-opts", "--log-level warning"]


def _refuse_taken(port: int) -> None:
    with socket.socket() as probe:
        # As the server does, so that a port on which one has just ended counts as free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError as error:
            raise SetupError(f"--port {port}: {error.strerror}; try `python -m dkgi.ui --port {port + 1}`") from None


@signals.watched()
def main() -> None:
    """Become the server that the command line of this process asks for."""
    parser = argparse.ArgumentParser(prog="python -m dkgi.ui", description="MLflow's UI over the runs folder.")
    parser.add_argument("--port", type=int, default=5000)
    port = parser.parse_args().port
    try:
        command = server(runs_dir(), port)
        _, experiment = tracking.connect(runs_dir())
    except SetupError as error:
        console.fail(error)
    address = run_table.address(port, experiment)
    console.stderr().print(f"Runs: {address} (in a few seconds; Ctrl-C ends the server)", soft_wrap=True)
    for grid, link in islice(grid_links(runs_dir()).items(), _GRIDS):
        console.stderr().print(f"{grid}: http://127.0.0.1:{port}/{link}", soft_wrap=True)
    os.execve(sys.executable, command, os.environ | _ENVIRONMENT)


if __name__ == "__main__":
    main()
