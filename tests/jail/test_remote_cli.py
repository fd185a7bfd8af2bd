"""Programs that another process asks for: whoever asks dies, or the host does, or what is asked for is not to be had.

What holds for every program is in test_cli.py, which asks from another process as well.
"""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.harness import open_harness
from dkgi.jail.client import address
from dkgi.jail.external import AttemptPrograms
from dkgi.jail.remote_cli import RemotePrograms
from dkgi.jail.scratch import RunFolder
from dkgi.listener import listen
from dkgi.paths import cache_dir, data_dir
from dkgi.runner import Seat
from dkgi.types import CliBox, SandboxError, SetupError, Workspace
from tests.jail.conftest import make_graph, marked
from tests.models.films import QUESTIONS
from tests.one_query import Films, FilmsCell, films_cell, write_all
from tests.programs import TOKEN, host_of

BOX = CliBox((), "/run/home", "/run/home", (("PATH", "/usr/bin:/bin"),), 60, 400)


@pytest.fixture
def workspace(tmp_path: Path) -> Iterator[Workspace]:
    with RunFolder(tmp_path / "w") as folder:
        yield folder.new_attempt(make_graph(tmp_path / "graph"))


def is_gone(marker: str, workspace: Workspace) -> bool:
    """Whether the program and its folder go away in time."""
    deadline = time.monotonic() + 20
    while marked(marker) or (workspace.scratch_dir.parent / "cli").exists():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


WORKER = """
import json, sys
from pathlib import Path
from dkgi.jail.remote_cli import RemotePrograms
from dkgi.types import CliBox
box = CliBox((), "/run/home", "/run/home", (("PATH", "/usr/bin:/bin"),), 60, 400)
words = ["/bin/bash", "-c", "trap '' TERM HUP PIPE; echo up; exec -a " + sys.argv[2] + " sleep 300"]
with RemotePrograms(Path(sys.argv[1]), "the-token").start(box, words) as program:
    print(program.stdout.readline().decode(), end="", flush=True)
    {wait}
"""


@pytest.mark.parametrize("wait", ["program.wait(60)", "program.stdout.read()"])
def test_a_program_dies_with_a_worker_that_is_killed(wait: str, workspace: Workspace, tmp_path: Path) -> None:
    marker = f"remote-orphan-{os.getpid()}"
    with host_of(tmp_path / "host", AttemptPrograms(workspace), []):
        words = [sys.executable, "-c", WORKER.replace("{wait}", wait), str(tmp_path / "host"), marker]
        with subprocess.Popen(words, stdout=subprocess.PIPE) as worker:
            assert worker.stdout
            assert worker.stdout.readline() == b"up\n"
            while not marked(f"{marker}\x00300"):
                time.sleep(0.05)
            worker.send_signal(signal.SIGKILL)
        assert is_gone(f"{marker}\x00300", workspace)


def test_a_host_that_is_gone_is_a_fault_of_the_sandbox(workspace: Workspace, tmp_path: Path) -> None:
    with host_of(tmp_path / "host", AttemptPrograms(workspace), []) as programs:
        opened = programs.start(BOX, ["/bin/sleep", "60"])
        program = opened.__enter__()
    for ask in (lambda: program.wait(5), program.kill, program.told, lambda: program.killed_by):
        with pytest.raises(SandboxError, match="is gone: "):
            ask()
    opened.__exit__(None, None, None)
    with pytest.raises(SandboxError, match="cannot be reached"), programs.start(BOX, ["/bin/true"]):
        pass


def test_a_host_that_goes_while_it_is_asked_is_a_fault_of_the_sandbox(tmp_path: Path) -> None:
    listener = listen(tmp_path / "host", 0o666)

    def answer_once() -> None:
        with listener.accept()[0] as connection, Path("/dev/null").open("r+b") as nothing:
            connection.recv(65536)
            socket.send_fds(connection, [b'{"started": true}\n'], [nothing.fileno(), nothing.fileno()])
            connection.recv(65536)

    thread = threading.Thread(target=answer_once, daemon=True)
    thread.start()
    with RemotePrograms(tmp_path / "host", TOKEN).start(BOX, ["/bin/true"]) as program:
        with pytest.raises(SandboxError, match="is gone"):
            program.wait(30)
        thread.join(10)
    listener.close()


def test_a_worker_that_leaves_while_the_program_reads_is_through_when_it_is_gone(
    workspace: Workspace, tmp_path: Path
) -> None:
    marker = f"remote-left-{os.getpid()}"
    with host_of(tmp_path / "host", AttemptPrograms(workspace), []) as programs:
        for _ in range(3):
            with programs.start(BOX, ["/bin/bash", "-c", f"echo up; exec -a {marker} cat"]) as program:
                assert program.stdout.readline() == b"up\n"
            assert (marked(marker), (workspace.scratch_dir.parent / "cli").exists()) == ([], False)


def asked(**changes: Any) -> dict[str, Any]:
    """A request's line under changes of its box."""
    box = json.loads(json.dumps(asdict(BOX), default=str)) | changes
    return {"token": TOKEN, "program": {"box": box, "argv": ["/bin/bash", "-c", "echo ran > /run/home/x; cat /y"]}}


