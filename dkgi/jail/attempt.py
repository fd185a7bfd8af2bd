"""The commands of one attempt: they wait for a place, run in its jail, are numbered and recorded.

>>> commands = AttemptCommands(jail, places, folder, workspace, Path("commands.jsonl"))
>>> commands.run(["/bin/bash", "-c", "rg -c asthma nodes"], timeout_s=120, connection=connection).output.name
'0001.txt'

The complete output becomes a numbered file of the attempt when the command has ended, so that a command that searches
/scratch/full_outputs does not read itself.
Not covered: who may ask (server.py).
"""

import contextlib
import dataclasses
import json
import os
import secrets
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from dkgi.files import open_to_append
from dkgi.jail.bare import Bare
from dkgi.jail.command import Jail
from dkgi.types import CommandResult, Workspace

_NOTHING = Path("/dev/null")
_CLOSE_S = 30.0


class Places:
    """A number of commands that may run at one time."""

    def __init__(self, count: int) -> None:
        self._free = os.eventfd(count, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)

    @contextmanager
    def hold(self, connection: socket.socket, deadline: float) -> Iterator[bool]:
        """Wait for a place, and give it back on leaving; False when none came free before `deadline` (monotonic).

        Raises ConnectionError as soon as the client at the other end of `connection` is gone.
        """
        poll = select.poll()
        poll.register(self._free, select.POLLIN)
        poll.register(connection, select.POLLRDHUP)
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            ready = {fd for fd, _ in poll.poll(left_s * 1000)}
            if connection.fileno() in ready:
                raise ConnectionError("the client is gone")
            if not ready:
                yield False
                return
            with contextlib.suppress(BlockingIOError):  # another thread was faster
                os.eventfd_read(self._free)
                break
        try:
            yield True
        finally:
            os.eventfd_write(self._free, 1)

    def close(self) -> None:
        os.close(self._free)


class AttemptCommands:
    """Runs commands until closed. `partial` is a folder that agents do not see, on the file system of the outputs."""

    def __init__(self, jail: Jail | Bare, places: Places, partial: Path, workspace: Workspace, log: Path) -> None:
        self._jail, self._places, self._partial, self._log = jail, places, partial, log
        self._outputs, self._shown_at = workspace.outputs_dir, workspace.outputs_at
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._count = 0

    def run(self, argv: Sequence[str], *, timeout_s: float, connection: socket.socket) -> CommandResult:
        """Run one command for the client at the other end of `connection`; its going away ends the command.

        Raises ConnectionError when the client is gone before the command starts, or the attempt is over.
        """
        started = time.time()
        deadline = time.monotonic() + timeout_s
        with self._listed(connection) as number, self._places.hold(connection, deadline) as held:
            left_s = deadline - time.monotonic()
            try:
                if held and left_s > 0:
                    result = self._run(argv, number, left_s, connection)
                else:
                    result = _not_run(137, "time", f"no place to run in became free within {timeout_s:g} s")
                self._record(number, started, argv, timeout_s, result)
            except OSError as error:  # a full disk
                result = _not_run(255, "sandbox", str(error))
            return result

    def close(self) -> None:
        """End the commands that run. Raises TimeoutError if one does not end, since its folder is not safe to remove."""
        with self._changed:
            self._closed = True
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)
            if not self._changed.wait_for(lambda: not self._connections, timeout=_CLOSE_S):
                raise TimeoutError("a command of the attempt could not be ended")

    @contextmanager
    def _listed(self, connection: socket.socket) -> Iterator[int]:
        with self._changed:
            if self._closed:
                raise ConnectionError("the attempt is over")
            self._connections.add(connection)
            self._count += 1
            number = self._count
        try:
            yield number
        finally:
            with self._changed:
                self._connections.remove(connection)
                self._changed.notify_all()

    def _run(self, argv: Sequence[str], number: int, timeout_s: float, connection: socket.socket) -> CommandResult:
        part = self._partial / f"{secrets.token_hex(4)}.part"
        complete = self._outputs / f"{number:04}.txt"
        try:
            result = self._jail.run(argv, part, timeout_s=timeout_s, cancel=connection.fileno())
            part.rename(complete)
        finally:
            part.unlink(missing_ok=True)
        return dataclasses.replace(result, output=complete, shown_at=self._shown_at)

    def _record(
        self, number: int, started: float, argv: Sequence[str], timeout_s: float, result: CommandResult
    ) -> None:
        line = {"number": number, "time": started, "argv": argv, "timeout_s": timeout_s} | dataclasses.asdict(result)
        line |= {"output": result.output.name, "signal": result.signal}
        with open_to_append(self._log) as file:
            file.write(json.dumps(line).encode() + b"\n")


def _not_run(exit_code: int, reason: Literal["time", "sandbox"], error: str) -> CommandResult:
    return CommandResult(exit_code, reason, _NOTHING, 0, 0.0, 0.0, 0.0, error)
