"""One side of a conversation between a worker and its parent: JSON lines over a Unix socket, each with bytes behind it.

>>> channel.send({"token": "4f5a...", "headers": {}}, b'{"input": [...]}')
>>> answer, body = channel.receive()

Not covered: what is said (server.py, remote.py); file descriptors (jail/remote_cli.py).
"""

import contextlib
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

import orjson

from dkgi.files import dump_json
from dkgi.jail.client import address

LONGEST_LINE = 2**20
LONGEST_BODY = 2**27
_BLOCK = 65_536


class Channel:
    """A connection. One thread at a time; `close` may come from any other."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self._received = bytearray()

    @classmethod
    def connect(cls, path: Path, *, timeout_s: float | None) -> Self:
        """A new connection, each wait on which takes `timeout_s` seconds at most. Raises OSError."""
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(timeout_s)
            with address(path) as name:
                connection.connect(name)
        except OSError:
            connection.close()
            raise
        return cls(connection)

    def send(self, message: Mapping[str, Any], body: bytes = b"") -> None:
        """Say something. Raises OSError where nobody listens any more."""
        behind = {"bytes": len(body)} if body else {}
        line = dump_json({**message, **behind}, orjson.OPT_APPEND_NEWLINE)
        self.connection.sendall(line + body)

    def receive(self) -> tuple[dict[str, Any], bytes] | None:
        """What the other side says next, None at the end. Raises OSError, ValueError for what is no message."""
        if (heard := self.hear()) is None:
            return None
        message, size = heard
        body = self.body(size)
        return None if body is None else (message, body)

    def hear(self) -> tuple[dict[str, Any], int] | None:
        """A message without the bytes behind it, and how many these are. As `receive`."""
        while (end := self._received.find(b"\n")) < 0:
            if len(self._received) > LONGEST_LINE:
                raise ValueError("a line is too long")
            if not self._more():
                return None
        message = orjson.loads(self._received[:end])
        if not isinstance(message, dict):
            raise ValueError("not a message")
        size = message.pop("bytes", 0)
        if not isinstance(size, int) or not 0 <= size <= LONGEST_BODY:
            raise ValueError("a body is too long")
        del self._received[: end + 1]
        return message, size

    def body(self, size: int) -> bytes | None:
        """The bytes behind the last message, None where they do not come to an end. Raises OSError."""
        while len(self._received) < size:
            if not self._more():
                return None
        body = bytes(self._received[:size])
        del self._received[:size]
        return body

    def cut(self) -> None:
        """End the conversation, also while another thread waits in it."""
        with contextlib.suppress(OSError):  # the other side was faster
            self.connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self.connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _more(self) -> bool:
        block = self.connection.recv(_BLOCK)
        self._received += block
        return bool(block)
