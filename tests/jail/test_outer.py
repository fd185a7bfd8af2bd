"""What a grid's worker can do from inside of its jail: our own code there, as hostile as it could get."""

import json
import os
import socket
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dkgi.jail.outer import WorkerJail, python_folders, worker_process

KEY = "not-a-real-key-0123456789"

PROBE = """
import ctypes, json, os, pathlib, signal, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def error(call):
    try:
        call()
    except OSError as error:
        return os.strerror(error.errno)
    return "worked"

def system(number, *arguments):
    return os.strerror(ctypes.get_errno()) if libc.syscall(number, *arguments) < 0 else "worked"

def writable():
    for folder, names, _ in os.walk("/"):
        if folder.startswith("/proc/"):
            names.clear()
            continue
        if folder.startswith("/tmp/") and os.stat(folder).st_dev == os.stat("/tmp").st_dev:
            continue  # a part of its own /tmp, made to mount something inside
        path = os.path.join(folder, ".probe")
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600))
        except OSError:
            continue
        os.unlink(path)
        yield folder

def connect(name):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(5)
        connection.connect(name)

asked = json.loads(sys.stdin.readline())
families = {name: getattr(socket, name) for name in dir(socket) if name.startswith("AF_")}
CLONE_NEWUSER, PTRACE_ATTACH, OLD_ROOT = 0x10000000, 16, 155
told = {
    "environment": dict(os.environ),
    "seen": [path for path in asked["paths"] if os.path.lexists(path)],
    "home": os.listdir(asked["home"]) if os.path.isdir(asked["home"]) else [],
    "families": [name for name, number in families.items() if error(lambda: socket.socket(number).close()) == "worked"],
    "writable": sorted(set(writable())),
    "overwritten": [path for path in asked["files"] if error(lambda: open(path, "ab").close()) == "worked"],
    "namespaces": [system(272, 1 << bit) for bit in (17, 25, 26, 27, 28, 29, 30)],
    "clone": system(56, CLONE_NEWUSER | signal.SIGCHLD, 0, 0, 0, 0),
    "setns": system(308, 0, 0),
    "mount": system(165, b"none", b"/tmp", b"tmpfs", 0, 0),
    "pivot": system(OLD_ROOT, b"/tmp", b"/tmp"),
    "chroot": system(161, b"/tmp"),
    "ptrace": system(101, PTRACE_ATTACH, 1, 0, 0),
    "setuid": error(lambda: os.setuid(12345)),
    "chown": error(lambda: os.chown(asked["own"], 12345, 12345)),
    "device": error(lambda: os.mknod("/tmp/device", 0o020600, os.makedev(1, 1))),
    "host": [number for number in asked["pids"] if error(lambda: os.kill(number, 0)) == "worked"],
    "processes": sorted(int(name) for name in os.listdir("/proc") if name.isdigit()),
    "status": [line for line in open("/proc/self/status") if line.startswith(("CapEff", "CapBnd", "NoNewPrivs", "Seccomp:"))],
    "descriptors": sorted(map(int, os.listdir("/proc/self/fd")))[:-1],
    "devices": sorted(os.listdir("/dev")),
    "abstract": error(lambda: connect(asked["abstract"])),
    "unix": error(lambda: connect(asked["socket"])),
    "top": sorted(os.listdir("/")),
    "read": {path: open(path).read() for path in asked["readable"]},
}
print(json.dumps(told), flush=True)
"""


@dataclass(frozen=True)
class Host:
    """Folders of a grid, and what a worker has to find of them."""

    top: Path
    hidden: list[Path]
    cell: Path
    own: Path
    seats: Path
    told: dict[str, Any] = field(default_factory=dict)


@pytest.fixture(scope="module")
def host(tmp_path_factory: pytest.TempPathFactory) -> Host:
    """A grid's folders, and what a worker in a jail on them told."""
    top = tmp_path_factory.mktemp("host")
    data, runs, home = (top / name for name in ("data", "runs", "home"))
    cell, own, seats = runs / "cells" / "one", data / "w" / "seats" / "own", data / "w" / "seats"
    for folder in (cell, own, runs / "cells" / "other", runs / "artifacts", data / "labels", data / "queries", home):
        folder.mkdir(parents=True)
    private = [data / "labels" / "gold.jsonl", data / "queries" / "test.jsonl", runs / "mlflow.db", home / ".bashrc"]
    private += [runs / "cells" / "other" / "result.json", data / "w" / "other"]
    for file in (*private, cell / "manifest.json", seats / "prompt"):
        file.write_text("text\n")
    with (
        pytest.MonkeyPatch.context() as patch,
        socket.socket(socket.AF_UNIX) as listener,
        socket.socket(socket.AF_UNIX) as abstract,
    ):
        for name, value in (("DKGI_DATA", data), ("DKGI_RUNS", runs), ("HOME", home), ("OPENAI_API_KEY", KEY)):
            patch.setenv(name, str(value))
        name = f"\0dkgi-{os.getpid()}"
        abstract.bind(name)
        abstract.listen()
        patch.chdir(seats)
        listener.bind("socket")
        listener.listen()
        patch.chdir("/")
        asked = {
            "paths": [str(path) for path in (*private, runs / "cells" / "other", data / "labels")],
            "home": str(home),
            "files": [str(seats / "prompt"), "/etc/passwd", "/usr/bin/env", sys.executable, __file__],
            "own": str(own),
            "pids": [os.getpid(), os.getppid()],
            "abstract": name,
            "socket": f"/proc/self/cwd{seats / 'socket'}" if len(str(seats)) > 90 else str(seats / "socket"),
            "readable": [str(seats / "prompt"), str(cell / "manifest.json")],
        }
        told = run(WorkerJail((*python_folders(), seats), (cell, own)), PROBE, json.dumps(asked), top / "log")
    return Host(top, private, cell, own, seats, json.loads(told))


