"""A Unix socket that serves each connection in a thread of its own, until it is closed.

>>> def greet(connection: socket.socket) -> None:
...     connection.sendall(b"hello\\n")
>>> listener = Listener(folder.path / "door", greet, mode=0o600, most=16)
>>> listener.close()

Not covered: what is said on a connection; sockets of which uvicorn takes what `listen` gives (gateway.py).
"""

import contextlib
import math
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from dkgi.jail.client import address
from dkgi.jail.scratch import unwritable

_CLOSE_S = 30.0
_PAUSE_S = 0.05


class Listener:
    """Serves until closed. A connection is closed when `serve` returns, or raises OSError: its client is gone, silent for
    too long, or was cut off.

    mode  who may connect, as `listen`
    most  connections at a time; one more hears `full`, and no more
    """

    def __init__(
        self,
        path: Path,
        serve: Callable[[socket.socket], None],
        *,
        mode: int,
        most: float = math.inf,
        full: bytes = b"",
    ) -> None:
        self._path, self._serve, self._most, self._full = path, serve, most, full
        self._lock = threading.Lock()
        self._connections: set[socket.socket] = set()
        self._closing = threading.Event()
        self._socket = listen(path, mode)
        self._acceptor = threading.Thread(target=self._accept, name=f"accept {path.name}", daemon=True)
        self._acceptor.start()

    def close(self) -> None:
        """Cut everybody off and serve nobody any more. Their threads end by themselves."""
        with self._lock:
            if self._closing.is_set():
                return
            self._closing.set()
            for connection in (self._socket, *self._connections):
                with contextlib.suppress(OSError):  # the client was faster
                    connection.shutdown(socket.SHUT_RDWR)
        self._acceptor.join(timeout=_CLOSE_S)
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._socket.accept()
            except OSError:  # closed, or out of file descriptors for the moment
                self._closing.wait(_PAUSE_S)
                continue
            if not self._begin(connection):
                with connection, contextlib.suppress(OSError):
                    connection.sendall(self._full)

    def _begin(self, connection: socket.socket) -> bool:
        with self._lock:
            if self._closing.is_set() or len(self._connections) >= self._most:
                return False
            self._connections.add(connection)
        try:
            threading.Thread(target=self._one, args=(connection,), name=self._path.name, daemon=True).start()
        except RuntimeError:  # out of threads for the moment
            self._leave(connection)
            return False
        return True

    def _one(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            try:
                self._serve(connection)
            finally:
                self._leave(connection)

    def _leave(self, connection: socket.socket) -> None:
        with self._lock:
            self._connections.discard(connection)


def listen(path: Path, mode: int) -> socket.socket:
    """A socket that others can connect to. Raises SetupError where `path`'s folder cannot hold one.

    mode  0o600 for this user alone. 0o666 where agents connect, who are other users: the folder keeps everybody else away,
          and each request needs a token
    """
    listener = socket.socket(socket.AF_UNIX)
    try:
        with address(path) as name:
            listener.bind(name)
        path.chmod(mode)
        listener.listen(1024)
    except OSError as error:
        listener.close()
        raise unwritable(error, path) from None
    return listener
