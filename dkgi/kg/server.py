"""The graph server: answers the calls of graph tools on a Unix socket, outside of every jail, for every harness alike.

>>> with GraphServer(folder.path, graph_tools(index), '{"engine": "csr"}') as server:
...     with server.attempt(("search",), (), Path("graph_calls.jsonl")) as graph:
...         graph.tools["search"].call({"query": "storm"}, timeout_s=60).text
'3 results ...'

A request is one line `{"token": ..., "tool": "search", "arguments": {"query": "storm", "k": 5}}`, the answer one line
`{"text": ..., "is_error": false}` or `{"refused": "unknown token"}`. `{"token": ..., "tools": true}` asks for the
specifications of the tools. A connection carries any number of requests, one after the other.
Not covered: what the tools do (tools.py); MCP (mcp.py, sandbox/graph_mcp.py).
"""

import contextlib
import json
import secrets
import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from dkgi.jail.client import address
from dkgi.jail.scratch import unwritable
from dkgi.kg.remote import RemoteTool
from dkgi.paths import data_dir
from dkgi.tools import message, run_call
from dkgi.types import Tool, ToolCall, ToolOutput

LONGEST_REQUEST = 64 * 1024
LONGEST_ANSWER = 8 * 2**20
CONNECTIONS = 256
"""Connections that one attempt may hold open."""

_CALL_S = 60.0
_IDLE_S = 1800.0
_CLOSE_S = 30.0


@dataclass(frozen=True, slots=True)
class GraphSeat:
    """The graph tools of one attempt.

    tools    those that the model is offered, by name
    files    (host path, name) of what programs need to call them; none where they may not
    calls    how many calls were answered so far, whoever made them
    """

    tools: Mapping[str, Tool]
    files: tuple[tuple[Path, str], ...]
    calls: Callable[[], int]


class GraphServer:
    """Serves until closed. `folder` is a private one; `engine` says what searches, for the records.

    Raises SetupError where `folder` cannot be written or cannot hold a socket.
    """

    def __init__(self, folder: Path, tools: Mapping[str, Tool], engine: str) -> None:
        self.socket = folder / "graph_calls"
        self.engine = engine
        self._folder, self._tools = folder, tools
        self._attempts: dict[str, _AttemptCalls] = {}
        self._listener = _listen(self.socket)
        self._closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="graph", daemon=True)
        self._acceptor.start()

    @contextmanager
    def attempt(self, offered: Sequence[str], client: Sequence[str], log: Path) -> Iterator[GraphSeat]:
        """Tools for one attempt: those `offered` to the model, and those for programs with the client.

        `log` gets a line a call. On leaving, what is connected is cut off.
        """
        allowed = {name: self._tools[name] for name in dict.fromkeys((*offered, *client))}
        token = secrets.token_hex(16)
        calls = _AttemptCalls(allowed, log, self.engine)
        tools = {name: RemoteTool(self._tools[name].spec, self.socket, token) for name in offered}
        with contextlib.ExitStack() as stack:
            stack.callback(calls.close)
            stack.callback(self._attempts.pop, token, None)
            files = stack.enter_context(self._client_files(token)) if client else ()
            self._attempts[token] = calls
            yield GraphSeat(tools, files, calls.count)

    @contextmanager
    def _client_files(self, token: str) -> Iterator[tuple[tuple[Path, str], ...]]:
        """Copies under neutral names: the path of the installed client would tell agents where we are."""
        own = self._folder / secrets.token_hex(4)
        try:
            own.mkdir(mode=0o755)
            shutil.copyfile(data_dir("sandbox") / "graph_client.py", own / "client")
            (own / "token").write_text(token, encoding="ascii")
            for path in own.iterdir():
                path.chmod(0o644)
        except OSError as error:
            raise unwritable(error, own) from None
        try:
            yield (
                (own / "client", "graph_client.py"),
                (own / "token", "token"),
                (self.socket, "socket"),
            )
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def cancel(self) -> None:
        """Cut off all attempts that are open."""
        for calls in list(self._attempts.values()):
            calls.close()

    def close(self) -> None:
        """Cut everybody off and stop serving."""
        if self._closing.is_set():
            return
        self._closing.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(timeout=_CLOSE_S)
        self._listener.close()
        self.cancel()
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or out of file descriptors for the moment
                self._closing.wait(0.05)
                continue
            threading.Thread(target=self._serve, args=(connection,), name="graph call", daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):  # the client is gone, idle for too long, or cut off
            connection.settimeout(_IDLE_S)
            reader = _Lines(connection)
            with contextlib.ExitStack() as stack:
                joined: _AttemptCalls | None = None
                while (line := reader.next()) is not None:
                    if reader.overlong:
                        fault = ToolOutput(message("graph_request", bytes=LONGEST_REQUEST), is_error=True)
                        _send(connection, asdict(fault))
                        continue
                    calls, request = self._read(line)
                    if isinstance(calls, str):
                        _send(connection, {"refused": calls})
                        continue
                    if joined is None:
                        if not calls.join(connection):
                            _send(connection, {"refused": "this attempt has too many connections, or is over"})
                            return
                        stack.callback(calls.leave, connection)
                        joined = calls
                    _send(connection, calls.answer(request))

    def _read(self, line: bytes) -> tuple["_AttemptCalls | str", Mapping[str, Any]]:
        """Whose request it is, or why it is refused."""
        try:
            request = json.loads(line)
            token = request["token"]
            if "tools" not in request and not isinstance(request["tool"], str):
                raise TypeError("tool is not a string")
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            return f"malformed request: {error!r}", {}
        calls = self._attempts.get(token) if isinstance(token, str) else None
        return calls or "unknown token", request


