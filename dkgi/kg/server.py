"""The graph server: answers the calls of graph tools on a Unix socket, outside of every jail, for every harness alike.

>>> with GraphServer(folder.path, graph_tools(index), '{"engine": "csr"}') as server:
...     with server.attempt(("search",), (), Path("graph_calls.jsonl")) as graph:
...         graph.tools["search"].call({"query": "storm"}, timeout_s=60).text
'3 results ...'

Not covered: the protocol (toolserver.py); what the tools do (tools.py); MCP (mcp.py, sandbox/graph_mcp.py).
"""

import contextlib
import json
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from dkgi.files import open_to_append
from dkgi.jail.scratch import unwritable
from dkgi.kg.remote import RemoteTool
from dkgi.paths import data_dir
from dkgi.toolserver import Called, ToolServer
from dkgi.types import Tool, ToolSocket

LONGEST_REQUEST = 64 * 1024
_CALL_S = 60.0


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
        self.engine = engine
        self._folder, self._tools = folder, tools
        self._server = ToolServer(folder, LONGEST_REQUEST)

    @contextmanager
    def attempt(self, offered: Sequence[str], client: Sequence[str], log: Path) -> Iterator[GraphSeat]:
        """Tools for one attempt: those `offered` to the model, and those for programs with the client.

        `log` gets a line a call. On leaving, what is connected is cut off.
        """
        allowed = {name: self._tools[name] for name in dict.fromkeys((*offered, *client))}
        record = _Record(log, self.engine)
        with (
            self._server.attempt(allowed, call_s=_CALL_S, record=record.write) as door,
            contextlib.ExitStack() as stack,
        ):
            tools = {name: RemoteTool(self._tools[name].spec, door.path, door.token) for name in offered}
            files = stack.enter_context(self._client_files(door)) if client else ()
            yield GraphSeat(tools, files, lambda: record.count)

    @contextmanager
    def _client_files(self, door: ToolSocket) -> Iterator[tuple[tuple[Path, str], ...]]:
        """Copies under neutral names: the path of the installed client would tell agents where we are."""
        own = self._folder / secrets.token_hex(4)
        try:
            own.mkdir(mode=0o755)
            shutil.copyfile(data_dir("sandbox") / "graph_client.py", own / "client")
            (own / "token").write_text(door.token, encoding="ascii")
            for path in own.iterdir():
                path.chmod(0o644)
        except OSError as error:
            raise unwritable(error, own) from None
        try:
            yield (
                (own / "client", "graph_client.py"),
                (own / "token", "token"),
                (door.path, "socket"),
            )
        finally:
            shutil.rmtree(own, ignore_errors=True)

    def close(self) -> None:
        """Cut off all attempts that are open."""
        self._server.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _Record:
    """The calls of one attempt, counted and written down."""

    def __init__(self, log: Path, engine: str) -> None:
        self._log, self._engine = log, engine
        self.count = 0

    def write(self, called: Called) -> None:
        self.count += 1
        line = {"number": self.count, **asdict(called), "engine": self._engine}
        with open_to_append(self._log) as file:
            file.write(json.dumps(line).encode() + b"\n")