@pytest.mark.parametrize(
    ("request_", "told"),
    [
        (asked(read_only=[["/etc/shadow", "/y"]]), "/etc/shadow, wanted at /y, is nothing that the worker sees"),
        (asked(read_only=[["WORKER/link", "/y"]]), "/etc/passwd, wanted at /y, is nothing that the worker sees"),
        (asked(read_only=[["WORKER/../secret", "/y"]]), "secret, wanted at /y, is nothing that the worker sees"),
        (asked(read_only=[["/", "/y"]]), "/, wanted at /y, is nothing that the worker sees"),
        (asked(wall_s=float("inf")), "wall_s is not a number up to 86400"),
        (asked(wall_s=float("nan")), "wall_s is not a number up to 86400"),
        (asked(wall_s=-1), "wall_s is not a number up to 86400"),
        (asked(files=[["../../x", "y"]]), "'../../x' is not the name of a file"),
        (asked(writable=[["/", "/y"]]), "box.writable: Unexpected keyword argument"),
        (asked(memory_mb="much"), "box.memory_mb: Input should be a valid integer"),
        ({"token": TOKEN, "program": {"box": {}, "argv": "true"}}, "malformed request"),
        ({"token": TOKEN, "program": asked()["program"] | {"argv": ["a\0b"]}}, "null byte"),
        ({"token": TOKEN, "program": asked()["program"] | {"argv": ["/bin/true", "x" * 200_000]}}, "too long"),
        ({"token": TOKEN, "program": None}, "malformed request"),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else "",
)
def test_what_a_hostile_worker_may_not_have_is_refused_in_one_line_and_leaves_nothing(
    request_: Mapping[str, Any], told: str, workspace: Workspace, tmp_path: Path
) -> None:
    own = tmp_path / "own"
    own.mkdir()
    (own / "link").symlink_to("/etc/passwd")
    (tmp_path / "secret").write_text("secret")
    line = json.dumps(request_).replace("WORKER", str(own)).encode() + b"\n"
    with host_of(tmp_path / "host", AttemptPrograms(workspace), [own]), socket.socket(socket.AF_UNIX) as connection:
        with address(tmp_path / "host") as name:
            connection.connect(name)
        connection.settimeout(30)
        connection.sendall(line)
        with connection.makefile("rb") as reader:
            answer = json.loads(reader.readline())
    assert told in answer["refused"]
    assert "\n" not in answer["refused"]
    assert sorted(path.name for path in workspace.scratch_dir.parent.iterdir()) == ["outputs", "scratch", "tmp"]


@pytest.mark.parametrize("line", [b"{}\n", b"[]\n", b"x\n", b'{"do": "fly"}\n', b'{"do": "wait"}\n', b"1" * 100_000])
def test_a_worker_that_talks_nonsense_has_lost_its_program(line: bytes, workspace: Workspace, tmp_path: Path) -> None:
    marker = f"remote-nonsense-{os.getpid()}"
    with (
        host_of(tmp_path / "host", AttemptPrograms(workspace), []) as programs,
        programs.start(BOX, ["/bin/bash", "-c", f"exec -a {marker} sleep 300"]) as program,
    ):
        program._connection.sendall(line)
        assert is_gone(marker, workspace)


def test_labels_are_shown_to_no_program_even_where_the_worker_would_see_them(
    workspace: Workspace, tmp_path: Path
) -> None:
    labels = cache_dir() / "labels"
    with (
        host_of(tmp_path / "host", AttemptPrograms(workspace), [cache_dir()]) as programs,
        pytest.raises(SetupError, match="overlap"),
        programs.start(replace(BOX, read_only=((labels, "/y"),)), ["/bin/true"]),
    ):
        pass


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    return write_all(tmp_path_factory.mktemp("cache"))


@contextmanager
def asked_for(seat: Seat, folder: Path) -> Iterator[Seat]:
    """The seat for a harness that has to ask for its program."""
    assert seat.programs is not None
    visible = [seat.workspace.scratch_dir.parents[1], cache_dir() / "tools", data_dir("sandbox"), Path("/usr")]
    visible += [Path(path) for path in sys.path if path.endswith("site-packages") and Path(path).is_dir()]
    with host_of(folder / "host", seat.programs, visible) as programs:
        assert isinstance(programs, RemotePrograms)
        yield replace(seat, programs=programs)


@pytest.mark.parametrize("policy", ["full_dkgi", "graph_tools"])
@pytest.mark.parametrize("harness", ["pi", "codex"])
def test_pi_and_codex_answer_where_they_are_started_by_another_process(
    harness: str, policy: str, films: Films, tmp_path: Path
) -> None:
    question, right = QUESTIONS["one hop by a certain relation"]
    options = [f"harness={harness}", f"tools={policy}", "model=heuristic"]
    try:
        open_harness((experiment := load(options)).harness).check(experiment.tools)
    except SetupError as reason:
        pytest.skip(str(reason))

    @contextmanager
    def seat(log: Path) -> Iterator[Seat]:
        with cell.run.seat(log) as here, asked_for(here, tmp_path) as there:
            yield there

    with films_cell(options, films, tmp_path / "runs") as cell:
        told = FilmsCell(replace(cell.run, seat=seat)).ask(question, attempts=1)
    assert told is not None
    assert (told.result.stops, told.result.error, told.result.flags) == (("answered",), "", ())
    assert set(told.result.node_ids[:2]) == right
