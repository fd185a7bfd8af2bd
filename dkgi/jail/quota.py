"""What an agent's folders take up on disk, counted without following anything that it made.

>>> measure([workspace.scratch_dir, workspace.tmp_dir])
Taken(bytes=8192, files=3)

Not covered: /dev/shm, which is a small file system of its own for each command.
"""

import errno
import math
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dkgi.jail.beneath import open_beneath

_INTERVAL_S = 0.5
_SHARE = 20


@dataclass(frozen=True, slots=True)
class Taken:
    """Bytes on disk, and files, folders and links of any kind."""

    bytes: float
    files: float


class Quota:
    """Room for one command in `folders`: it may not go beyond the limits, but may clear up where an earlier one did.

    A look costs time with the number of files, so that looks become rarer with it.
    """

    def __init__(self, folders: Sequence[Path], limit: Taken) -> None:
        self._folders, self._limit = folders, limit
        self._first = measure(folders) or limit
        self._next = time.monotonic() + _INTERVAL_S

    def holds(self) -> bool:
        """Whether there is room, by a look that is not older than a moment."""
        started = time.monotonic()
        if started < self._next:
            return True
        taken = measure(self._folders)
        if taken is None:
            return False
        ended = time.monotonic()
        self._next = ended + max(_INTERVAL_S, _SHARE * (ended - started))
        return not (
            taken.bytes > max(self._limit.bytes, self._first.bytes)
            or taken.files > max(self._limit.files, self._first.files)
        )


def bound(limit: int | None) -> float:
    """A limit of a configuration; None is none."""
    return math.inf if limit is None else limit


def measure(folders: Sequence[Path]) -> Taken | None:
    """What the folders and all below them take up; a file with several names counts once.

    None where folders lie so deep that the kernel takes no name for them: nothing can be said of what they hold.
    """
    seen: set[tuple[int, int]] = set()
    size = 0
    try:
        for folder in folders:
            for status in _below(folder):
                if (status.st_dev, status.st_ino) not in seen:
                    seen.add((status.st_dev, status.st_ino))
                    size += status.st_blocks * 512
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            return None
        raise
    return Taken(size, len(seen))


def _below(folder: Path) -> Iterator[os.stat_result]:
    top = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        pending = ["."]
        while pending:
            name = pending.pop()
            with _opened(top, name) as opened:
                if opened is None:
                    continue
                with os.scandir(opened) as entries:
                    for entry in entries:
                        try:
                            status = entry.stat(follow_symlinks=False)
                        except (FileNotFoundError, PermissionError):
                            continue  # removed, or locked again, in this moment
                        yield status
                        if entry.is_dir(follow_symlinks=False):
                            pending.append(f"{name}/{entry.name}")
    finally:
        os.close(top)


@contextmanager
def _opened(top: int, name: str) -> Iterator[int | None]:
    """The folder, or None where it went away or was locked in this moment."""
    try:
        handle = open_beneath(top, name, os.O_PATH | os.O_DIRECTORY)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise
        yield None
        return
    try:
        # What a folder that its owner locked holds counts all the same.
        if os.fstat(handle).st_mode & 0o500 != 0o500:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101
        opened = os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(handle)
    try:
        yield opened
    finally:
        os.close(opened)
