"""Ask the command server for a command: the one way from a tool to a process.

>>> CommandClient(server.socket, token).run(["/bin/bash", "-c", "ls"], timeout_s=120).exit_code
0

Not covered: the protocol's other side (server.py).
"""

import contextlib
import json
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dkgi.types import CommandResult, PythonStart

_NOTHING = Path("/dev/null")
_PATIENCE_S = 60.0


@dataclass(frozen=True, slots=True)
class CommandClient:
    """A CommandRunner for one attempt, which `token` names. Holds no connection, so any number of threads may share it."""

    socket: Path
    token: str

    def run(self, argv: Sequence[str], *, timeout_s: float) -> CommandResult:
        """Run `argv` in a fresh jail; a wait for a free place counts. Never raises for what the command does.

        A server that is gone or knows no such attempt gives a result with `killed_by="cancelled"`.
        """
        request = json.dumps({"token": self.token, "argv": list(argv), "timeout_s": timeout_s})
        try:
            with socket.socket(socket.AF_UNIX) as connection, address(self.socket) as path:
                connection.settimeout(timeout_s + _PATIENCE_S)
                connection.connect(path)
                connection.sendall(request.encode() + b"\n")
                answer = b"".join(iter(lambda: connection.recv(65536), b""))
        except OSError as error:
            return _cancelled(f"the command server cannot be reached: {error}")
        if not answer.endswith(b"\n"):
            return _cancelled("the attempt is over")
        fields = json.loads(answer)
        if "refused" in fields:
            return _cancelled(fields["refused"])
        starts = tuple(PythonStart(**start | {"argv": tuple(start["argv"])}) for start in fields["python"])
        return CommandResult(**fields | {"output": Path(fields["output"]), "python": starts})


def _cancelled(reason: str) -> CommandResult:
    return CommandResult(137, "cancelled", _NOTHING, 0, 0.0, 0.0, 0.0, reason)


@contextmanager
def address(path: Path) -> Iterator[str]:
    """A name for the socket at `path` that fits the 107 bytes that the kernel allows, however long `path` is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        with contextlib.suppress(OSError):
            os.close(folder)
