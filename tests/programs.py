"""A host of external programs as a worker meets it: a socket, and nothing else.

>>> with host_of(tmp_path / "host", AttemptPrograms(workspace), [tmp_path]) as programs:
...     with programs.start(box, ["/bin/true"]) as program:
...         program.wait(10)
0
"""

import contextlib
import json
import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from dkgi.jail.remote_cli import RemotePrograms, serve_program
from dkgi.listener import listen
from dkgi.types import ProgramStarter

TOKEN = "the-token"


@contextmanager
def host_of(path: Path, programs: ProgramStarter, visible: Sequence[Path]) -> Iterator[RemotePrograms]:
    """Serves `programs` on a new socket at `path`. On leaving, everybody is cut off and all programs have ended."""
    listener = listen(path, 0o666)
    serving: list[tuple[socket.socket, threading.Thread]] = []

    def serve(connection: socket.socket) -> None:
        with connection:
            request = json.loads(connection.makefile("rb").readline())
            assert request["token"] == TOKEN
            serve_program(connection, request, programs, visible=visible)

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                thread = threading.Thread(target=serve, args=(connection,), daemon=True)
                serving.append((connection, thread))
                thread.start()

    acceptor = threading.Thread(target=accept, daemon=True)
    acceptor.start()
    try:
        yield RemotePrograms(path, TOKEN)
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        acceptor.join(10)
        listener.close()
        for connection, thread in serving:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            thread.join(10)
            assert not thread.is_alive()
        path.unlink()
