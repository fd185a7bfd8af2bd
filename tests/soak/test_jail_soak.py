"""A thousand jailed commands, some killed, leave nothing behind: no process, mount, folder, open file or thread."""

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer

SPEC = SandboxSpec("nsjail", wall_s=60, memory_mb=200, output_mb=1, file_mb=4, processes=64, commands_at_once=None)
COMMANDS = [
    ("true", 30.0),
    ("exit 255", 30.0),
    ("(setsid sleep 300 &) ; sleep 300 & echo started", 30.0),
    ("sleep 300", 0.2),
    ("yes", 30.0),
    ("for i in 1 2 3; do (sleep 300; sleep 300) & done; kill -KILL $$", 30.0),
    ('mkdir -p /tmp/a/b; chmod 0 /tmp/a; python3 -c \'open("/scratch/x", "w").write("x" * 10000)\'', 30.0),
    ("seq 1000 | sort | tail -1", 30.0),
]


def mounts() -> int:
    return len(Path("/proc/self/mountinfo").read_text().splitlines())


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208


def sleeping() -> list[str]:
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            command = (folder / "cmdline").read_bytes()
        except OSError:
            continue
        if command.startswith((b"sleep\x00300", b"yes\x00")) or b"nsjail\x00--log_fd" in command:
            found.append(f"{folder.name} {command!r}")
    return found


def runtime_folders() -> list[Path]:
    """nsjail makes two empty folders for a user at its first start and keeps them."""
    places = ("/run/user", f"/run/user/{os.geteuid()}", "/tmp", "/dev/shm")
    return sorted(folder for place in places for folder in Path(place).glob("nsjail*"))


def test_a_thousand_commands_leave_nothing(tmp_path: Path) -> None:
    graph = tmp_path / "graph"
    graph.mkdir()
    (graph / "schema.json").write_text("{}\n")
    before = mounts(), open_files(), threading.active_count(), sleeping()
    with (
        RunFolder(tmp_path / "w") as folder,
        CommandServer(folder.path, SPEC, find_host(), Hidden((tmp_path / "labels",), ())) as server,
    ):

        def attempt(number: int) -> list[str | None]:
            workspace = folder.new_attempt(graph)
            with server.attempt(workspace, tmp_path / "log") as commands:
                results = [
                    commands.run(["/bin/bash", "-c", command], timeout_s=seconds)
                    for command, seconds in (COMMANDS * 5)[number % 8 :][:20]
                ]
            folder.remove(workspace)
            return [result.killed_by for result in results]

        of_the_server = sorted(path.name for path in folder.path.iterdir())
        first = attempt(0)
        folders = runtime_folders()
        with ThreadPoolExecutor(8) as threads:
            ends = first + [end for ended in threads.map(attempt, range(1, 50)) for end in ended]
        assert sorted(path.name for path in folder.path.iterdir()) == of_the_server
    assert len(ends) == 1000
    assert set(ends) == {None, "time", "output"}
    assert (mounts(), open_files(), threading.active_count(), sleeping()) == before
    assert list((tmp_path / "w").iterdir()) == []
    assert runtime_folders() == folders
    assert len((tmp_path / "log").read_text().splitlines()) == 1000
