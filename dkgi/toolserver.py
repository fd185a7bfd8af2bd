"""Tools of attempts on a Unix socket, for programs in jails and for other threads alike.

>>> with ToolServer(folder.path) as server, server.attempt(make_tools(...), call_s=1800) as socket:
...     ask(socket.path, {"token": socket.token, "tool": "bash", "arguments": {"command": "ls"}}, timeout_s=60)
{'text': 'DATA_FORMAT.txt\\n...', 'is_error': False}

A request is one line `{"token": ..., "tool": "search", "arguments": {"query": "storm", "k": 5}}`, the answer one line
`{"text": ..., "is_error": false}` or `{"refused": "unknown token"}`. Arguments may also be the text that a model wrote.
`{"token": ..., "tools": true}` asks for the specifications of the tools. A connection carries any number of requests, one after the other.
Not covered: what the tools do; MCP (kg/mcp.py, sandbox/graph_mcp.py).
"""

import contextlib
import json
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dkgi.listener import Listener
from dkgi.tools import message, run_call
from dkgi.types import SandboxError, Tool, ToolCall, ToolOutput, ToolSocket

LONGEST_REQUEST = 2**20
LONGEST_ANSWER = 8 * 2**20
CONNECTIONS = 256
"""Connections that one attempt may hold open."""

_IDLE_S = 1800.0
_FULL = {"refused": "this attempt has too many connections, or is over"}


@dataclass(frozen=True, slots=True)
class Called:
    """One call that was answered. `bytes` is the size of the tool's output; `time` is in Unix seconds."""

    time: float
    tool: str
    arguments: Any
    is_error: bool
    bytes: int
    wall_s: float


class ToolServer:
    """Opens doors until closed, each attempt one of its own: whoever floods his is alone there. `folder` is a private one;
    `longest_request` are bytes."""

    def __init__(self, folder: Path, longest_request: int = LONGEST_REQUEST) -> None:
        self._folder, self._longest_request = folder, longest_request
        self._doors: set[_Door] = set()

    @contextmanager
    def attempt(
        self, tools: Mapping[str, Tool], *, call_s: float, record: Callable[[Called], None] = lambda _: None
    ) -> Iterator[ToolSocket]:
        """A door to these tools, each call of which takes `call_s` seconds at most. On leaving, what is connected is cut off.

        `record` is called with each call, one at a time. Raises SetupError where the folder cannot hold a socket.
        """
        path = self._folder / secrets.token_hex(4)
        door = _Door(path, _Calls(tools, call_s, record), self._longest_request)
        self._doors.add(door)
        try:
            yield ToolSocket(path, door.token)
        finally:
            self._doors.discard(door)
            door.close()

    def close(self) -> None:
        """Cut off all attempts that are open."""
        for door in list(self._doors):
            door.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Door:
    """One attempt's socket."""

    def __init__(self, path: Path, calls: "_Calls", longest_request: int) -> None:
        self.token = secrets.token_hex(16)
        self._calls, self._longest_request = calls, longest_request
        self._listener = Listener(path, self._serve, mode=0o666, most=CONNECTIONS, full=_line(_FULL))

    def close(self) -> None:
        """Cut everybody off and stop serving."""
        self._calls.close()
        self._listener.close()

    def _serve(self, connection: socket.socket) -> None:
        connection.settimeout(_IDLE_S)
        reader = _Lines(connection, self._longest_request)
        while (line := reader.next()) is not None:
            if reader.overlong:
                fault = ToolOutput(message("graph_request", bytes=self._longest_request), is_error=True)
                connection.sendall(_line(asdict(fault)))
            else:
                connection.sendall(_line(self._answer(line)))

    def _answer(self, line: bytes) -> Mapping[str, Any]:
        try:
            request = json.loads(line)
            token = request["token"]
            if "tools" not in request and not isinstance(request["tool"], str):
                raise TypeError("tool is not a string")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return {"refused": f"malformed request: {error!r}"}
        if not isinstance(token, str) or not secrets.compare_digest(token.encode(), self.token.encode()):
            return {"refused": "unknown token"}
        return self._calls.answer(request)


class _Calls:
    """What one attempt asks for, recorded."""

    def __init__(self, tools: Mapping[str, Tool], call_s: float, record: Callable[[Called], None]) -> None:
        self._tools, self._call_s, self._record = tools, call_s, record
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Nothing is answered or recorded any more."""
        with self._lock:
            self._closed = True

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if "tools" in request:
            return {"tools": [asdict(tool.spec) for tool in self._tools.values()]}
        name, given = request["tool"], request.get("arguments", {})
        text = given if isinstance(given, str) else json.dumps(given)
        with contextlib.suppress(ValueError, RecursionError):  # what a model wrote need not be JSON
            given = json.loads(text)
        started, clock = time.time(), time.monotonic()
        try:
            output = run_call(ToolCall("", name, text), self._tools, timeout_s=self._call_s)
        except SandboxError as error:
            return {"refused": str(error)}
        size = len(output.text.encode("utf-8", "surrogatepass"))
        if size > LONGEST_ANSWER:
            output = ToolOutput(message("graph_answer", bytes=size, most=LONGEST_ANSWER), is_error=True)
        with self._lock:
            if self._closed:
                return {"refused": "the attempt is over"}
            self._record(Called(started, name, given, output.is_error, size, time.monotonic() - clock))
        return asdict(output)


class _Lines:
    """The lines that come over a connection. `next` gives None at its end; of a line that is too long (`overlong`) it
    gives nothing, and has read all of it, since a client that still sends could not read an answer."""

    def __init__(self, connection: socket.socket, longest: int) -> None:
        self._connection, self._longest = connection, longest
        self._received = bytearray()
        self.overlong = False

    def next(self) -> bytes | None:
        self.overlong = False
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > self._longest:
                self._received.clear()
                self.overlong = True
            block = self._connection.recv(65536)
            if not block:
                return None
            self._received += block
        self.overlong = self.overlong or end > self._longest
        line = b"" if self.overlong else bytes(self._received[:end])
        del self._received[: end + 1]
        return line


def _line(answer: Mapping[str, Any]) -> bytes:
    return json.dumps(answer).encode() + b"\n"