def run(jail: WorkerJail | None, program: str, said: str, log: Path) -> bytes:
    """What a program printed as a worker, up to its first line."""
    with worker_process(jail, [sys.executable, "-c", program], log) as worker:
        worker.stdin.write(said.encode() + b"\n")
        worker.stdin.flush()
        line = worker.stdout.readline()
        assert line, (worker.told, log.read_text())
    return line


def test_labels_queries_other_cells_and_home_are_not_there(host: Host) -> None:
    assert host.told["seen"] == []
    assert host.told["home"] == []
    assert not {"var", "sys", "run", "mnt", "srv", "boot"} & set(host.told["top"])


def test_what_a_cell_needs_is_there(host: Host) -> None:
    assert host.told["read"] == {str(host.seats / "prompt"): "text\n", str(host.cell / "manifest.json"): "text\n"}


def test_no_variable_of_the_user_gets_in(host: Host) -> None:
    names = {"PATH", "HOME", "LANG", "DKGI_DATA", "DKGI_RUNS"}
    names |= {"PYTHONPATH", "PYTHONUSERBASE", "PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED"}
    assert set(host.told["environment"]) - {"LC_CTYPE"} == names
    assert KEY not in str(host.told["environment"])


def test_there_are_unix_sockets_alone_and_none_of_the_hosts_abstract_ones(host: Host) -> None:
    assert host.told["families"] == ["AF_UNIX"]
    assert host.told["unix"] == "worked"
    assert host.told["abstract"] == "Connection refused"


def test_the_cell_its_own_folder_and_tmp_can_be_written_and_nothing_else(host: Host) -> None:
    assert host.told["writable"] == sorted([str(host.cell), str(host.own), "/tmp"])
    assert host.told["overwritten"] == []


def test_no_namespace_mount_root_or_device_is_made_and_no_process_traced(host: Host) -> None:
    refused = {"Operation not permitted", "Invalid argument"}  # the second for an id that a user's namespace has not
    assert set(host.told["namespaces"]) == {"Operation not permitted"}
    for name in ("clone", "setns", "mount", "pivot", "chroot", "ptrace", "device", "setuid", "chown"):
        assert host.told[name] in refused, name
    nothing = "0" * 16
    assert host.told["status"] == [
        f"CapEff:\t{nothing}\n",
        f"CapBnd:\t{nothing}\n",
        "NoNewPrivs:\t1\n",
        "Seccomp:\t2\n",
    ]


def test_no_process_and_no_open_file_of_the_host_is_there(host: Host) -> None:
    assert host.told["host"] == []
    assert len(host.told["processes"]) <= 2
    assert host.told["descriptors"] == [0, 1, 2]
    assert host.told["devices"] == sorted(
        ["null", "zero", "full", "random", "urandom", "fd", "stdin", "stdout", "stderr"]
    )


def test_a_bare_worker_has_no_variable_of_the_user_either(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    program = "import json, os; print(json.dumps(dict(os.environ)), flush=True)"
    assert KEY.encode() not in run(None, program, "", tmp_path / "log")


def test_a_worker_dies_with_its_parent(tmp_path: Path) -> None:
    program = (
        "import sys, time; from pathlib import Path; from dkgi.jail.outer import *; "
        f"jail = WorkerJail(tuple(python_folders()), ()); log = Path({str(tmp_path / 'log')!r})\n"
        "with worker_process(jail, ['/bin/sh', '-c', 'echo up; sleep 300'], log) as worker:\n"
        "    print(worker.process.pid, worker.stdout.readline(), flush=True); time.sleep(300)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout
        pid = int(parent.stdout.readline().split()[0])
        assert Path(f"/proc/{pid}").exists()
        parent.kill()
    for _ in range(200):
        if not Path(f"/proc/{pid}/exe").exists():
            return
        import time

        time.sleep(0.05)
    raise AssertionError("it lives")
