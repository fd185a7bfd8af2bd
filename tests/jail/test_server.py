"""Who may run a command, for how long, and what is recorded of it."""

import json
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.jail.client import CommandClient, address
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import CommandResult
from tests.jail.conftest import SPEC, Shell, marked


def ask(server: CommandServer, line: bytes) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection, address(server.socket) as path:
        connection.settimeout(20)
        connection.connect(path)
        connection.sendall(line)
        return b"".join(iter(lambda: connection.recv(65536), b""))


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "waited for 20 s"
        time.sleep(0.02)


def in_thread(client: CommandClient, command: str) -> tuple[threading.Thread, list[CommandResult]]:
    results: list[CommandResult] = []
    thread = threading.Thread(
        target=lambda: results.append(client.run(["/bin/bash", "-c", command], timeout_s=30)), daemon=True
    )
    thread.start()
    return thread, results


def test_an_unknown_token_is_refused(server: CommandServer) -> None:
    request = {"token": "0" * 32, "argv": ["/bin/true"], "timeout_s": 1}
    assert json.loads(ask(server, json.dumps(request).encode() + b"\n")) == {"refused": "unknown token"}
    result = CommandClient(server.socket, "0" * 32).run(["/bin/true"], timeout_s=1)
    assert (result.killed_by, result.error) == ("cancelled", "unknown token")


@pytest.mark.parametrize(
    "change",
    [
        {"argv": "ls"},
        {"argv": [1]},
        {"timeout_s": "soon"},
        {"timeout_s": None},
        {"timeout_s": float("nan")},
        {"timeout_s": 1e9},
    ],
)
def test_a_malformed_request_is_refused(server: CommandServer, shell: Shell, change: dict[str, object]) -> None:
    request = {"token": shell.commands.token, "argv": ["/bin/true"], "timeout_s": 1} | change
    assert json.loads(ask(server, json.dumps(request).encode() + b"\n"))["refused"].startswith("malformed request")


@pytest.mark.parametrize("line", [b"\n", b"nonsense\n", b"[]\n", b"{}\n", b"\xff\n", b'{"token": []}\n'])
def test_nonsense_is_refused_and_the_server_goes_on(server: CommandServer, shell: Shell, line: bytes) -> None:
    assert b"malformed request" in ask(server, line)
    assert shell("echo fine") == "fine\n"


