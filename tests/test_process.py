"""Programs end at their end or at a limit, with what they printed kept; more of it, in jails, in jail/test_command.py."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.process import Bounds, Ended, Lifeline, kill_tree, run, tree
from tests.jail.conftest import marked

BOUNDS = Bounds(wall_s=20, memory_mb=100, output_mb=1)


@pytest.fixture(scope="module")
def lifeline() -> Iterator[Lifeline]:
    with Lifeline() as lifeline:
        yield lifeline


def bash(
    command: str, lifeline: Lifeline, file: Path, bounds: Bounds = BOUNDS, cancel: int | None = None
) -> tuple[Ended, bytes]:
    with file.open("wb") as output:
        ended = run(["/bin/bash", "-c", command], output.fileno(), bounds, lifeline, cancel=cancel)
    return ended, file.read_bytes()


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -TERM $$", 143), ("kill -KILL $$", 137)])
def test_exit_codes_follow_the_shells_convention(lifeline: Lifeline, tmp_path: Path, command: str, code: int) -> None:
    ended, _ = bash(command, lifeline, tmp_path / "out")
    assert (ended.exit_code, ended.killed_by) == (code, None)


@pytest.mark.parametrize(
    ("command", "wall_s", "signal_"),
    [
        ("exit 137", 20, None),
        ("kill -KILL $$", 20, 9),
        ("bash -c 'kill -KILL $$'; exit 137", 20, None),
        ("sleep 30", 0.3, None),
    ],
)
def test_a_signal_is_told_where_it_ended_the_first_process_and_was_not_ours(
    lifeline: Lifeline, tmp_path: Path, command: str, wall_s: float, signal_: int | None
) -> None:
    ended, _ = bash(command, lifeline, tmp_path / "out", replace(BOUNDS, wall_s=wall_s))
    assert (ended.exit_code, ended.signal) == (137, signal_)


def test_a_program_starts_with_an_empty_environment(
    lifeline: Lifeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    with (tmp_path / "out").open("wb") as output:
        run(["/usr/bin/env"], output.fileno(), BOUNDS, lifeline)
    assert (tmp_path / "out").read_bytes() == b""


def test_a_program_does_not_read_what_is_typed_to_us(lifeline: Lifeline, tmp_path: Path) -> None:
    own_stdin = os.dup(0)
    read_end, write_end = os.pipe()
    os.write(write_end, b"typed")
    os.close(write_end)
    os.dup2(read_end, 0)
    try:
        assert bash("cat; echo end", lifeline, tmp_path / "out")[1] == b"end\n"
    finally:
        os.dup2(own_stdin, 0)
        os.close(read_end)
        os.close(own_stdin)


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("echo partial; sleep 30", "time"),
        ("echo partial; trap '' TERM; sleep 30; sleep 30", "time"),
        ("echo partial; exec >&- 2>&-; sleep 30", "time"),
        ("echo partial; yes", "output"),
        (f"echo partial; {sys.executable} -c 'x = b\"1\" * (300 << 20); input()'; sleep 30", "memory"),
    ],
)
def test_a_limit_ends_the_tree_and_keeps_the_output(
    lifeline: Lifeline, tmp_path: Path, command: str, limit: str
) -> None:
    bounds = Bounds(0.5, 100, 1) if limit == "time" else BOUNDS
    ended, output = bash(command, lifeline, tmp_path / "out", bounds)
    assert (ended.killed_by, ended.exit_code) == (limit, 137)
    assert output.startswith(b"partial\n")
    assert len(output) == ended.output_bytes <= 2**20
    assert ended.wall_s < 15


def test_a_run_ends_when_the_other_end_of_its_cancel_pipe_closes(lifeline: Lifeline, tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    threading.Timer(0.3, os.close, (write_end,)).start()
    ended, output = bash("echo partial; sleep 30", lifeline, tmp_path / "out", cancel=read_end)
    os.close(read_end)
    assert (ended.killed_by, output) == ("cancelled", b"partial\n")


def test_cpu_time_of_all_processes_is_counted(lifeline: Lifeline, tmp_path: Path) -> None:
    spin = f"{sys.executable} -c 'import time\nwhile time.process_time() < .2: pass'"
    ended, _ = bash(f"{spin} & {spin}; wait", lifeline, tmp_path / "out")
    assert 0.4 <= ended.cpu_s < 3


def test_output_that_cannot_be_written_ends_the_program_and_says_so(lifeline: Lifeline) -> None:
    with open("/dev/full", "wb", buffering=0) as full, pytest.raises(OSError, match="No space left"):  # noqa: PTH123
        run(["/bin/bash", "-c", "echo x; exec -a full-marker sleep 300"], full.fileno(), BOUNDS, lifeline)
    assert marked("full-marker") == []


def test_a_program_that_does_not_exist_raises_and_leaves_nothing_open(lifeline: Lifeline, tmp_path: Path) -> None:
    before = len(os.listdir("/proc/self/fd"))  # noqa: PTH208
    with (tmp_path / "out").open("wb") as output, pytest.raises(FileNotFoundError):
        run(["/no/such/program"], output.fileno(), BOUNDS, lifeline)
    assert len(os.listdir("/proc/self/fd")) == before  # noqa: PTH208


def test_runs_in_many_threads_do_not_disturb_each_other(lifeline: Lifeline, tmp_path: Path) -> None:
    found: dict[int, bytes] = {}

    def work(number: int) -> None:
        found[number] = bash(f"seq {number} {number + 999}", lifeline, tmp_path / str(number))[1]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == {n: b"".join(b"%d\n" % i for i in range(n, n + 1000)) for n in range(32)}


def test_the_tree_is_all_processes_below_its_root() -> None:
    root = subprocess.Popen(["/bin/bash", "-c", "(sleep 60 & sleep 60 & wait) & sleep 60 & wait"])
    try:
        deadline = time.monotonic() + 20
        while len(list(tree(root.pid))) < 5:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        pids = list(tree(root.pid))
    finally:
        kill_tree(root.pid, signal.SIGKILL)
        root.wait()
    assert pids[0] == root.pid
    assert len(set(pids)) == 5
    assert list(tree(root.pid)) == [root.pid]


_PARENT = """
import sys
from dkgi.process import Bounds, Lifeline, run
with open(sys.argv[1], "wb") as output, Lifeline() as lifeline:
    run(["/bin/bash", "-c", "sleep 300 & sleep 300; true"], output.fileno(), Bounds(300, 100, 1), lifeline)
"""


def test_programs_die_with_their_parent_after_kill_9_too(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT, str(tmp_path / "out")], cwd=Path(__file__).parents[1])
    deadline = time.monotonic() + 20
    pids: list[int] = []
    while len(pids) < 5:  # the parent, its lifeline, a shell and two sleeps
        assert time.monotonic() < deadline
        time.sleep(0.02)
        pids = list(tree(parent.pid))
    parent.kill()
    parent.wait()
    while any(Path(f"/proc/{pid}").exists() and "Z" not in _state(pid) for pid in pids):
        assert time.monotonic() < deadline
        time.sleep(0.02)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_nothing_starts_once_the_lifelines_shell_is_gone(tmp_path: Path) -> None:
    with Lifeline() as lifeline:
        os.kill(lifeline.group, signal.SIGKILL)
        time.sleep(0.1)
        with pytest.raises(ChildProcessError):
            bash("true", lifeline, tmp_path / "out")