class _AttemptCalls:
    """What one attempt asks for: counted, recorded, cut off when it is over."""

    def __init__(self, tools: Mapping[str, Tool], log: Path, engine: str) -> None:
        self._tools, self._log, self._engine = tools, log, engine
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closed = False
        self._count = 0

    def count(self) -> int:
        return self._count

    def join(self, connection: socket.socket) -> bool:
        with self._lock:
            if self._closed or len(self._connections) >= CONNECTIONS:
                return False
            self._connections.add(connection)
            return True

    def leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            for connection in self._connections:
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)

    def answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        if "tools" in request:
            return {"tools": [asdict(tool.spec) for tool in self._tools.values()]}
        name, arguments = request["tool"], request.get("arguments", {})
        started, clock = time.time(), time.monotonic()
        output = run_call(ToolCall("", name, json.dumps(arguments)), self._tools, timeout_s=_CALL_S)
        size = len(output.text.encode("utf-8", "surrogatepass"))
        if size > LONGEST_ANSWER:
            output = ToolOutput(message("graph_answer", bytes=size, most=LONGEST_ANSWER), is_error=True)
        with self._lock:
            if self._closed:
                return {"refused": "the attempt is over"}
            self._count += 1
            line = {
                "number": self._count,
                "time": started,
                "tool": name,
                "arguments": arguments,
                "is_error": output.is_error,
                "bytes": size,
                "wall_s": time.monotonic() - clock,
                "engine": self._engine,
            }
            with self._log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
        return asdict(output)


class _Lines:
    """The lines that come over a connection. `next` gives None at its end; of a line that is too long (`overlong`) it
    gives nothing, and has read all of it, since a client that still sends could not read an answer."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._received = bytearray()
        self.overlong = False

    def next(self) -> bytes | None:
        self.overlong = False
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > LONGEST_REQUEST:
                self._received.clear()
                self.overlong = True
            block = self._connection.recv(65536)
            if not block:
                return None
            self._received += block
        self.overlong = self.overlong or end > LONGEST_REQUEST
        line = b"" if self.overlong else bytes(self._received[:end])
        del self._received[: end + 1]
        return line


def _send(connection: socket.socket, answer: Mapping[str, Any]) -> None:
    connection.sendall(json.dumps(answer).encode() + b"\n")


def _listen(path: Path) -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    try:
        with address(path) as name:
            listener.bind(name)
        # Agents are other users; the folder keeps everybody else away, and each request needs a token.
        path.chmod(0o666)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise unwritable(error, path) from None
    return listener
