"""A port of the jail that leads to a Unix socket, for a program that speaks to ports alone.

    python3 codex_relay.py 8080 /run/model/socket codex exec ...

Listens before it starts the program, whose input, output and exit code are its own, and ends with it.
Not covered: what is spoken over the socket.
"""

import contextlib
import socket
import subprocess
import sys
import threading

BLOCK = 65536


def main():
    port, path, *argv = sys.argv[1:]
    listener = socket.create_server(("127.0.0.1", int(port)), backlog=64)
    threading.Thread(target=accept, args=(listener, path), daemon=True).start()
    code = subprocess.run(argv, check=False).returncode
    # A signal's number as a shell tells it.
    sys.exit(code if code >= 0 else 128 - code)


def accept(listener, path):
    while True:
        client, _ = listener.accept()
        server = socket.socket(socket.AF_UNIX)
        try:
            server.connect(path)
        except OSError:
            client.close()
            server.close()
            continue
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=carry, args=(source, target), daemon=True).start()


def carry(source, target):
    """Everything that `source` says, until it says no more or `target` hears no more."""
    with contextlib.suppress(OSError):
        while block := source.recv(BLOCK):
            target.sendall(block)
    for end, way in ((target, socket.SHUT_WR), (source, socket.SHUT_RD)):
        with contextlib.suppress(OSError):  # closed by then
            end.shutdown(way)


if __name__ == "__main__":
    main()
