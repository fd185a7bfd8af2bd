"""Data that is made once under `DKGI_DATA`, by whichever process comes first.

>>> with only_maker(cache_dir() / "graphs" / ".lock", 900, "the data"):     # doctest: +SKIP
...     write_export(graph, folder)

Not covered: what is made (dataset.py, kg/index.py), and the locks of cells (store.py).
"""

import contextlib
import errno
import fcntl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dkgi import console
from dkgi.types import SetupError


@contextlib.contextmanager
def only_maker(lock: Path, wait_s: float, what: str) -> Iterator[None]:
    """Hold a lock file; SetupError where another process keeps it for longer than `wait_s` seconds."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + wait_s
    with lock.open("a") as handle:
        told = False
        while not _take(handle):
            if time.monotonic() > deadline:
                raise SetupError(f"{lock}: another process has held it for {wait_s:.0f} s; wait for it or end it")
            if not told:
                console.stderr().print(f"dkgi: waiting for another process that makes {what}", soft_wrap=True)
                told = True
            time.sleep(0.1)
        yield


def _take(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def cannot_use(error: OSError, data: Path) -> SetupError:
    """What to tell where a file under `DKGI_DATA` cannot be read or written."""
    full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
    remedy = "make room" if full else "make it accessible"
    return SetupError(f"{error.filename or data}: {error.strerror}; {remedy} or set DKGI_DATA to another folder")
