"""A server holds what the folder's own database would, and a folder touches no other's runs on it."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import socketserver
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

import pytest

from dkgi import tracking
from dkgi.config import load
from dkgi.types import SetupError
from tests.tracking.servers import Server, free_port, mlflow_server

if TYPE_CHECKING:
    from tests.tracking.conftest import Log


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, mlflow_tables: Path) -> Iterator[Server]:
    with mlflow_server(tmp_path_factory.mktemp("server"), mlflow_tables) as server:
        yield server


@pytest.fixture
def remote(server: Server, log: Log) -> Iterator[Log]:
    """A log on the server, in a folder that has no database; the cell's runs are gone afterwards."""
    (log.runs / "mlflow.db").unlink()
    log.uri = server.uri
    yield log
    client, experiment = tracking.connect(log.runs, server.uri)
    for run in client.search_runs([experiment], max_results=1000):
        client.delete_run(run.info.run_id)
    for trace in log.traces():
        client.delete_traces(experiment, trace_ids=[trace.info.trace_id])


def files(server: Server) -> dict[str, bytes]:
    """What the server keeps, by name, with the run's id left out."""
    return {path.name: path.read_bytes() for path in server.files.rglob("*") if path.is_file()}


def seen(log: Log) -> list[Any]:
    """All that a reader sees, without ids and times of writing."""
    found = []
    for run in [*log.found(), *log.found("cell")]:
        tags = {
            name: value for name, value in run.data.tags.items() if name not in ("mlflow.parentRunId", "dkgi.folder")
        }
        found.append([tags, run.data.metrics, run.data.params, run.info.status, run.info.run_name])
    for trace in sorted(log.traces(), key=lambda trace: trace.data.spans[0].name):
        spans = [(span.name, span.inputs, span.outputs, span.status.status_code) for span in trace.data.spans]
        found.append([trace.info.request_preview, trace.info.token_usage, trace.info.cost, spans])
    return found


def test_a_server_holds_what_the_folders_database_would(
    remote: Log, server: Server, tmp_path: Path, make_log: Callable[[Path], Log]
) -> None:
    (tmp_path / "local").mkdir()
    local = make_log(tmp_path / "local")
    for log in (local, remote):
        tracker = log.open(traces=True)
        log.write(tracker, log.result(1), log.result(2, cost_usd=None))
        tracker.finish({"hit_at_1": 0.5}, complete=True)
    assert seen(remote) == seen(local)
    assert len(seen(remote)) == 5
    kept = files(server)
    assert kept["trajectory.jsonl"] == remote.steps_path.read_bytes()
    assert "attempts: 3" in kept["config.yaml"].decode()
    assert {path.name for path in remote.runs.iterdir()} == {".mlflow.lock", ".mlflow.id"}


def test_a_cell_that_is_opened_again_finds_its_runs_on_the_server(remote: Log) -> None:
    first = remote.open()
    remote.write(first, remote.result(1))
    first.finish({}, complete=False)
    again = remote.open()
    assert again.has(remote.result(1))
    assert not again.has(remote.result(2))
    remote.write(again, remote.result(2))
    again.finish({}, complete=True)
    assert [run.info.status for run in remote.found("cell")] == ["FINISHED"]
    assert [run.data.tags["dkgi.query"] for run in remote.found()] == ["1", "2"]


def test_a_query_that_was_tried_again_replaces_its_run_files_and_trace_on_the_server(
    remote: Log, server: Server
) -> None:
    tracker = remote.open(traces=True)
    before = set(server.files.rglob("trajectory.jsonl"))
    remote.write(tracker, remote.result())
    (old,) = remote.found()
    remote.write(tracker, remote.result(started=200.0))
    (new,) = remote.found()
    assert [trace.info.trace_id for trace in remote.traces()] == [f"tr-{new.info.run_id}"]
    written = set(server.files.rglob("trajectory.jsonl")) - before
    assert [path.parent.parent.name for path in written] == [new.info.run_id] != [old.info.run_id]


def test_two_folders_keep_their_runs_of_one_cell_apart(
    remote: Log, tmp_path: Path, make_log: Callable[[Path], Log]
) -> None:
    (tmp_path / "other").mkdir()
    other = make_log(tmp_path / "other")
    other.uri = remote.uri
    first, second = remote.open(), other.open()
    remote.write(first, remote.result(1))
    assert not second.has(other.result(1))
    other.write(second, other.result(1))
    assert remote.open().has(remote.result(1))
    assert len(remote.found("cell")) == len(remote.found()) == 2
    tracking.forget(remote.cell.cell, remote.runs, remote.uri)
    (left,) = remote.found()
    assert left.data.tags["mlflow.parentRunId"] == remote.found("cell")[0].info.run_id
    assert other.open().has(other.result(1))


def test_logging_a_merged_cell_again_takes_the_runs_of_its_shards_away(
    remote: Log, tmp_path: Path, make_log: Callable[[Path], Log]
) -> None:
    (tmp_path / "other").mkdir()
    other = make_log(tmp_path / "other")
    other.uri = remote.uri
    shard = replace(remote.cell, shard="1 of 2")
    tracker = other.open(cell=shard)
    other.write(tracker, other.result(1))
    tracker.finish({}, complete=True)
    (part,) = remote.found("cell")
    assert part.info.run_name == "full_dkgi · luna · native · hpo · test · shard 1 of 2"
    assert part.data.tags["dkgi.shard"] == "1 of 2"
    tracking.forget(remote.cell.cell, remote.runs, remote.uri)
    assert remote.found("cell") == remote.found() == []


