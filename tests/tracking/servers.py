"""A real `mlflow server` on loopback, for tests of what is logged to one."""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STARTS_S = 180
ENVIRONMENT = {
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PYTHONWARNINGS": "ignore",
}


@dataclass(frozen=True)
class Server:
    uri: str
    files: Path
    process: subprocess.Popen[bytes]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


@contextlib.contextmanager
def mlflow_server(folder: Path, tables: Path) -> Iterator[Server]:
    """A server with a database and a folder for files of its own, in `folder`."""
    shutil.copyfile(tables, folder / "server.db")
    port, store = free_port(), f"sqlite:///{folder / 'server.db'}"
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", store, "--registry-store-uri", store, "--uvicorn-opts", "--log-level error"]
    command += ["--serve-artifacts", "--artifacts-destination", str(folder / "files")]
    with (folder / "server.log").open("wb") as log:
        process = subprocess.Popen(
            command, stdout=log, stderr=log, env=os.environ | ENVIRONMENT, cwd=folder, start_new_session=True
        )
    try:
        server = Server(f"http://127.0.0.1:{port}", folder / "files", process)
        _wait(server)
        yield server
    finally:
        # The server's own group: its worker outlives it otherwise.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait(timeout=60)


def _wait(server: Server) -> None:
    deadline = time.monotonic() + STARTS_S
    while True:
        try:
            with urllib.request.urlopen(f"{server.uri}/health", timeout=10):
                return
        except OSError:
            assert server.process.poll() is None, "the server ended"
            assert time.monotonic() < deadline, "the server does not answer"
            time.sleep(0.2)
