"""One command server for all tests, on a small graph, and shells in jails of its."""

import contextlib
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dkgi.jail.client import CommandClient
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import CommandResult, ToolPolicy, Workspace
from tests.composed import composed

SPEC = SandboxSpec(kind="nsjail", wall_s=60, memory_mb=200, output_mb=8, file_mb=4, processes=64, commands_at_once=None)


@dataclass(frozen=True)
class Shell:
    """One attempt's commands as a test wants them: a command line in, result and printed text out."""

    commands: CommandClient
    workspace: Workspace
    log: Path

    def result(self, command: str, *, timeout_s: float = 30) -> CommandResult:
        return self.commands.run(["/bin/bash", "-c", command], timeout_s=timeout_s)

    def __call__(self, command: str) -> str:
        result = self.result(command)
        assert result.killed_by is None, result
        return result.output.read_text(errors="replace")

    def python(self, program: str) -> str:
        return self(f"python3 - <<'PROGRAM'\n{program}\nPROGRAM")


def make_graph(folder: Path) -> Path:
    """Files in the form of an export, readable for all."""
    (folder / "nodes").mkdir(parents=True)
    (folder / "edges").mkdir()
    (folder / "nodes" / "0000.jsonl").write_text('{"node_id":0,"node_type":"boat","is_candidate":true}\n')
    (folder / "edges" / "00.tsv").write_text("source_id\ttarget_id\n0\t1\n")
    (folder / "candidate_ids.txt").write_text("0\n1\n2\n")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def marked(marker: str) -> list[int]:
    """Processes of this machine whose command line holds `marker`."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if marker.encode() in (folder / "cmdline").read_bytes():
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def kill_jail_of(marker: str, program: str = "") -> None:
    """Wait until a process whose command line holds `marker`, and whose program has a name that starts with `program`,
    runs in a jail, and kill that jail from outside."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        for number in marked(marker):
            with contextlib.suppress(psutil.NoSuchProcess):
                inner = psutil.Process(number)
                jail = next((one for one in inner.parents() if one.name() == "nsjail"), None)
                if jail and inner.name() != "nsjail" and Path(inner.exe()).name.startswith(program):
                    jail.kill()
                    return
        time.sleep(0.01)
    raise AssertionError(f"nothing runs that is marked {marker}")


@contextmanager
def killing_jail_of(marker: str, program: str = "") -> Iterator[None]:
    """Kill that jail while the block waits for it."""
    with ThreadPoolExecutor(1) as threads:
        killing = threads.submit(kill_jail_of, marker, program)
        yield
        killing.result()


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that other users cannot enter, as a home may be."""
    home = tmp_path_factory.mktemp("home")
    home.chmod(0o700)
    return home


@pytest.fixture(scope="session")
def graph(home: Path) -> Path:
    return make_graph(home / "graph")


@pytest.fixture(scope="session")
def hidden(home: Path) -> Hidden:
    private = tuple(home / name for name in ("labels", "queries", "runs"))
    for folder in private:
        folder.mkdir()
        (folder / "gold.jsonl").write_text("gold\n")
    return Hidden(private, (Path(__file__).parents[2],))


@pytest.fixture(scope="session")
def folder(home: Path) -> Iterator[RunFolder]:
    with RunFolder(home / "w") as folder:
        yield folder


def policy(name: str) -> ToolPolicy:
    return composed(f"tools={name}").tools


@contextmanager
def serving(tools: str, hidden: Hidden, place: Path, spec: SandboxSpec = SPEC) -> Iterator[CommandServer]:
    """A command server under a policy, in a run folder of its own."""
    with RunFolder(place) as own, CommandServer(own.path, spec, find_host(policy(tools)), hidden) as server:
        yield server


@pytest.fixture(scope="session")
def shell_only(hidden: Hidden, home: Path) -> Iterator[CommandServer]:
    """A server whose jails hold fifteen programs."""
    with serving("shell_only", hidden, home / "shell") as server:
        yield server


@pytest.fixture(scope="session")
def one_program(hidden: Hidden, home: Path) -> Iterator[CommandServer]:
    """A server whose attempts have one start of Python."""
    with serving("one_program", hidden, home / "one") as server:
        yield server


@pytest.fixture(scope="session")
def server(folder: RunFolder, hidden: Hidden) -> Iterator[CommandServer]:
    with CommandServer(folder.path, SPEC, find_host(), hidden) as server:
        yield server


def open_shell(server: CommandServer, folder: RunFolder, graph: Path, log: Path) -> Iterator[Shell]:
    workspace = folder.new_attempt(graph)
    with server.attempt(workspace, log) as commands:
        yield Shell(commands, workspace, log)
    folder.remove(workspace)


@pytest.fixture(scope="module")
def shell(
    server: CommandServer, folder: RunFolder, graph: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """A shell that the tests of a module share."""
    yield from open_shell(server, folder, graph, tmp_path_factory.mktemp("log") / "commands.jsonl")


@pytest.fixture
def fresh_shell(server: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    """A shell in which nothing was run yet."""
    yield from open_shell(server, folder, graph, tmp_path / "commands.jsonl")
