"""Files that must be whole or absent, whatever happens in between.

>>> write_atomically(Path("result.json"), b"{}")
>>> read_json(Path("result.json"))
{}

Not covered: folders of files that appear together (graph/export.py builds one beside and renames it).
"""

import contextlib
import errno
import os
import stat
import tempfile
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import IO, Any

import orjson

from dkgi.types import SetupError

_FULL_OR_READ_ONLY = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def dump_json(value: Any, option: int = 0) -> bytes:
    """`value` as JSON. What JSON files cannot hold but a model can say is kept in another form, in its place: half a
    surrogate pair becomes U+FFFD, an integer beyond 64 bits a string.
    """
    try:
        return orjson.dumps(value, option=option)
    except TypeError:
        return orjson.dumps(_storable(value), option=option)


def _storable(value: Any) -> Any:
    if is_dataclass(value) and not isinstance(value, type):
        return _storable(asdict(value))
    if isinstance(value, Mapping):
        return {_storable(str(key)): _storable(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_storable(inner) for inner in value]
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        return str(value)
    return value


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that a reader, or the next start after a kill or a power cut, sees all of it or the old one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with beside.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            beside.unlink()
        raise
    sync_folder(path.parent)


def open_to_append(path: Path, *, buffering: int = -1) -> IO[bytes]:
    """A file to read and to append to, made where there is none, in a folder that a worker may write to as well.

    Raises OSError where a link is in its place: it would lead this process to any file of the host.
    """
    return open(path, "a+b", buffering=buffering, opener=_no_link)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW, 0o666)


def read_plain(path: Path) -> bytes:
    """The content of a file in a folder that a worker may write to.

    Raises FileNotFoundError, and SetupError where it is no plain file: a link would lead this process to any file of the
    host, and a pipe would keep it waiting.
    """
    try:
        with open(path, "rb", opener=_plain) as file:
            return file.read()
    except FileNotFoundError:
        raise
    except OSError as error:
        reason = "a link" if error.errno == errno.ELOOP else error.strerror
        raise SetupError(f"{path}: {reason}; move it away and the query runs again") from None


def _plain(path: str, flags: int) -> int:
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a plain file")
    return handle


def sync_folder(folder: Path) -> None:
    """Make names that were made, changed or removed in a folder durable."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_writable(folder: Path) -> None:
    """Make the folder and write to it, so that a full or read-only disk is told before any work is done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Without a name: other processes may try at the same time, and nothing is left after a kill.
        with tempfile.TemporaryFile(dir=folder) as file:
            file.write(b"\0" * 65_536)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise cannot_write(error, folder) from error


def cannot_write(error: OSError, folder: Path) -> SetupError:
    """What to tell where a file of a run cannot be written."""
    remedy = "make room or make it accessible, or name another folder in DKGI_RUNS, and run the same command again"
    return SetupError(f"{error.filename or folder}: {error.strerror}; {remedy}: nothing is lost")


def as_setup_error(error: OSError, folder: Path) -> Exception:
    """What to raise for an error of the system: one that the user can mend, if the disk is full or must not be written."""
    return cannot_write(error, folder) if error.errno in _FULL_OR_READ_ONLY else error


def read_json(path: Path) -> Any:
    """The content of a JSON file of ours. Raises SetupError where it cannot be read."""
    try:
        return orjson.loads(path.read_bytes())
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None
    except ValueError:
        raise SetupError(f"{path}: not JSON; remove the file and it is made again") from None
