"""A long-lived program in a jail, started here and from another process: pipes, what it sees, limits, nothing left of it."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pytest

from dkgi.jail.external import AttemptPrograms
from dkgi.jail.scratch import RunFolder
from dkgi.listener import listen
from dkgi.types import CliBox, Program, ProgramStarter, SandboxError, Workspace
from tests.jail.conftest import kill_jail_of, make_graph, marked
from tests.jail.outer import run_inside
from tests.programs import host_of

Start = Callable[..., AbstractContextManager[Program]]


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with RunFolder(tmp_path / "w") as folder:
        yield folder.new_attempt(make_graph(tmp_path / "graph"))


@pytest.fixture
def box(tmp_path: Path) -> CliBox:
    environment = (("PATH", "/usr/bin:/bin"), ("HOME", "/run/home"))
    return CliBox(((tmp_path / "graph", "/graph"),), "/run/home", "/graph", environment, 30, 400)


@pytest.fixture
def here(workspace: Workspace) -> AttemptPrograms:
    return AttemptPrograms(workspace)


@pytest.fixture
def remote(here: AttemptPrograms, tmp_path: Path) -> Iterator[ProgramStarter]:
    with host_of(tmp_path / "host", here, [tmp_path]) as programs:
        yield programs


@pytest.fixture(params=["here", "remote"])
def start(box: CliBox, request: pytest.FixtureRequest) -> Start:
    programs: ProgramStarter = request.getfixturevalue(request.param)

    def start(command: str, **changes: Any) -> AbstractContextManager[Program]:
        return programs.start(replace(box, **changes), ["/bin/bash", "-c", command])

    return start


def printed(process: Program) -> str:
    process.stdin.close()
    return process.stdout.read().decode()


def test_one_talks_to_it_through_pipes_and_the_exit_code_is_its_own(start: Start) -> None:
    with start("while read -r x; do echo got $x; done; echo oh >&2; exit 7") as process:
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        assert process.wait(10) == 7
        assert (process.told(), process.killed_by) == ("oh", None)


def test_it_sees_its_own_folders_and_environment_and_nothing_of_the_host(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    look = f"env; echo; ls / /run; ls {tmp_path} 2>&1; touch /run/home/x && echo written; touch /graph/x || true"
    with start(look) as process:
        text, told = printed(process), process.told()
        (written,) = (tmp_path / "w").glob("*/*/cli/home/x")
        owner = written.stat().st_uid
    assert "sk-secret" not in text
    names = {line.partition("=")[0] for line in text.partition("\n\n")[0].splitlines()}
    assert names <= {"PATH", "HOME", "PWD", "SHLVL", "_", "OLDPWD"}
    assert text.count("No such file or directory") == 1
    assert "written" in text
    assert "Read-only file system" in told
    assert owner not in (0, os.geteuid()) if os.geteuid() == 0 else owner == os.geteuid()


NETWORK = """
import socket
inside = socket.create_server(("127.0.0.1", 0))
socket.create_connection(inside.getsockname(), 5)
print("loopback")
for address in (("127.0.0.1", PORT), ("192.0.2.1", 80)):
    try:
        socket.create_connection(address, 5)
        print("reached", address)
    except OSError as error:
        print("no", type(error).__name__)
for family in (40, 38, 17):
    try:
        socket.socket(family, socket.SOCK_STREAM)
        print("made", family)
    except OSError:
        pass