def test_a_grid_on_a_server_has_its_comparison_and_links(remote: Log, server: Server) -> None:
    remote.open().finish({"hit_at_1": 0.5}, complete=True)
    (cell,) = remote.found("cell")
    for text in ("| first |", "| second |"):
        tracker = tracking.open_grid(tracking.GridInfo("a_grid", [remote.cell.cell]), remote.runs, remote.uri)
        (_, experiment) = tracking.connect(remote.runs, remote.uri)
        assert tracker.links() == {remote.cell.cell: f"#/experiments/{experiment}/runs/{cell.info.run_id}"}
        tracker.finish(text, [{"cell": "one", "H@1": 0.5}], note=text, complete=True)
    (grid,) = remote.found("grid")
    assert (grid.info.run_name, grid.info.status) == ("a_grid", "FINISHED")
    assert "| second |" in grid.data.tags["mlflow.note.content"]
    assert files(server)["comparison.md"] == b"| second |"
    assert json.loads(files(server)["comparison.json"]) == {"columns": ["cell", "H@1"], "data": [["one", 0.5]]}
    assert remote.found("cell")[0].data.tags["dkgi.grid.a_grid"] == "yes"


# ------------------------------------------------------------------- failures


def test_a_server_that_is_not_there_is_one_line_that_names_the_key(tmp_path: Path) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    with pytest.raises(SetupError, match=rf"^tracking\.uri: {uri}: .*tracking=none") as error:
        tracking.connect(tmp_path, uri)
    assert "\n" not in str(error.value)


class _Relay(socketserver.BaseRequestHandler):
    """Passes one connection on to the server, as long as the relay is open."""

    def handle(self) -> None:
        ends = (self.request, socket.create_connection(self.server.target))  # type: ignore[attr-defined]
        self.server.connections.extend(ends)  # type: ignore[attr-defined]
        back = threading.Thread(target=_pump, args=(ends[1], ends[0]), daemon=True)
        back.start()
        _pump(*ends)
        back.join()


def _pump(source: socket.socket, target: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def test_a_server_that_goes_away_ends_no_experiment(
    log: Log, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    relay = socketserver.ThreadingTCPServer(("127.0.0.1", 0), _Relay)
    relay.daemon_threads = True
    relay.target, relay.connections = ("127.0.0.1", urlsplit(server.uri).port), []  # type: ignore[attr-defined]
    threading.Thread(target=relay.serve_forever, daemon=True).start()
    log.uri = f"http://127.0.0.1:{relay.server_address[1]}"
    tracker = log.open()
    grid = tracking.open_grid(tracking.GridInfo("a_grid", [log.cell.cell]), log.runs, log.uri)
    relay.shutdown()
    relay.socket.close()
    for connection in relay.connections:  # type: ignore[attr-defined]
        connection.close()
    log.write(tracker, log.result(1))
    tracker.finish({}, complete=True)
    assert grid.links() == {}
    grid.finish("", [], note="", complete=True)
    told = capsys.readouterr().err
    assert f"python -m dkgi.relog {log.cell.cell} --uri {log.uri}" in told
    assert "the comparison of a_grid is not up to date" in told


class _Foreign(BaseHTTPRequestHandler):
    """A server that keeps files in a folder of its own; what it was asked with is kept."""

    headers_seen: ClassVar[list[str]] = []

    def do_GET(self) -> None:
        self.headers_seen.append(self.headers.get("Authorization", ""))
        experiment = {"experiment_id": "1", "name": "dkgi", "lifecycle_stage": "active"}
        view = {"key": "mlflow.sharedViewState.dkgi", "value": tracking.run_table.state()}
        body = json.dumps({"experiment": experiment | {"artifact_location": "file:///srv/files", "tags": [view]}})
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, *_: object) -> None:
        pass


def test_a_server_whose_files_only_it_can_reach_is_refused_and_passwords_come_from_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_USERNAME", "ada")
    monkeypatch.setenv("MLFLOW_TRACKING_PASSWORD", "engine-1843")
    foreign = ThreadingHTTPServer(("127.0.0.1", 0), _Foreign)
    threading.Thread(target=foreign.serve_forever, daemon=True).start()
    try:
        with pytest.raises(SetupError, match=r"file:///srv/files.*--serve-artifacts") as error:
            tracking.connect(tmp_path, f"http://127.0.0.1:{foreign.server_port}")
    finally:
        foreign.shutdown()
        foreign.server_close()
    assert set(_Foreign.headers_seen) == {"Basic YWRhOmVuZ2luZS0xODQz"}
    assert "engine" not in str(error.value)


@pytest.mark.parametrize(
    "uri",
    ["http://ada:engine-1843@127.0.0.1:5000", "http://127.0.0.1:5000/?token=engine-1843", "sqlite:///engine-1843"],
)
def test_an_address_with_a_password_or_of_no_server_is_refused_without_being_shown(tmp_path: Path, uri: str) -> None:
    with pytest.raises(SetupError) as error:
        load([f"tracking.uri='{uri}'"])
    command = [sys.executable, "-m", "dkgi.relog", "--uri", uri]
    environment = os.environ | {"DKGI_RUNS": str(tmp_path), "PYTHONPATH": str(Path(tracking.__file__).parents[2])}
    (tmp_path / "cells" / "5d1f0c9a7e42").mkdir(parents=True)
    (tmp_path / "cells" / "5d1f0c9a7e42" / "manifest.json").write_text(
        json.dumps({"axes": {}, "config": {}, "git_commit": ""})
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    for message in (str(error.value), done.stderr.removeprefix("dkgi: ").strip()):
        assert message.startswith("tracking.uri: must be an address")
        assert "engine" not in message
