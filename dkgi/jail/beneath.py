"""Read a file that an agent made, from the host: never through a link, out of its folder, or from a device or pipe.

>>> read_beneath(workspace.scratch_dir, "program.py", most=65_536)
b'print(1)\\n'

Not covered: removing what an agent made (scratch.py).
"""

import ctypes
import os
import stat
import struct
from pathlib import Path

# The same number on all architectures.
_OPENAT2 = 437
_RESOLVE_NO_MAGICLINKS, _RESOLVE_NO_SYMLINKS, _RESOLVE_BENEATH = 2, 4, 8
_libc = ctypes.CDLL(None, use_errno=True)


def read_beneath(folder: Path, name: str, *, most: int) -> bytes:
    """At most `most` bytes of the regular file `name` below `folder`, both without a link on the way.

    Raises OSError where there is no such file: a link, a folder, a device, a pipe or a socket is none.
    """
    top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Non-blocking, since a pipe without a writer would hold the host; O_PATH first would not read it either.
        file = open_beneath(top, name, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
    finally:
        os.close(top)
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise OSError(f"{name} is not a regular file")
        return os.pread(file, most, 0)
    finally:
        os.close(file)


def open_beneath(folder: int, name: str, flags: int) -> int:
    """Open `name` relative to the folder's descriptor. The kernel refuses links and ways out; raises OSError."""
    resolve = _RESOLVE_BENEATH | _RESOLVE_NO_SYMLINKS | _RESOLVE_NO_MAGICLINKS
    how = struct.pack("=QQQ", flags | os.O_CLOEXEC, 0, resolve)
    path = os.fsencode(name)
    if b"\0" in path:
        raise OSError(f"not a name of a file: {name!r}")
    descriptor = int(_libc.syscall(_OPENAT2, folder, path, how, len(how)))
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return descriptor
