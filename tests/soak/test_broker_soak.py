"""Two hundred attempts with one start of Python each, four at once: every count is right, nothing outlives its attempt."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from dkgi.config import load
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer

SPEC = SandboxSpec("nsjail", wall_s=60, memory_mb=200, output_mb=1, file_mb=4, processes=64, commands_at_once=None)
ROOT = Path(__file__).parents[2]
START = "python3 -c 'print(\"ran\")' soak-marker"
# A command line, how often it asks for Python, and whether it ends by itself.
COMMANDS = [
    (START, 1, True),
    (f"{START}; {START}", 2, True),
    (f"for i in 1 2 3; do {START} & done; wait", 3, True),
    (f"echo | xargs {START}", 1, True),
    ("python3 - soak-marker <<'E'\nimport subprocess, sys\nprint('ran', flush=True)\nsubprocess.run([sys.executable])\nE", 2, True),
    ("python3 -c 'import os; print(\"ran\", flush=True); os.fork() or os.setsid(); os.abort()' soak-marker", 1, True),
    ("python3 -c 'import time; print(\"ran\", flush=True); time.sleep(300)' soak-marker", 1, False),
    ("(python3 -c 'import time; print(\"ran\", flush=True); time.sleep(300)' soak-marker &); read -t 1.5 <> /run/py/tick", 1, True),
    ("true", 0, True),
]  # fmt: skip

_KILLED = """
import sys, threading
from pathlib import Path
from dkgi.config import load
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from tests.soak.test_broker_soak import SPEC

top = Path(sys.argv[1])
with RunFolder(top / "w") as folder:
    host = find_host(load(["tools=one_program"]).tools)
    with CommandServer(folder.path, SPEC, host, Hidden((top / "labels",), ())) as server:
        def attempt():
            while True:
                with server.attempt(folder.new_attempt(top / "graph"), top / "log") as commands:
                    program = "import time; print(1); time.sleep(0.3)"
                    commands.run(["/bin/bash", "-c", f"python3 -c '{program}' killed-marker; python3"], timeout_s=60)
                    print("done", flush=True)
        threads = [threading.Thread(target=attempt, daemon=True) for _ in range(4)]
        for thread in threads:
            thread.start()
        threads[0].join()  # no thread ends but by a fault
"""


def graph_in(folder: Path) -> Path:
    graph = folder / "graph"
    graph.mkdir(mode=0o755)
    (graph / "schema.json").write_text("{}\n")
    return graph


def left(marker: bytes, folder: Path) -> list[bytes]:
    """Processes of agents' programs, and of jails whose files lie in `folder`."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
        except OSError:
            continue
        if marker in command or bytes(folder) in command:
            found.append(command)
    return found


def mounted(folder: Path) -> bool:
    return str(folder) in Path("/proc/self/mountinfo").read_text()


def test_two_hundred_attempts_are_counted_rightly_and_leave_nothing(tmp_path: Path) -> None:
    graph = graph_in(tmp_path)
    before = len(list(Path("/proc/self/fd").iterdir())), threading.active_count()
    host = find_host(load(["tools=one_program"]).tools)
    wrong = []
    with (
        RunFolder(tmp_path / "w") as folder,
        CommandServer(folder.path, SPEC, host, Hidden((tmp_path / "labels",), ())) as server,
    ):

        def attempt(number: int) -> None:
            chosen = random.Random(number).sample(COMMANDS, 3)
            workspace = folder.new_attempt(graph)
            with server.attempt(workspace, tmp_path / "log") as commands:
                results = [
                    commands.run(["/bin/bash", "-c", command], timeout_s=30 if ends else 4)
                    for command, _, ends in chosen
                ]
            ran = sum(result.output.read_text().count("ran\n") for result in results)
            folder.remove(workspace)
            asked = sum(starts for _, starts, _ in chosen)
            counted = sum(len(result.python) for result in results), sum(result.python_refused for result in results)
            inside = any("sys.executable" in command for command, _, _ in chosen)
            # The start that a running program asks for is only made where that program got the one start.
            if counted[0] != min(1, asked) or not asked - 1 - inside <= sum(counted) <= asked or ran != counted[0]:
                wrong.append((number, chosen, counted))

        with ThreadPoolExecutor(4) as threads:
            list(threads.map(attempt, range(200)))
        stand_in = {path.name for path in folder.path.iterdir()} - {"commands"}
        assert len(stand_in) == 1
    assert wrong == []
    assert left(b"soak-marker", tmp_path) == []
    assert (len(list(Path("/proc/self/fd").iterdir())), threading.active_count()) == before
    assert not mounted(tmp_path)
    assert list((tmp_path / "w").iterdir()) == []


def test_a_run_that_is_killed_at_any_moment_leaves_nothing(tmp_path: Path) -> None:
    graph_in(tmp_path)
    for moment in range(10):
        process = subprocess.Popen(
            [sys.executable, "-c", _KILLED, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, env=os.environ
        )
        assert process.stdout
        assert process.stdout.readline() == b"done\n"  # the first command is over, others are under way
        time.sleep(moment * 0.07)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=10)
        process.stdout.close()
        deadline = time.monotonic() + 30
        while left(b"killed-marker", tmp_path) and time.monotonic() < deadline:
            time.sleep(0.05)
        assert left(b"killed-marker", tmp_path) == []
    assert not mounted(tmp_path)
    with RunFolder(tmp_path / "w"):
        pass
    assert list((tmp_path / "w").iterdir()) == []