model = socket.socket(socket.AF_UNIX)
model.connect("/run/door")
print(model.recv(5).decode())
"""


def test_its_network_is_its_own_loopback_and_the_sockets_of_its_box(start: Start, tmp_path: Path) -> None:
    listener = listen(tmp_path / "door", 0o666)

    def answer() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"model")

    threading.Thread(target=answer, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as outside:
        program = NETWORK.replace("PORT", str(outside.getsockname()[1]))
        with start(f"python3 - <<'P'\n{program}\nP", read_only=((tmp_path / "door", "/run/door"),), cwd="/") as process:
            text = printed(process)
    listener.close()
    assert text.split() == ["loopback", "no", "ConnectionRefusedError", "no", "OSError", "model"]


def test_leaving_kills_all_that_it_started(start: Start) -> None:
    marker = f"cli-marker-{os.getpid()}"
    with start(f"(setsid bash -c 'exec -a {marker} sleep 300' &) ; exec -a {marker} sleep 300") as process:
        while not marked(marker):
            time.sleep(0.05)
        process.stdin.close()
        left = time.monotonic()
    assert time.monotonic() - left < 10
    assert marked(marker) == []


@pytest.mark.parametrize(
    ("command", "wall_s", "limit"),
    [
        ("trap '' TERM; sleep 60; sleep 60", 1, "time"),
        ("python3 -c 'import time; x = b\"1\" * (600 << 20); time.sleep(60)'", 30, "memory"),
        ("head -c 50M /dev/zero > /run/home/x; sleep 60", 30, "scratch"),
        ("head -c 50M /dev/zero > /scratch/x; sleep 60", 30, "scratch"),
    ],
)
def test_past_a_limit_all_of_it_is_killed_and_says_why(start: Start, command: str, wall_s: float, limit: str) -> None:
    with start(command, wall_s=wall_s, scratch_mb=40, folders=True) as process:
        assert process.wait(20) != 0
        assert process.killed_by == limit


@pytest.mark.parametrize(("nested", "text"), [(True, "made\n0\n"), (False, "")])
def test_only_a_nested_one_makes_namespaces(start: Start, nested: bool, text: str) -> None:
    with start("unshare -U true && echo made; unshare -Urmpf --mount-proc id -u", nested=nested) as process:
        assert printed(process) == text


def test_a_jail_that_does_not_start_is_a_fault_of_the_sandbox(start: Start) -> None:
    with pytest.raises(SandboxError, match="nowhere"), start("true", cwd="/nowhere"):
        pass


def test_it_finds_its_files_and_what_it_kept_is_gone_afterwards(start: Start, workspace: Workspace) -> None:
    look = "cat /run/home/a; ls -A /graph /run; echo kept > /run/home/b; ln -s / /run/home/c; echo kept > /scratch/d"
    with start(look, files=(("a", "hello\n"),), read_only=(), empty="/graph", folders=True) as process:
        assert printed(process) == "hello\n/graph:\n\n/run:\nhome\n"
    assert sorted(path.name for path in workspace.scratch_dir.parent.iterdir()) == ["outputs", "scratch", "tmp"]
    assert (workspace.scratch_dir / "d").read_text() == "kept\n"


def test_of_one_attempt_no_two_run_at_a_time(start: Start) -> None:
    with start("sleep 60"), pytest.raises(SandboxError, match="runs already"), start("true"):
        pass
    with start("exit 3") as process:
        assert process.wait(10) == 3


def test_once_the_attempt_is_over_nothing_runs_and_nothing_is_started_whoever_still_asks(
    here: AttemptPrograms, start: Start, workspace: Workspace
) -> None:
    marker = f"cli-over-{os.getpid()}"
    with start(f"exec -a {marker} sleep 300") as process:
        while not marked(f"{marker}\x00300"):
            time.sleep(0.05)
        here.close()
        assert marked(marker) == []
        assert sorted(path.name for path in workspace.scratch_dir.parent.iterdir()) == ["outputs", "scratch", "tmp"]
        with pytest.raises((SandboxError, ValueError)):
            process.wait(5)
    with pytest.raises(SandboxError, match="the attempt is over"), start("true"):
        pass


@pytest.mark.parametrize("name", ["../a", "/etc/a", "a/b", "..", ""])
def test_no_file_lies_outside_of_its_home(start: Start, workspace: Workspace, name: str) -> None:
    with (
        pytest.raises((ValueError, SandboxError), match="not the name of a file"),
        start("true", files=((name, "x"),)),
    ):
        pass
    assert sorted(path.name for path in workspace.scratch_dir.parent.iterdir()) == ["outputs", "scratch", "tmp"]


def test_a_jail_that_is_killed_from_outside_says_so_and_nothing_of_it_is_left(start: Start) -> None:
    marker = f"cli-killed-{os.getpid()}"
    with start(f"(setsid bash -c 'exec -a {marker} sleep 300' &) ; exec -a {marker} sleep 300") as process:
        while len(marked(f"{marker}\x00300")) < 2:
            time.sleep(0.05)
        kill_jail_of(f"{marker}\x00300")
        assert (process.wait(10), process.killed_by) == (137, "sandbox")
        assert process.stdout.read() == b""
    assert marked(marker) == []


def test_a_program_that_kills_itself_or_is_ended_by_us_was_not_killed_from_outside(start: Start) -> None:
    with start("kill -9 $$") as process:
        assert (process.wait(10), process.killed_by) == (137, None)
    with start("kill -9 -1; kill -9 1; exit 4") as process:
        assert (process.wait(10), process.killed_by) == (4, None)


def test_a_jail_that_does_not_listen_is_killed_by_us_and_not_from_outside(start: Start) -> None:
    marker = f"cli-stopped-{os.getpid()}"
    with start(f"exec -a {marker} sleep 300") as process:
        while not (found := marked(f"{marker}\x00300")):
            time.sleep(0.05)
        (jail,) = [parent for parent in psutil.Process(found[0]).parents() if parent.name() == "nsjail"]
        jail.suspend()
        process.kill()
        assert (process.wait(10), process.killed_by) == (137, None)


KILLED = """
import sys
from pathlib import Path
from dkgi.jail.external import AttemptPrograms
from dkgi.jail.scratch import RunFolder
from dkgi.types import CliBox
top = Path(sys.argv[1])
with RunFolder(top / "w") as folder:
    workspace = folder.new_attempt(top)
    box = CliBox((), "/home", "/home", (("PATH", "/usr/bin:/bin"),), 60, 400)
    with AttemptPrograms(workspace).start(box, ["/bin/bash", "-c", "exec -a " + sys.argv[2] + " sleep 300"]) as process:
        print("up", flush=True)
        process.wait(60)
"""


def test_it_dies_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    marker = f"cli-orphan-{os.getpid()}"
    parent = subprocess.Popen([sys.executable, "-c", KILLED, str(tmp_path), marker], stdout=subprocess.PIPE)
    assert parent.stdout
    assert parent.stdout.readline() == b"up\n"

    def running() -> list[int]:
        return marked(f"{marker}\x00300")  # the name and argument of the program itself

    deadline = time.monotonic() + 30
    while not running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running()
    parent.send_signal(signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while running() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert running() == []


def test_it_holds_for_an_ordinary_user_in_an_outer_jail(tmp_path: Path) -> None:
    done = run_inside(tmp_path, ["tests/jail/test_cli.py", "-k", "not ordinary and not namespaces and not killed"])
    assert done.returncode == 0, done.stdout + (tmp_path / "outer.log").read_text()
    assert " passed" in done.stdout
