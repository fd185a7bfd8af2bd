"""Who works on a cell: one process on the whole of it, or one on each of its shards.

>>> with Lock(cell, Shard(count=4, index=0), wait_s=60):
...     ...

    cells/5d1f0c9a7e42/lock.0      held by a run of the whole cell
    cells/5d1f0c9a7e42/lock.0-4    held by a run of shard 0 of 4

Shards of one count do not exclude each other; the whole, and shards of another count, exclude all. The kernel drops a
lock with the process that holds it, also after kill -9.
Not covered: folders on a network file system whose locks do not reach other machines; give each machine a folder of
its own and merge them (merge.py).
"""

import fcntl
import os
import re
import time
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Self

from dkgi import console
from dkgi.files import cannot_write
from dkgi.shards import WHOLE, Shard
from dkgi.store import Cell
from dkgi.types import SetupError

_POLL_S = 0.1
_GATE_S = 30.0
"""How long to try to look at the locks of a cell; others need milliseconds for it."""
_NAME = re.compile(r"lock\.(\d+)(?:-(\d+))?")


class Locked(SetupError):
    """Another process works on the cell."""


class Lock:
    """Holds a cell, or a shard of it, for this process.

    Where another process has it: waits up to `wait_s` seconds, and says so once. Raises Locked when they are over.
    """

    def __init__(self, cell: Cell, shard: Shard = WHOLE, *, wait_s: float = 0.0) -> None:
        deadline = time.monotonic() + wait_s
        told = False
        while isinstance(held := _take(cell.folder, shard), str):
            if time.monotonic() >= deadline:
                raise Locked(f"cell {cell.id} is being run by {held}; wait for it, or end it and start again")
            if not told:
                line = f"cell {cell.id} is being run by {held}: waiting for it, up to {wait_s:,.0f} s"
                console.stderr().print(line, soft_wrap=True)
                told = True
            time.sleep(_POLL_S)
        self._file = held

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()


def _take(folder: Path, shard: Shard) -> IO[str] | str:
    """The lock file of a shard, held; or who holds one that excludes it."""
    own = folder / f"lock.{shard.tag or 0}"
    try:
        # Only who holds the gate takes locks: of two that begin at the same time, neither is refused for a mere look
        # of the other one at its file.
        with _gate(folder), ExitStack() as others:
            held = _hold(own)
            for path in folder.glob("lock.*"):
                other = _shard_of(path)
                if isinstance(held, str) or path == own or other is None or not shard.overlaps(other):
                    continue
                if isinstance(found := _hold(path), str):
                    held.close()
                    return found
                others.callback(found.close)
            if not isinstance(held, str):
                held.truncate(0)
                held.write(f"process {os.getpid()} on {os.uname().nodename}\n")
                held.flush()
            return held
    except OSError as error:
        raise cannot_write(error, own) from error


def _gate(folder: Path) -> IO[str]:
    deadline = time.monotonic() + _GATE_S
    while isinstance(gate := _hold(folder / "gate"), str):
        if time.monotonic() >= deadline:
            raise SetupError(f"{folder / 'gate'}: another process has held it for {_GATE_S:.0f} s; end it")
        time.sleep(_POLL_S / 10)
    return gate


def _hold(path: Path) -> IO[str] | str:
    """The file, locked; or who has locked it."""
    file = path.open("a+")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        with file:
            file.seek(0)
            return file.read().strip() or "another process"
    return file


def _shard_of(path: Path) -> Shard | None:
    """What a lock file stands for; None for any other file."""
    if not (found := _NAME.fullmatch(path.name)):
        return None
    index, count = int(found[1]), int(found[2] or 1)
    return Shard(count, index) if index < count else None
