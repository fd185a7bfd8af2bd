"""What the kernel says of a process in a jail without /proc, read by the host while that process holds still.

>>> with witness("3f0c") as lines:
...     jail.run(["/bin/bash", "-c", "kill -STOP $$", "check", "3f0c"], output, timeout_s=60)
>>> lines
['status CapEff: 0000000000000000', ..., 'namespace net:[4026533213]', ..., 'mount 731 653 0:53 / / ro,relatime ...']

The lines are those that self_check.sh prints by itself where a jail has /proc.
Not covered: judging them (preflight.py).
"""

import contextlib
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkgi.process import tree

NAMESPACES = ("cgroup", "ipc", "mnt", "net", "pid", "uts")
_STATUS = ("CapEff:", "CapBnd:", "NoNewPrivs:", "Seccomp:")
_LOOK_S = 0.005


@contextmanager
def witness(word: str) -> Iterator[list[str]]:
    """While inside: a process below this one that has `word` among its own and stops itself is read, and goes on.

    The list is complete on leaving, empty where no such process came.
    """
    lines: list[str] = []
    over = threading.Event()
    watcher = threading.Thread(target=_look, args=(word.encode(), over, lines), name="witness", daemon=True)
    watcher.start()
    try:
        yield lines
    finally:
        over.set()
        watcher.join(timeout=10)


def _look(word: bytes, over: threading.Event, lines: list[str]) -> None:
    while not over.wait(_LOOK_S):
        for pid in tree(os.getpid()):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, PermissionError):
                if _stopped(pid) and word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0"):
                    try:
                        lines[:] = _lines(Path(f"/proc/{pid}"))
                    finally:
                        os.kill(pid, signal.SIGCONT)


def _stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"T"


def _lines(process: Path) -> Iterator[str]:
    for line in (process / "status").read_text().splitlines():
        key, _, value = line.partition("\t")
        if key in _STATUS:
            yield f"status {key} {value}"
    for name in NAMESPACES:
        yield f"namespace {(process / 'ns' / name).readlink()}"
    for line in (process / "mountinfo").read_text().splitlines():
        yield f"mount {line}"
