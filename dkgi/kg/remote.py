"""A graph tool whose work is done by the graph server: what harnesses offer to models.

>>> RemoteTool(spec, door.path, door.token).call({"query": "storm"}, timeout_s=60)
ToolOutput(text='3 results ...', is_error=False)

Not covered: the protocol's other side (server.py); calls from programs (sandbox/graph_client.py).
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkgi.jail.client import address
from dkgi.tools import message
from dkgi.types import SandboxError, ToolOutput, ToolSpec


@dataclass(frozen=True, slots=True)
class RemoteTool:
    """A Tool of the attempt that `token` names. Holds no connection, so any number of threads may share it."""

    spec: ToolSpec
    socket: Path
    token: str

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        return self.call_text(json.dumps(args), timeout_s=timeout_s)

    def call_text(self, arguments: str, *, timeout_s: float) -> ToolOutput:
        """As types.TextTool. Raises SandboxError where the server is gone or does not know the attempt any more."""
        request = {"token": self.token, "tool": self.spec.name, "arguments": arguments}
        try:
            answer = ask(self.socket, request, timeout_s=timeout_s)
        except TimeoutError:
            return ToolOutput(message("killed_time", seconds=round(timeout_s, 1)), is_error=True)
        if "refused" in answer:
            raise SandboxError(f"graph server: {answer['refused']}")
        return ToolOutput(**answer)


def ask(path: Path, request: Mapping[str, Any], *, timeout_s: float) -> Mapping[str, Any]:
    """One request on a connection of its own. Raises TimeoutError, and SandboxError where there is no such attempt."""
    try:
        with socket.socket(socket.AF_UNIX) as connection, address(path) as name:
            connection.settimeout(timeout_s)
            connection.connect(name)
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
    except TimeoutError:
        raise
    except OSError as error:
        raise SandboxError(f"the graph server cannot be reached: {error}") from None
    if not received.endswith(b"\n"):
        raise SandboxError("graph server: the attempt is over")
    answer: Mapping[str, Any] = json.loads(received)
    return answer