def test_the_socket_is_for_its_owner(server: CommandServer) -> None:
    assert stat.S_IMODE(server.socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(server.socket.parent.stat().st_mode) == 0o700


def test_a_token_ends_with_its_attempt(server: CommandServer, folder: RunFolder, graph: Path) -> None:
    with server.attempt(folder.new_attempt(graph), Path("/dev/null")) as commands:
        assert commands.run(["/bin/true"], timeout_s=9).exit_code == 0
    assert commands.run(["/bin/true"], timeout_s=9).error == "unknown token"


def test_complete_outputs_are_numbered_and_readable_in_the_jail(fresh_shell: Shell) -> None:
    fresh_shell("seq 3")
    second = fresh_shell.result("echo two >&2; exit 4")
    assert second.output == fresh_shell.workspace.outputs_dir / "0002.txt"
    assert fresh_shell("cat /scratch/full_outputs/*") == "1\n2\n3\ntwo\n"


def test_each_command_adds_a_line_to_the_log(fresh_shell: Shell) -> None:
    fresh_shell.result("echo hi; exit 3")
    fresh_shell.result("sleep 9", timeout_s=0.3)
    first, second = (json.loads(line) for line in fresh_shell.log.read_text().splitlines())
    assert first["argv"] == ["/bin/bash", "-c", "echo hi; exit 3"]
    expected = {"number": 1, "exit_code": 3, "killed_by": None, "output": "0001.txt", "output_bytes": 3, "error": ""}
    assert {name: first[name] for name in expected} == expected
    assert abs(first["time"] - time.time()) < 60
    assert (second["number"], second["killed_by"], second["timeout_s"]) == (2, "time", 0.3)


def test_a_command_of_a_client_that_goes_away_ends(server: CommandServer, shell: Shell) -> None:
    command = "exec -a gone-marker sleep 300"
    request = {"token": shell.commands.token, "argv": ["/bin/bash", "-c", command], "timeout_s": 300}
    with socket.socket(socket.AF_UNIX) as connection, address(server.socket) as path:
        connection.connect(path)
        connection.sendall(json.dumps(request).encode() + b"\n")
        wait_until(lambda: marked("gone-marker") != [])
    wait_until(lambda: marked("gone-marker") == [])
    wait_until(lambda: '"cancelled"' in shell.log.read_text())


def test_closing_an_attempt_ends_its_commands_and_no_others(
    server: CommandServer, folder: RunFolder, graph: Path, shell: Shell
) -> None:
    other, others = in_thread(shell.commands, "sleep 1; echo fine")
    with server.attempt(folder.new_attempt(graph), Path("/dev/null")) as commands:
        thread, results = in_thread(commands, "exec -a close-marker sleep 300")
        wait_until(lambda: marked("close-marker") != [])
    assert marked("close-marker") == []
    thread.join(timeout=20)
    assert results[0].killed_by == "cancelled"
    other.join(timeout=20)
    assert others[0].output.read_text() == "fine\n"


def test_closing_the_server_ends_everything(folder: RunFolder, graph: Path, hidden: Hidden, tmp_path: Path) -> None:
    with RunFolder(tmp_path / "w") as own:
        server = CommandServer(own.path, SPEC, find_host(), hidden)
        with server.attempt(own.new_attempt(graph), Path("/dev/null")) as commands:
            thread, results = in_thread(commands, "exec -a server-marker sleep 300")
            wait_until(lambda: marked("server-marker") != [])
            server.close()
            assert marked("server-marker") == []
            thread.join(timeout=20)
        assert results[0].killed_by == "cancelled"
        assert commands.run(["/bin/true"], timeout_s=1).killed_by == "cancelled"
        server.close()
        assert [path.name for path in own.path.iterdir() if not path.is_dir()] == []


def test_no_more_commands_run_at_once_than_there_are_places(
    folder: RunFolder, graph: Path, hidden: Hidden, tmp_path: Path
) -> None:
    spec = replace(SPEC, commands_at_once=1)
    with RunFolder(tmp_path / "w") as own, CommandServer(own.path, spec, find_host(), hidden) as server:
        attempt = server.attempt(own.new_attempt(graph), tmp_path / "log")
        with attempt as commands:
            first, _ = in_thread(commands, "exec -a place-marker sleep 1.5")
            wait_until(lambda: marked("place-marker") != [])
            late = commands.run(["/bin/true"], timeout_s=0.3)
            assert (late.killed_by, late.exit_code) == ("time", 137)
            assert "place" in late.error
            assert commands.run(["/bin/true"], timeout_s=20).exit_code == 0
            first.join(timeout=20)


def test_a_client_that_stops_waiting_for_a_place_takes_none(graph: Path, hidden: Hidden, tmp_path: Path) -> None:
    spec = replace(SPEC, commands_at_once=1)
    with RunFolder(tmp_path / "w") as own, CommandServer(own.path, spec, find_host(), hidden) as server:
        attempt = server.attempt(own.new_attempt(graph), tmp_path / "log")
        with attempt as commands:
            first, _ = in_thread(commands, "exec -a wait-marker sleep 1")
            wait_until(lambda: marked("wait-marker") != [])
            request = {"token": commands.token, "argv": ["/bin/bash", "-c", "echo x > /scratch/ran"], "timeout_s": 30}
            with socket.socket(socket.AF_UNIX) as connection, address(server.socket) as path:
                connection.connect(path)
                connection.sendall(json.dumps(request).encode() + b"\n")
                time.sleep(0.2)
            first.join(timeout=20)
            assert commands.run(["/bin/ls", "/scratch/ran"], timeout_s=20).exit_code == 2
        assert (tmp_path / "log").read_text().count("\n") == 2


def test_sixty_four_attempts_work_at_once(server: CommandServer, folder: RunFolder, graph: Path) -> None:
    failures: list[object] = []

    def work(number: int) -> None:
        workspace = folder.new_attempt(graph)
        with server.attempt(workspace, Path("/dev/null")) as commands:
            result = commands.run(["/bin/bash", "-c", f"echo {number} > /scratch/n; cat /scratch/n"], timeout_s=120)
            if result.output.read_text() != f"{number}\n":
                failures.append(result)
        folder.remove(workspace)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_very_long_data_path_works(graph: Path, hidden: Hidden, tmp_path: Path) -> None:
    far = tmp_path / ("a" * 100) / ("b" * 100) / "w"
    with RunFolder(far) as own, CommandServer(own.path, SPEC, find_host(), hidden) as server:
        attempt = server.attempt(own.new_attempt(graph), tmp_path / "log")
        with attempt as commands:
            assert commands.run(["/bin/cat", "candidate_ids.txt"], timeout_s=20).output.read_text() == "0\n1\n2\n"


def test_a_log_that_cannot_be_written_is_the_sandboxs_fault(
    server: CommandServer, folder: RunFolder, graph: Path
) -> None:
    with server.attempt(folder.new_attempt(graph), Path("/dev/full")) as commands:
        result = commands.run(["/bin/true"], timeout_s=9)
    assert (result.exit_code, result.killed_by) == (255, "sandbox")
    assert "No space left" in result.error


_PARENT = """
import signal, sys
from pathlib import Path
from dkgi import signals
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from tests.jail.conftest import SPEC

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where the tests run in the background
with signals.watched(), RunFolder(Path(sys.argv[1])) as folder:
    with (
        CommandServer(folder.path, SPEC, find_host(), Hidden((), ())) as server,
        server.attempt(folder.new_attempt(Path(sys.argv[2])), Path("/dev/null")) as commands,
    ):
        commands.run(["/bin/bash", "-c", "(setsid bash -c 'exec -a kill-marker sleep 300' &) ; exec -a kill-marker sleep 300"], timeout_s=300)
"""


@pytest.mark.parametrize("signal_sent", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_outlives_the_process(graph: Path, tmp_path: Path, signal_sent: signal.Signals) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path / "w"), str(graph)],
        cwd=Path(__file__).parents[2],
        stderr=subprocess.DEVNULL,
    )
    try:
        wait_until(lambda: len(marked("kill-marker")) >= 2)
        parent.send_signal(signal_sent)
        parent.wait(timeout=20)
        wait_until(lambda: marked("kill-marker") == [])
        wait_until(lambda: marked(str(tmp_path / "w")) == [])
    finally:
        parent.kill()
        parent.wait()
    with RunFolder(tmp_path / "w") as folder:
        assert sorted(path.name for path in (tmp_path / "w").iterdir()) == sorted(
            [folder.path.name, f"{folder.path.name}.lock"]
        )
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()
