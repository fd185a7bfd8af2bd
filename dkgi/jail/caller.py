"""The process in a jail that asks for Python, seen from the host: what it was started with, and its standard streams.

>>> with Caller.find(root, 17) as caller:
...     caller.argv, caller.folder, caller.program()
(('-c', 'print(1)'), '/graph', 'print(1)')

Whatever process an agent names, it is one of its own jail, and all that is taken from it stays in jails of the attempt.
Not covered: what is done with it (broker.py).
"""

import contextlib
import ctypes
import os
import select
import stat
from pathlib import Path
from typing import Self

from dkgi.jail.beneath import read_beneath
from dkgi.process import tree

_PIDFD_GETFD = 438
_MOST_TEXT = 256 * 1024
_OPTIONS_WITH_VALUE = ("-W", "-X", "--check-hash-based-pycs")
_libc = ctypes.CDLL(None, use_errno=True)


class Caller:
    """Found by `find`; to be used as a context, which gives the descriptors back.

    argv, environment, folder   as the process was started, without the stand-in's own words; folder is a path in the jail
    streams                     its standard streams; what is closed is /dev/null
    pidfd                       readable once the process is gone
    """

    def __init__(self, pid: int, pidfd: int) -> None:
        self.pidfd = pidfd
        self._root = f"/proc/{pid}/root"
        self.streams: tuple[int, ...] = ()
        words = _strings(f"/proc/{pid}/cmdline")[1:]
        self.argv = tuple(words[2:] if words[:1] == ["-p"] else words[1:])
        pairs = (entry.partition("=") for entry in _strings(f"/proc/{pid}/environ"))
        self.environment = tuple((name, value) for name, equals, value in pairs if name and equals)
        self.folder = os.readlink(f"/proc/{pid}/cwd")  # noqa: PTH115

    @classmethod
    def find(cls, root: int, number: int) -> Self:
        """The process that is number `number` in the jail of host process `root`. Raises OSError where there is none."""
        for pid in list(tree(root))[1:]:
            with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                if _number_inside(pid) != number:
                    continue
                pidfd = os.pidfd_open(pid)
                try:
                    caller = cls(pid, pidfd)
                    # Its number could have gone to another process, unless it lives now and is still in this jail.
                    if pid in list(tree(root))[1:] and _number_inside(pid) == number and _lives(pidfd):
                        caller.streams = _take_streams(pidfd)
                        return caller
                except BaseException:
                    os.close(pidfd)
                    raise
                os.close(pidfd)
        raise ProcessLookupError("the process that asked is gone")

    def program(self) -> str | None:
        """The text that Python will run, where it can be had without disturbing it: -c, a file in scratch, stdin."""
        words = iter(self.argv)
        for word in words:
            if word in _OPTIONS_WITH_VALUE:
                next(words, "")
            elif word == "-" or not word.startswith("-"):
                return self._peek() if word == "-" else self._read(word)
            elif not word.startswith("--") and word.endswith("c"):
                return next(words, "")
            elif not word.startswith("--") and "m" in word:
                return None
        return self._peek()

    def release(self) -> None:
        """Close the streams, which would keep the command's output open."""
        for stream in self.streams:
            os.close(stream)
        self.streams = ()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        os.close(self.pidfd)

    def _read(self, path: str) -> str | None:
        """A script file. The jail's root is a link of the kernel's, everything below it is looked up without links."""
        name = os.path.normpath(os.path.join(self.folder, path)).lstrip("/")  # noqa: PTH118
        folder, _, rest = name.partition("/")
        try:
            return read_beneath(Path(f"{self._root}/{folder}"), rest, most=_MOST_TEXT).decode(errors="replace")
        except OSError:
            return None

    def _peek(self) -> str | None:
        """Standard input, left as it is: a here-document is a file or a pipe that holds all of it already."""
        stdin = self.streams[0]
        mode = os.fstat(stdin).st_mode
        try:
            if stat.S_ISREG(mode):
                return os.pread(stdin, _MOST_TEXT, 0).decode(errors="replace")
            return _peek_pipe(stdin) if stat.S_ISFIFO(mode) else None
        except OSError:
            return None


def _peek_pipe(pipe: int) -> str:
    read_end, write_end = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        copied = int(_libc.tee(pipe, write_end, ctypes.c_size_t(_MOST_TEXT), 2))  # 2: do not wait
        return os.read(read_end, copied).decode(errors="replace") if copied > 0 else ""
    finally:
        os.close(read_end)
        os.close(write_end)


def _take_streams(pidfd: int) -> tuple[int, ...]:
    streams: list[int] = []
    try:
        for number in range(3):
            streams.append(_take(pidfd, number))
            mode = os.fstat(streams[-1]).st_mode
            # A folder would be a way out of Python's jail into the caller's.
            if not (stat.S_ISREG(mode) or stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
                raise OSError("a standard stream is neither a file nor a pipe")
    except BaseException:
        for stream in streams:
            os.close(stream)
        raise
    return tuple(streams)


def _take(pidfd: int, number: int) -> int:
    taken = int(_libc.syscall(_PIDFD_GETFD, pidfd, number, 0))
    if taken >= 0:
        return taken
    code = ctypes.get_errno()
    if code == 9:  # closed
        return os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC)
    raise OSError(code, f"pidfd_getfd: {os.strerror(code)}")


def _number_inside(pid: int) -> int:
    """The number that the process has in the innermost namespace."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("NSpid:"):
            return int(line.split()[-1])
    raise ProcessLookupError(f"process {pid} is gone")


def _lives(pidfd: int) -> bool:
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return not poll.poll(0)


def _strings(path: str) -> list[str]:
    return [os.fsdecode(part) for part in Path(path).read_bytes().split(b"\0")[:-1]]
