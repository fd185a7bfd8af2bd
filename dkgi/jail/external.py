"""The external program of an attempt on the host: its folders, its jail, and nothing of it afterwards.

>>> box = CliBox(((tree, "/opt/pi"), (socket, "/run/model")), "/run/home", "/graph", (), 1800, 2048, files=(("a.json", "{}"),))
>>> with AttemptPrograms(workspace).start(box, ["/usr/bin/node", "/opt/pi/cli.js"]) as program:
...     program.wait(60)
0

    w/0b1c2d3e/4f5a6b7c/cli/{home, empty, stderr.txt}    beside the attempt's scratch, and its program's alone

Not covered: the jail (cli.py); starting it from another process (remote_cli.py).
"""

import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path

from dkgi.jail.cli import CliProcess, cli
from dkgi.jail.profile import TMP
from dkgi.jail.quota import Quota, Taken
from dkgi.jail.scratch import remove_tree, unwritable
from dkgi.types import CliBox, SandboxError, Workspace


class AttemptPrograms:
    """A types.ProgramStarter until closed. The program runs as the user that the attempt's folders belong to, one at a time."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        # Held while one starts and while one is ended: whoever closes waits for that.
        self._lock = threading.Lock()
        self._running: ExitStack | None = None
        self._closed = False

    @contextmanager
    def start(self, box: CliBox, argv: Sequence[str]) -> Iterator[CliProcess]:
        """As types.ProgramStarter.start. A file that would lie outside of the home is a ValueError."""
        with self._lock:
            if self._closed:
                raise SandboxError("the attempt is over")
            if self._running:
                raise SandboxError("a program of this attempt runs already")
            with ExitStack() as starting:
                process = starting.enter_context(_started(self._workspace, box, argv))
                self._running = starting.pop_all()
        try:
            yield process
        finally:
            with self._lock:
                self._end()

    def close(self) -> None:
        """End the program that runs, whoever still has it, and take away what it kept."""
        with self._lock:
            self._closed = True
            self._end()

    def _end(self) -> None:
        running, self._running = self._running, None
        if running:
            running.close()


@contextmanager
def _started(place: Workspace, box: CliBox, argv: Sequence[str]) -> Iterator[CliProcess]:
    with _folder(place) as folder:
        home = _home(folder, place, box)
        writable = [(home, box.home)]
        if box.folders:
            writable += [(place.scratch_dir, place.scratch_at), (place.tmp_dir, TMP)]
        if box.empty is not None:
            box = replace(box, read_only=(*box.read_only, (_empty(folder), box.empty)))
        room = None
        if box.scratch_mb is not None:
            room = Quota([source for source, _ in writable], Taken(box.scratch_mb * 2**20, math.inf)).holds
        with cli(box, argv, writable, stderr=folder / "stderr.txt", room=room) as process:
            yield process


@contextmanager
def _folder(workspace: Workspace) -> Iterator[Path]:
    folder = workspace.scratch_dir.parent / "cli"
    try:
        folder.mkdir(mode=0o700)
    except OSError as error:
        raise unwritable(error, folder) from None
    try:
        yield folder
    finally:
        remove_tree(folder)


def _home(folder: Path, workspace: Workspace, box: CliBox) -> Path:
    """The program's own folder, with its files; nothing runs there yet."""
    home = folder / "home"
    try:
        home.mkdir(mode=0o700)
        for name, content in box.files:
            if name in ("", "..") or name != Path(name).name:
                raise ValueError(f"{name!r} is not the name of a file")
            (home / name).write_text(content, encoding="utf-8")
            (home / name).chmod(0o644)
        if os.geteuid() == 0:
            status = workspace.scratch_dir.stat()
            os.chown(home, status.st_uid, status.st_gid)
    except OSError as error:
        raise unwritable(error, home) from None
    return home


def _empty(folder: Path) -> Path:
    empty = folder / "empty"
    empty.mkdir()
    empty.chmod(0o755)  # whatever the umask
    return empty
