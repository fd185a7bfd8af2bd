"""Folders of running attempts, under names that tell an agent nothing.

>>> with RunFolder(paths.cache_dir() / "w") as folder:
...     workspace = folder.new_attempt(graph_dir)
...     folder.remove(workspace)

`w/0b1c2d3e.lock` is held while its process lives; `w/0b1c2d3e/4f5a6b7c/{scratch,tmp,outputs}` is an attempt. A folder
whose lock nobody holds belongs to a dead process and is removed when the next run starts.
Not covered: views of a graph (dkgi/graph/views.py), though a run's folder is a good place for them.
"""

import contextlib
import fcntl
import os
import pwd
import secrets
from pathlib import Path

from dkgi.types import SetupError, Workspace

# Above the ids that container managers hand out, below the end of signed 32-bit numbers.
_UNUSED_IDS = range(1_879_048_192, 2_130_706_432)


class RunFolder:
    """The folder of this process below `parent` (made if absent); making it removes those of dead processes.

    Raises SetupError where `parent` cannot be written.
    """

    def __init__(self, parent: Path) -> None:
        try:
            parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            for lock in parent.glob("*.lock"):
                if (held := _hold(lock)) is not None:
                    _discard(lock, held)
            self._lock, self._held = _new_lock(parent)
            self.path = self._lock.with_suffix("")
            self.path.mkdir(mode=0o700)
        except OSError as error:
            raise unwritable(error, parent) from None

    def new_attempt(self, graph_dir: Path) -> Workspace:
        """Empty folders for one attempt; scratch and tmp belong to the user that the jail will run as."""
        folder = self.path / secrets.token_hex(4)
        workspace = Workspace(graph_dir, folder / "scratch", folder / "tmp", folder / "outputs")
        try:
            folder.mkdir(mode=0o700)
            for made in (workspace.scratch_dir, workspace.tmp_dir, workspace.outputs_dir):
                made.mkdir()
            mount_point = workspace.scratch_dir / "full_outputs"
            mount_point.mkdir()
            for readable in (workspace.outputs_dir, mount_point):
                readable.chmod(0o755)  # whatever the umask
            for own in (workspace.scratch_dir, workspace.tmp_dir):
                own.chmod(0o700)
            if os.geteuid() == 0:
                uid = spare_id()
                for own in (workspace.scratch_dir, workspace.tmp_dir):
                    os.chown(own, uid, uid)
        except OSError as error:
            raise unwritable(error, folder) from None
        return workspace

    def remove(self, workspace: Workspace) -> None:
        """Remove an attempt's folders. Nothing may run in them any more."""
        remove_tree(workspace.scratch_dir.parent)

    def close(self) -> None:
        if self._held >= 0:
            _discard(self._lock, self._held)
            self._held = -1

    def __enter__(self) -> "RunFolder":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def unwritable(error: OSError, folder: Path) -> SetupError:
    """What a user can do about a full disk or a folder of another user."""
    return SetupError(f"{error.filename or folder}: {error.strerror}; set DKGI_DATA to a folder that can be written")


def _new_lock(parent: Path) -> tuple[Path, int]:
    while True:
        lock = parent / f"{secrets.token_hex(4)}.lock"
        held = _hold(lock)
        if held is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(held), lock.stat()):
                return lock, held
        os.close(held)  # another process took it for a dead one's in between


def _hold(lock: Path) -> int | None:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _discard(lock: Path, held: int) -> None:
    """Remove a folder and its lock, the lock last."""
    if (folder := lock.with_suffix("")).exists():
        remove_tree(folder)
    lock.unlink(missing_ok=True)
    os.close(held)


def remove_tree(folder: Path) -> None:
    """Remove what an agent left behind: no link is followed, locked folders are opened, any depth is fine.

    Every folder inside is moved up below `folder` before it is emptied, so neither the stack nor the number of open
    files grows with the depth. A thread that outlived its run may be removing the same: what is gone is gone.
    """
    with contextlib.suppress(FileNotFoundError):
        top = _open_folder(str(folder), None)
        try:
            while names := os.listdir(top):  # noqa: PTH208
                for name in names:
                    with contextlib.suppress(FileNotFoundError):
                        if not _unlink(name, top):
                            _empty(name, top)
        finally:
            os.close(top)
        folder.rmdir()


def _empty(name: str, top: int) -> None:
    inside = _open_folder(name, top)
    try:
        for child in os.listdir(inside):  # noqa: PTH208
            if not _unlink(child, inside):
                os.close(_open_folder(child, inside))
                os.rename(child, secrets.token_hex(16), src_dir_fd=inside, dst_dir_fd=top)
    finally:
        os.close(inside)
    os.rmdir(name, dir_fd=top)


def _unlink(name: str, folder: int) -> bool:
    try:
        os.unlink(name, dir_fd=folder)
    except IsADirectoryError:
        return False
    return True


def _open_folder(name: str, parent: int | None) -> int:
    """Open a folder whose mode may forbid it, made ours to change on the way. Raises OSError on a link."""
    handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{handle}", 0o700)  # noqa: PTH101
        return os.open(f"/proc/self/fd/{handle}", os.O_RDONLY | os.O_DIRECTORY)
    finally:
        os.close(handle)


def spare_id() -> int:
    """A user id that nobody has, taken at random for one attempt: limits on processes are counted by id.

    Raises SetupError in a container that maps root alone.
    """
    start, size = max(_mapped_ids("uid_map"), _mapped_ids("gid_map"), key=lambda ids: -ids[1])
    if start + size >= _UNUSED_IDS.stop:
        return secrets.choice(_UNUSED_IDS)
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    free = [number for number in range(start + size // 2, start + size) if number not in taken]
    if size < 2 or not free:
        raise SetupError("this container has no user id beside root's for agents: run dkgi as an ordinary user")
    return secrets.choice(free)


def _mapped_ids(name: str) -> tuple[int, int]:
    """First id and size of the largest range that exists in this user namespace."""
    rows = [[int(number) for number in row.split()] for row in Path("/proc/self", name).read_text().splitlines()]
    start, _, size = max(rows, key=lambda row: row[2])
    return start, size
