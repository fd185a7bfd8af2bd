"""Start an attempt's external program from another process, which has no rights to make a jail and no root.

>>> with RemotePrograms(Path("/run/parent/host"), token).start(box, ["/opt/pi/node", "/opt/pi/cli.js"]) as program:
...     program.stdin.write(b'{"type": "get_state"}\\n')

    worker                                              host
      {"token": ..., "program": {"box", "argv"}}   ──►    starts it in its jail (external.py)
      stdin and stdout, as file descriptors        ◄──    {"started": true}, or {"refused": ...}, or {"setup": ...}
      {"do": "wait", "timeout": 5}                 ──►
                                                   ◄──    {"exit_code": 0}, or {"running": true}
      {"do": "killed_by"}, {"do": "kill"}, {"do": "told"}

A program has a connection of its own, and ends with it: with a worker that is killed, too. Lines are JSON.

A worker that is not ours any more may run what it likes in such a jail, one program at a time for each of its attempts,
and with as much memory, time up to a day, and room on disk as it asks for. It shows that program only what it sees
itself (`visible`), never labels, queries or results (check_sources), to read alone; written is only to the attempt's own
folders. It gains no network, no user beside the attempt's, no process on the host. In a folder of `visible` that it can
write it might put a link between the check and the mount: have none there but its own, for its sockets.
Not covered: whose connection it is, and which attempt a token stands for.
"""

import contextlib
import functools
import json
import os
import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import IO, Any

from pydantic import TypeAdapter, ValidationError

from dkgi.jail.client import address
from dkgi.types import CliBox, Program, ProgramKilledBy, ProgramStarter, SandboxError, SetupError

_LONGEST_S = 86_400.0
_LINE_BYTES = 64 * 1024
_LOOK_S = 0.25
_PATIENCE_S = 60.0
# The jail has a minute to start.
_START_S = 60.0 + _PATIENCE_S
_PIPES = 2


@dataclass(frozen=True, slots=True)
class _Asked:
    box: CliBox
    argv: tuple[str, ...]


@functools.cache
def _form() -> TypeAdapter[_Asked]:
    return TypeAdapter(_Asked)


def serve_program(
    connection: socket.socket, request: Mapping[str, Any], programs: ProgramStarter, *, visible: Sequence[Path]
) -> None:
    """Start what `request`, the first line, asks for, and answer until the connection ends; then the program is gone.

    `visible` are the host folders and files that the worker sees itself. Never raises for what a worker does.
    """
    connection.settimeout(_PATIENCE_S)
    answer: Mapping[str, Any] = {"over": True}
    with ExitStack() as stack:
        try:
            asked = _asked(request, visible)
            program = stack.enter_context(programs.start(asked.box, asked.argv))
        except SetupError as error:
            answer = {"setup": str(error)}
        except (SandboxError, ValueError, OSError) as error:  # a ValueError is of the worker's making
            answer = {"refused": str(error)}
        else:
            connection.settimeout(asked.box.wall_s + _PATIENCE_S)  # by then the program has ended
            with contextlib.suppress(OSError):  # the worker is gone
                _serve(connection, program)
    with contextlib.suppress(OSError):
        _send(connection, answer)


def _asked(request: Mapping[str, Any], visible: Sequence[Path]) -> _Asked:
    """Raises ValueError where the request has another form, SandboxError where it asks for what it may not have."""
    try:
        asked = _form().validate_python(request["program"])
    except ValidationError as error:
        first = error.errors()[0]
        raise ValueError(f"malformed request: {'.'.join(map(str, first['loc']))}: {first['msg']}") from None
    if not 0 <= asked.box.wall_s <= _LONGEST_S:
        raise ValueError(f"wall_s is not a number up to {_LONGEST_S:g}")
    seen = [path.resolve() for path in visible]
    sources = [(source.resolve(), target) for source, target in asked.box.read_only]
    for real, target in sources:
        if not any(real.is_relative_to(path) for path in seen):
            raise SandboxError(f"{real}, wanted at {target}, is nothing that the worker sees itself")
    return replace(asked, box=replace(asked.box, read_only=tuple(sources)))


