"""A long-lived program in a jail: pipes, what it sees, limits, nothing left of it."""

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

import pytest

from dkgi.jail.cli import CliBox, CliProcess, as_owner, cli
from dkgi.jail.scratch import RunFolder
from dkgi.types import SandboxError
from tests.jail.conftest import make_graph, marked
from tests.jail.outer import run_inside

Start = Callable[..., AbstractContextManager[CliProcess]]


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Path]:
    with RunFolder(tmp_path / "w") as folder:
        workspace = folder.new_attempt(make_graph(tmp_path / "graph"))
        yield as_owner(workspace.scratch_dir.parent / "home", workspace.scratch_dir)


@pytest.fixture
def box(place: Path, tmp_path: Path) -> CliBox:
    environment = (("PATH", "/usr/bin:/bin"), ("HOME", "/run/home"))
    return CliBox(((tmp_path / "graph", "/graph"),), ((place, "/run/home"),), "/graph", environment, 30, 400, False)


@pytest.fixture
def start(box: CliBox, tmp_path: Path) -> Start:
    def start(command: str, *, nested: bool = False, wall_s: float = 30) -> AbstractContextManager[CliProcess]:
        own = replace(box, nested=nested, wall_s=wall_s)
        return cli(own, ["/bin/bash", "-c", command], stderr=tmp_path / "stderr.txt")

    return start


def printed(process: CliProcess) -> str:
    process.stdin.close()
    return process.stdout.read().decode()


def test_one_talks_to_it_through_pipes_and_the_exit_code_is_its_own(start: Start, tmp_path: Path) -> None:
    with start("while read -r x; do echo got $x; done; echo oh >&2; exit 7") as process:
        for word in (b"one", b"two"):
            process.stdin.write(word + b"\n")
            process.stdin.flush()
            assert process.stdout.readline() == b"got " + word + b"\n"
        process.stdin.close()
        assert process.wait(10) == 7
    assert (tmp_path / "stderr.txt").read_text() == "oh\n"


def test_it_sees_its_own_folders_and_environment_and_nothing_of_the_host(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "sk-secret")
    look = f"env; echo; ls / /run; ls {tmp_path} 2>&1; touch /run/home/x && echo written; touch /graph/x || true"
    with start(look) as process:
        text = printed(process)
    assert "sk-secret" not in text
    names = {line.partition("=")[0] for line in text.partition("\n\n")[0].splitlines()}
    assert names <= {"PATH", "HOME", "PWD", "SHLVL", "_", "OLDPWD"}
    assert text.count("No such file or directory") == 1
    assert "written" in text
    assert "Read-only file system" in (tmp_path / "stderr.txt").read_text()
    if os.geteuid() == 0:
        assert (tmp_path / "w").stat().st_uid == 0 != next((tmp_path / "w").glob("*/*/home/x")).stat().st_uid


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
model.connect("/run/home/door")
print(model.recv(5).decode())
"""


def test_its_network_is_its_own_loopback_and_the_sockets_of_its_box(start: Start, place: Path) -> None:
    listener = socket.socket(socket.AF_UNIX)
    folder = os.open(place, os.O_PATH)
    listener.bind(f"/proc/self/fd/{folder}/door")
    (place / "door").chmod(0o666)
    listener.listen()

    def answer() -> None:
        with listener.accept()[0] as connection:
            connection.sendall(b"model")

    threading.Thread(target=answer, daemon=True).start()
    with socket.create_server(("127.0.0.1", 0)) as outside:
        program = NETWORK.replace("PORT", str(outside.getsockname()[1]))
        with start(f"python3 - <<'P'\n{program}\nP") as process:
            text = printed(process)
    listener.close()
    os.close(folder)
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
    ],
)
def test_past_a_limit_all_of_it_is_killed_and_says_why(start: Start, command: str, wall_s: float, limit: str) -> None:
    with start(command, wall_s=wall_s) as process:
        assert process.wait(20) != 0
        assert process.killed_by == limit


@pytest.mark.parametrize(("nested", "text"), [(True, "made\n0\n"), (False, "")])
def test_only_a_nested_one_makes_namespaces(start: Start, nested: bool, text: str) -> None:
    with start("unshare -U true && echo made; unshare -Urmpf --mount-proc id -u", nested=nested) as process:
        assert printed(process) == text


def test_a_jail_that_does_not_start_is_a_fault_of_the_sandbox(box: CliBox, tmp_path: Path) -> None:
    with (
        pytest.raises(SandboxError, match="nowhere"),
        cli(replace(box, cwd="/nowhere"), ["/bin/true"], stderr=tmp_path / "e"),
    ):
        pass


KILLED = """
import sys
from pathlib import Path
from dkgi.jail.cli import CliBox, as_owner, cli
from dkgi.jail.scratch import RunFolder
top = Path(sys.argv[1])
with RunFolder(top / "w") as folder:
    workspace = folder.new_attempt(top)
    home = as_owner(workspace.scratch_dir.parent / "home", workspace.scratch_dir)
    box = CliBox((), ((home, "/home"),), "/home", (("PATH", "/usr/bin:/bin"),), 60, 400, False)
    with cli(box, ["/bin/bash", "-c", "exec -a " + sys.argv[2] + " sleep 300"], stderr=top / "e") as process:
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
