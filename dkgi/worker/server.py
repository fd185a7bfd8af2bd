"""What a cell's worker cannot do itself: its parent opens places, asks providers and starts programs for it.

>>> with WorkerServer(seats, cell, models, ledger, limits) as server:
...     RemoteParent(server.socket, server.token).seat(cell.query_folder(17, 0) / "commands.jsonl")

    worker (jail, no network, no key)             parent
      {"token": .., "seat": [17, 0]}         ──►  a place: folders, command jail, graph tools; open as long as the connection
      {"token": .., "model": {..}} + body    ──►  the exchange: key, limiter, money, record
      {"token": .., "program": {..}}         ──►  Pi or Codex in a jail beside the worker's

One connection a request. The worker's own token opens places, and a place's token all else. So only this process holds
money, keys and jails, whatever the number of workers.

A worker that is not ours any more gets places for the queries of its job alone, so many at a time as it has threads, and
spends within the caps. What is malformed ends its connection, and no other.
Not covered: the other side (remote.py); what a program may be (jail/remote_cli.py).
"""

import contextlib
import secrets
import socket
import threading
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import TypeAdapter

from dkgi.jail.client import CommandClient
from dkgi.jail.remote_cli import serve_program
from dkgi.kg.remote import RemoteTool
from dkgi.listener import Listener
from dkgi.machine import Guard
from dkgi.meter import Ledger
from dkgi.runner import Seat
from dkgi.seats import Seats
from dkgi.store import Cell
from dkgi.types import Limits, ModelSource, Prices, SandboxError, SetupError
from dkgi.worker.attempt import WANTED, Money, OpenAttempt
from dkgi.worker.channel import Channel

_FIRST_S = 60.0
_CLOSE_S = 30.0
_CONNECTIONS, _CONNECTIONS_EACH = 16, 6
"""Connections that a worker may have: so many, and so many more for each of its threads. A thread needs four: its place,
a request, a question about the one under way, a program."""


class WorkerServer:
    """Serves one cell's worker, once it is trusted, until closed; its places are left by then. Raises SetupError where the
    folder of `seats` cannot hold a socket.

    models   are asked for the worker; None where its model needs nobody
    todo     the queries that it may have places for, each with its repeat, `threads` at a time
    visible  the folders that it sees
    """

    def __init__(
        self,
        seats: Seats,
        cell: Cell,
        models: ModelSource | None,
        ledger: Ledger,
        limits: Limits,
        prices: Prices | None,
        guard: Guard,
        todo: Collection[tuple[int, int]],
        threads: int,
        visible: Sequence[Path],
    ) -> None:
        self.socket = seats.folder / secrets.token_hex(4)
        self.token = secrets.token_hex(16)
        self._seats, self._cell, self._models, self._guard, self._visible = seats, cell, models, guard, visible
        self._todo = frozenset(todo)
        self._free = threading.BoundedSemaphore(threads)
        self._money = Money(cell, ledger, limits, prices)
        self._attempts: dict[str, OpenAttempt] = {}
        self._closed = False
        self._trusted = threading.Event()
        self._left = threading.Condition()
        self._places = 0
        most = _CONNECTIONS + _CONNECTIONS_EACH * threads
        self._listener = Listener(self.socket, self._serve, mode=0o666, most=most)

    def trust(self) -> None:
        """The worker sees nothing that it should not: from now on it gets places."""
        self._trusted.set()

    def close(self) -> None:
        """Cut the worker off and wait until its places are left. A request to a provider is paid to its end all the same."""
        self._closed = True
        self._trusted.set()  # wakes those who wait for it
        self._listener.close()
        with self._left:
            self._left.wait_for(lambda: not self._places, _CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _serve(self, connection: socket.socket) -> None:
        # Where the worker says what is no request, nobody is left to be told.
        with contextlib.suppress(ValueError, KeyError, TypeError):
            connection.settimeout(_FIRST_S)
            channel = Channel(connection)
            if (first := channel.hear()) is not None:
                self._answer(channel, *first)

    def _answer(self, channel: Channel, request: Mapping[str, Any], size: int) -> None:
        """Answer the first message of a connection; the `size` bytes behind it are read only where they are wanted."""
        token = str(request["token"]).encode(errors="replace")
        if "seat" in request:
            if secrets.compare_digest(token, self.token.encode()):
                channel.connection.settimeout(None)
                self._seat(channel, _ASKED.validate_python(request).seat)
            return
        attempt = self._attempts.get(token.decode())
        if attempt is None:
            channel.send({"sandbox": "the attempt is over"})
        elif "model" in request:
            attempt.ask(channel, WANTED.validate_python(request["model"]), size)
        elif "bill" in request:
            channel.send(attempt.bill())
        elif "program" in request and attempt.seat.programs is not None:
            serve_program(channel.connection, request, attempt.seat.programs, visible=self._visible)

    def _seat(self, channel: Channel, entry: tuple[int, int]) -> None:
        """Open a place for an attempt, for as long as the connection lasts."""
        if entry not in self._todo:
            channel.send({"sandbox": f"query {entry[0]}, repeat {entry[1]}, is none of this worker's"})
            return
        with self._left:
            self._places += 1
        try:
            # The place that a thread had before may be left in this moment.
            with self._free:
                if self._trusted.wait(_FIRST_S) and not self._closed:
                    self._open_seat(channel, *entry)
        finally:
            with self._left:
                self._places -= 1
                self._left.notify_all()

    def _open_seat(self, channel: Channel, number: int, repeat: int) -> None:
        log = self._cell.query_folder(number, repeat) / "commands.jsonl"
        token = secrets.token_hex(16)
        try:
            with ExitStack() as stack:
                stack.enter_context(self._guard.attempt(lambda: self._closed))
                account = self._money.account(number, repeat)
                seat = stack.enter_context(self._seats.open(log))
                stack.callback(self._attempts.pop, token)
                self._attempts[token] = OpenAttempt(
                    seat, number, repeat, log.parent, account, self._money, self._models
                )
                channel.send({"token": token} | _described(seat))
                while channel.receive() is not None:
                    channel.send({"graph_calls": seat.graph_calls()})
        except SandboxError as error:
            channel.send({"sandbox": str(error)})
        except SetupError as error:
            channel.send({"setup": str(error)})


def _described(seat: Seat) -> dict[str, Any]:
    """A place, as remote.py reads it."""
    assert isinstance(seat.commands, CommandClient)
    tools = {}
    for name, tool in seat.graph_tools.items():
        assert isinstance(tool, RemoteTool)
        tools[name] = {"spec": asdict(tool.spec), "socket": str(tool.socket), "token": tool.token}
    workspace = asdict(seat.workspace)
    return {
        "workspace": {key: str(value) if isinstance(value, Path) else value for key, value in workspace.items()}
        | {"client": [[str(path), name] for path, name in seat.workspace.client]},
        "commands": {"socket": str(seat.commands.socket), "token": seat.commands.token},
        "graph_tools": tools,
        "calls": {"path": str(seat.calls.path), "token": seat.calls.token} if seat.calls else None,
        "programs": seat.programs is not None,
    }


@dataclass(frozen=True, slots=True)
class _Asked:
    """A worker asks for a place."""

    token: str
    seat: tuple[int, int]


_ASKED = TypeAdapter(_Asked)