def _serve(connection: socket.socket, program: Program) -> None:
    """Hand over the program's pipes, which are then the worker's alone, and answer until the connection ends."""
    pipes = (program.stdin, program.stdout)
    socket.send_fds(connection, [b'{"started": true}\n'], [pipe.fileno() for pipe in pipes])
    for pipe in pipes:
        pipe.close()
    with connection.makefile("rb") as reader:
        while (line := reader.readline(_LINE_BYTES)).endswith(b"\n"):
            try:
                answer = _answer(connection, program, json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                return
            _send(connection, answer)


def _answer(connection: socket.socket, program: Program, request: Mapping[str, Any]) -> Mapping[str, Any]:
    match request["do"]:
        case "wait":
            return _wait(connection, program, float(request["timeout"]))
        case "killed_by":
            return {"killed_by": program.killed_by}
        case "told":
            return {"told": program.told()}
        case "kill":
            program.kill()
            return {"killed": True}
        case unknown:
            raise ValueError(unknown)


def _wait(connection: socket.socket, program: Program, timeout: float) -> Mapping[str, Any]:
    """Raises ConnectionError as soon as the worker is gone."""
    poll = select.poll()
    poll.register(connection, select.POLLRDHUP)
    deadline = time.monotonic() + min(timeout, _LONGEST_S)
    while True:
        try:
            return {"exit_code": program.wait(max(0.0, min(_LOOK_S, deadline - time.monotonic())))}
        except TimeoutError:
            if poll.poll(0):
                raise ConnectionError("the worker is gone") from None
            if not time.monotonic() < deadline:
                return {"running": True}


def _send(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


@dataclass(frozen=True, slots=True)
class RemotePrograms:
    """A types.ProgramStarter whose host serves `socket`; `token` names the attempt."""

    socket: Path
    token: str

    @contextmanager
    def start(self, box: CliBox, argv: Sequence[str]) -> Iterator["RemoteProgram"]:
        """As types.ProgramStarter.start. Raises SandboxError where the host is gone, too."""
        request = {"token": self.token, "program": {"box": asdict(box), "argv": list(argv)}}
        with ExitStack() as stack:
            try:
                connection = stack.enter_context(socket.socket(socket.AF_UNIX))
                connection.settimeout(_START_S)
                with address(self.socket) as path:
                    connection.connect(path)
                connection.sendall(json.dumps(request, default=str).encode() + b"\n")
                answer, pipes = _started(connection)
            except OSError as error:
                raise SandboxError(f"the host of programs cannot be reached: {error}") from None
            if "setup" in answer:
                raise SetupError(answer["setup"])
            if len(pipes) != _PIPES:
                raise SandboxError(answer.get("refused", "the host of programs is gone"))
            program = RemoteProgram(connection, os.fdopen(pipes[0], "wb"), os.fdopen(pipes[1], "rb"))
            stack.callback(program.close)
            yield program


def _started(connection: socket.socket) -> tuple[Mapping[str, Any], list[int]]:
    """The first answer, and the descriptors that came with it. An answer that was cut off is an empty one."""
    received, pipes = b"", list[int]()
    while not received.endswith(b"\n"):
        block, more, _, _ = socket.recv_fds(connection, _LINE_BYTES, _PIPES, socket.MSG_CMSG_CLOEXEC)
        pipes += more
        if not block:
            return {}, pipes
        received += block
    answer: Mapping[str, Any] = json.loads(received)
    return answer, pipes


class RemoteProgram:
    """A types.Program that the host watches. Thread-safe. Raises SandboxError where the host is gone."""

    def __init__(self, connection: socket.socket, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.stdin, self.stdout = stdin, stdout
        self._connection, self._lines = connection, connection.makefile("rb")
        self._lock = threading.Lock()

    @property
    def killed_by(self) -> ProgramKilledBy | None:
        killed_by: ProgramKilledBy | None = self._ask({"do": "killed_by"})["killed_by"]
        return killed_by

    def wait(self, timeout: float) -> int:
        answer = self._ask({"do": "wait", "timeout": timeout}, timeout)
        if "exit_code" not in answer:
            raise TimeoutError(f"the program still runs after {timeout:g} s")
        code: int = answer["exit_code"]
        return code

    def kill(self) -> None:
        self._ask({"do": "kill"})

    def told(self) -> str:
        text: str = self._ask({"do": "told"})["told"]
        return text

    def close(self) -> None:
        """End the program, and wait until it is gone."""
        with contextlib.suppress(OSError):  # the host is gone, and the program with it
            self._connection.settimeout(_PATIENCE_S)
            self._connection.shutdown(socket.SHUT_WR)
            self._lines.readline()
        for pipe in (self.stdin, self.stdout, self._lines):
            with contextlib.suppress(OSError):  # what was still to be written has no reader
                pipe.close()

    def _ask(self, request: Mapping[str, Any], seconds: float = 0) -> Mapping[str, Any]:
        try:
            with self._lock:
                self._connection.settimeout(seconds + _PATIENCE_S)
                _send(self._connection, request)
                line = self._lines.readline()
        except OSError as error:
            raise SandboxError(f"the host of programs is gone: {error}") from None
        if not line.endswith(b"\n"):
            raise SandboxError("the host of programs is gone")
        answer: Mapping[str, Any] = json.loads(line)
        if "over" in answer:
            raise SandboxError("the attempt is over")
        return answer
