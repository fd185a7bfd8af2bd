"""Limits that the kernel keeps, in a delegated folder of cgroup v2."""

import os
import secrets
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.jail.cgroup import open_cgroup
from dkgi.jail.preflight import Hidden
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import SetupError
from tests.jail.conftest import SPEC, Shell, open_shell, serving

MOUNTS = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
PROCESSES = 40


@pytest.fixture(scope="module")
def delegated() -> Iterator[Path]:
    """An empty folder of this machine's cgroup v2 that bounds processes, memory too where it can."""
    for _, folder, kind, *_ in MOUNTS:
        top = Path(folder)
        if kind != "cgroup2" or not os.access(top, os.W_OK):
            continue
        names = [name for name in ("memory", "pids") if name in (top / "cgroup.controllers").read_text().split()]
        if "pids" not in names:
            continue
        (top / "cgroup.subtree_control").write_text(" ".join(f"+{name}" for name in names))
        own = top / f"test_{secrets.token_hex(4)}"
        own.mkdir()
        yield own
        own.rmdir()
        return
    pytest.skip("needs root and a cgroup v2 mount with the pids controller")


@pytest.fixture(scope="module")
def server(delegated: Path, hidden: Hidden, home: Path) -> Iterator[CommandServer]:
    spec = replace(SPEC, processes=PROCESSES, memory_mb=256, cgroup=str(delegated))
    with serving("full_dkgi", hidden, home / "cgroup", spec) as server:
        yield server


@pytest.fixture
def shell(server: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    yield from open_shell(server, folder, graph, tmp_path / "commands.jsonl")


def test_each_command_is_bounded_in_a_folder_of_its_own_that_goes_with_it(shell: Shell, delegated: Path) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(shell.commands.run, ["/bin/bash", "-c", "sleep 2 & sleep 2"], timeout_s=30)
        deadline = time.monotonic() + 20
        seen: list[tuple[str, int]] = []
        while not running.done() and time.monotonic() < deadline:
            with suppress(FileNotFoundError):
                seen += [
                    ((own / "pids.max").read_text().strip(), int((own / "pids.current").read_text()))
                    for own in delegated.glob("NSJAIL.*")
                ]
            time.sleep(0.05)
    assert running.result().exit_code == 0
    assert (str(PROCESSES), 4) in seen  # two shells, two programs
    assert [path for path in delegated.iterdir() if path.is_dir()] == []


def test_the_kernel_ends_a_burst_of_memory(shell: Shell, delegated: Path) -> None:
    if "memory" not in (delegated / "cgroup.controllers").read_text().split():
        pytest.skip("needs the memory controller in cgroup v2")
    result = shell.commands.run(["/usr/bin/python3", "-c", "b'x' * 2**30; print('had it')"], timeout_s=30)
    assert (result.exit_code, result.killed_by, result.output.read_text()) == (137, "memory", "")


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({}, "No such file or directory; name a folder of cgroup v2"),
        (
            {"cgroup.controllers": "hugetlb\n", "cgroup.procs": ""},
            r"no controller of memory or pids \(it has: hugetlb\)",
        ),
        ({"cgroup.controllers": "\n", "cgroup.procs": ""}, r"it has: none"),
        ({"cgroup.controllers": "memory pids\n", "cgroup.procs": "17\n"}, "processes run in it"),
    ],
)
def test_a_folder_that_cannot_bound_is_told(tmp_path: Path, files: dict[str, str], said: str) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(SetupError, match=said):
        open_cgroup(str(tmp_path))


def test_a_run_with_such_a_folder_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"sandbox\.cgroup"):
        replace(SPEC, cgroup=str(tmp_path)).check()
