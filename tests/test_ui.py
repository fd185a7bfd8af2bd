"""`python -m dkgi.ui` serves the runs on loopback, or says in one line why it cannot."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from dkgi import tracking, ui
from dkgi.tracking import run_table
from dkgi.types import SetupError


@pytest.fixture
def port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        number: int = probe.getsockname()[1]
        return number


def test_the_server_shows_the_run_table_at_the_address_that_it_prints(tmp_path: Path, port: int) -> None:
    _, experiment = tracking.connect(tmp_path)
    environment = os.environ | {"DKGI_RUNS": str(tmp_path), "PYTHONPATH": str(Path(ui.__file__).parents[1])}
    command = [sys.executable, "-m", "dkgi.ui", "--port", str(port)]
    server = subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    try:
        assert server.stderr is not None
        line = server.stderr.readline()
        address = run_table.address(port, experiment)
        assert line == f"Runs: {address} (in a few seconds; Ctrl-C ends the server)\n"
        assert 'id="root"' in fetch(address)
        found = json.loads(fetch(f"http://127.0.0.1:{port}/api/2.0/mlflow/experiments/get?experiment_id={experiment}"))
        key = re.search("viewStateShareKey=(.*)", address)
        assert key is not None
        tags = {tag["key"]: tag["value"] for tag in found["experiment"]["tags"]}
        assert json.loads(tags[f"mlflow.sharedViewState.{key[1]}"])["searchFilter"] == "tags.`dkgi.kind` = 'cell'"
        assert sorted(path.name for path in tmp_path.iterdir() if not path.name.startswith(("mlflow.db", "."))) == []
    finally:
        server.send_signal(signal.SIGTERM)
        server.communicate(timeout=60)
    with pytest.raises(urllib.error.URLError):
        urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)


def fetch(address: str) -> str:
    """The page, once the server is there."""
    deadline = time.monotonic() + 180
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as page:
                text: str = page.read().decode()
                return text
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def test_without_a_database_nothing_is_made_and_the_way_out_is_named(tmp_path: Path, port: int) -> None:
    with pytest.raises(SetupError, match=r"mlflow\.db does not exist; run `python -m dkgi`"):
        ui.server(tmp_path / "runs", port)
    assert not (tmp_path / "runs").exists()


def test_a_taken_port_is_named_with_another_one(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not opened")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(SetupError, match=f"--port {port}: Address already in use; try .*--port {port + 1}"):
            ui.server(tmp_path, port)
