"""What many tests need: a small graph as plain files, and a place for an attempt on it."""

import contextlib
import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dkgi.dataset import DatasetSpec, prepare
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.making import only_maker
from dkgi.paths import cache_dir
from dkgi.runner import Seat
from dkgi.tracking import database

SANDBOX = SandboxSpec(
    kind="nsjail", wall_s=60, memory_mb=512, output_mb=256, file_mb=64, processes=64, commands_at_once=None
)


LONGEST = (
    "test_contract.py",
    "jail/test_broker.py",
    "test_experiment.py",
    "test_providers.py",
    "grid/test_grid.py",
    "questions/test_generate.py",
    "test_cli_faults.py",
    "worker/test_worker.py",
    "harness/test_pi.py",
    "harness/test_codex.py",
    "tracking/test_server.py",
    "test_config.py",
    "models/test_heuristic_policies.py",
)
"""Files that take half a minute or more: with `pytest -n`, one that began last would be waited for."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    places = {Path(__file__).parent / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


@pytest.fixture(scope="session", autouse=True)
def signals_work() -> None:
    """A suite that was started in the background or under nohup inherits ignored signals; programs under test must not."""
    for number, handler in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def processes_end() -> Iterator[None]:
    """A test that fails leaves no process of its own to those that follow; jails end with the process that made them."""
    before = _children()
    yield
    for pid in _children() - before:
        os.kill(pid, signal.SIGKILL)
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def _children() -> set[int]:
    found: set[int] = set()
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):  # it has ended
            found.update(map(int, (thread / "children").read_text().split()))
    return found


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that the processes of one `pytest -n` share, for what takes long to make and is then only copied."""
    own = tmp_path_factory.getbasetemp()
    return own.parent if "PYTEST_XDIST_WORKER" in os.environ else own


@pytest.fixture(scope="session")
def data(made_once: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache folder with the whole data set hpo and with the programs of the user's own, for all tests of a process."""
    prepare(DatasetSpec(kind="hpo", name="hpo", version="4.0.0", split="test", seed=7), made_once / "data")
    folder = tmp_path_factory.mktemp("data")
    shutil.copytree(made_once / "data", folder, dirs_exist_ok=True)
    (folder / "tools").symlink_to(cache_dir() / "tools")
    return folder


@pytest.fixture(scope="session")
def mlflow_tables(made_once: Path) -> Path:
    """A database with MLflow's tables, to be copied: making them takes seconds."""
    path = made_once / "mlflow" / "mlflow.db"
    with only_maker(made_once / "mlflow" / ".lock", 300, "MLflow's tables"):
        if not path.exists():
            database.create(path, path.parent.as_uri())
    return path


@pytest.fixture
def runs(tmp_path: Path, mlflow_tables: Path) -> Path:
    """A folder for what runs write, with a database in which nothing is logged yet."""
    (tmp_path / "runs").mkdir()
    return Path(shutil.copyfile(mlflow_tables, tmp_path / "runs" / database.DATABASE)).parent


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Three films and a director, in the files of an export."""
    folder = tmp_path / "films"
    (folder / "nodes").mkdir(parents=True)
    (folder / "edges").mkdir()
    names = ["The Long Boat", "Harbour Lights", "Winter in Bremen", "Ada Lund"]
    lines = [
        {"node_id": n, "node_type": "film" if n < 3 else "person", "is_candidate": n < 3, "attributes": {"name": name}}
        for n, name in enumerate(names)
    ]
    (folder / "nodes" / "0000.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "edges" / "00.tsv").write_text("source_id\ttarget_id\n3\t0\n3\t2\n")
    (folder / "candidate_ids.txt").write_text("0\n1\n2\n")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CommandServer]:
    with (
        RunFolder(tmp_path / "w") as folder,
        CommandServer(folder.path, SANDBOX, find_host(), Hidden((tmp_path / "labels",), ())) as server,
    ):
        yield server


@pytest.fixture
def cancel(server: CommandServer) -> Callable[[], None]:
    """Ends the commands of the seat."""
    return server.cancel


@pytest.fixture
def seat(films: Path, tmp_path: Path, server: CommandServer) -> Iterator[Seat]:
    """A place for one attempt on the films, with a real jail."""
    with RunFolder(tmp_path / "w") as folder:
        workspace = folder.new_attempt(films)
        with server.attempt(workspace, tmp_path / "commands.jsonl") as commands:
            yield Seat(workspace, commands)
