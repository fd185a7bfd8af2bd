"""A worker's way to its parent: places, requests to providers and programs, as if they were here.

>>> parent = RemoteParent(socket, token)
>>> with parent.seat(cell.query_folder(17, 0) / "commands.jsonl") as seat:
...     seat.commands.run(["/bin/bash", "-c", "ls"], timeout_s=60)

Not covered: the protocol's other side (worker/server.py).
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

from dkgi.exchange import SendingTransport
from dkgi.jail.client import CommandClient
from dkgi.jail.remote_cli import RemotePrograms
from dkgi.kg.remote import RemoteTool
from dkgi.runner import Seat
from dkgi.types import (
    Account,
    Hold,
    ModelError,
    Place,
    RunStop,
    SandboxError,
    SetupError,
    ToolSocket,
    ToolSpec,
    Usage,
    Workspace,
)
from dkgi.worker.channel import Channel

_SEAT_S = 86_400.0
"""How long a place may take to open: the parent holds it back while the machine is short of memory."""
_PATIENCE_S = 60.0
_GONE = "the parent process is gone"
"""Told by a SetupError, which ends all work at once and is nothing that became of an attempt: what is under way is cut off,
and the parent's record says what it has cost."""


class RemoteParent:
    """The parent of a cell's worker. Thread-safe."""

    def __init__(self, path: Path, token: str) -> None:
        self._path, self._token = path, token
        self.ledger = RemoteLedger()
        self._lock = threading.Lock()
        self._open: dict[tuple[int, int], str] = {}
        self._channels: set[Channel] = set()

    @contextmanager
    def seat(self, log: Path) -> Iterator[Seat]:
        """As Seats.open. `log` says by its folder which query it is of."""
        key = int(log.parent.parent.name), int(log.parent.name)
        with self._channel(_SEAT_S) as channel:
            told = _asked(channel, {"token": self._token, "seat": list(key)})
            token = str(told["token"])
            self._open[key] = token

            def graph_calls() -> int:
                return int(_asked(channel, {})["graph_calls"])

            try:
                yield self._seat(told, token, graph_calls)
            except SandboxError:
                graph_calls()  # was it the place, or is the parent gone with all its places?
                raise
            finally:
                del self._open[key]

    def _seat(self, told: Mapping[str, Any], token: str, graph_calls: Any) -> Seat:
        commands, calls = told["commands"], told["calls"]
        tools = {
            name: RemoteTool(ToolSpec(**tool["spec"]), Path(tool["socket"]), tool["token"])
            for name, tool in told["graph_tools"].items()
        }
        return Seat(
            _workspace(told["workspace"]),
            CommandClient(Path(commands["socket"]), commands["token"]),
            tools,
            graph_calls,
            ToolSocket(Path(calls["path"]), calls["token"]) if calls else None,
            RemotePrograms(self._path, token) if told["programs"] else None,
        )

    def transport(self, place: Place) -> "RemoteTransport":
        """The way of one attempt, whose place is open, to its provider."""
        return RemoteTransport(self, self._open[place.query, place.repeat], place)

    def ask(self, request: Mapping[str, Any], body: bytes = b"", *, timeout_s: float) -> tuple[dict[str, Any], bytes]:
        """One request on a connection of its own. Raises SandboxError where the parent says so, SetupError where it is gone."""
        with self._channel(timeout_s) as channel:
            try:
                channel.send(request, body)
                answer = channel.receive()
            except (OSError, ValueError) as error:
                raise SetupError(f"{_GONE}: {error}") from None
        if answer is None:
            raise SetupError(_GONE)
        if "sandbox" in answer[0]:
            raise SandboxError(answer[0]["sandbox"])
        return answer

    def cancel(self) -> None:
        """Leave all places: what runs in them ends."""
        with self._lock:
            for channel in self._channels:
                channel.cut()

    @contextmanager
    def _channel(self, timeout_s: float) -> Iterator[Channel]:
        try:
            channel = Channel.connect(self._path, timeout_s=timeout_s)
        except OSError as error:
            raise SetupError(f"{_GONE}: {error}") from None
        with channel:
            with self._lock:
                self._channels.add(channel)
            try:
                yield channel
            finally:
                with self._lock:
                    self._channels.discard(channel)


def _asked(channel: Channel, request: Mapping[str, Any]) -> dict[str, Any]:
    """What the parent answers. Raises SandboxError and SetupError as it does."""
    try:
        channel.send(request)
        answer = channel.receive()
    except (OSError, ValueError) as error:
        raise SetupError(f"{_GONE}: {error}") from None
    if answer is None:
        raise SetupError(_GONE)
    told = answer[0]
    if "sandbox" in told:
        raise SandboxError(told["sandbox"])
    if "setup" in told:
        raise SetupError(told["setup"])
    return told


def _workspace(told: Mapping[str, Any]) -> Workspace:
    return Workspace(
        graph_dir=Path(told["graph_dir"]),
        scratch_dir=Path(told["scratch_dir"]),
        tmp_dir=Path(told["tmp_dir"]),
        outputs_dir=Path(told["outputs_dir"]),
        graph_at=told["graph_at"],
        scratch_at=told["scratch_at"],
        outputs_at=told["outputs_at"],
        client=tuple((Path(path), name) for path, name in told["client"]),
    )


class RemoteTransport(SendingTransport):
    """What an SDK sends through in a worker: the parent's exchange does the sending, with its key and its money."""

    def __init__(self, parent: RemoteParent, token: str, place: Place) -> None:
        self.usage = Usage()
        self._parent, self._token, self._place = parent, token, place

    @property
    def under_way(self) -> Usage | None:  # type: ignore[override]
        """What is held for a request that is not answered yet."""
        told, _ = self._parent.ask({"token": self._token, "bill": True}, timeout_s=_PATIENCE_S)
        self.usage = Usage(**told["usage"])
        return Usage(**told["under_way"]) if told["under_way"] else None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Raises as exchange.Transport does."""
        self.usage = Usage()
        place = self._place
        asked = {"attempt": place.attempt, "deadline": place.deadline, "headers": dict(request.headers)}
        timeout_s = max(0.0, place.deadline - time.monotonic()) + _PATIENCE_S
        told, content = self._parent.ask({"token": self._token, "model": asked}, request.read(), timeout_s=timeout_s)
        self.usage = Usage(**told["usage"])
        self._parent.ledger.exhausted = self._parent.ledger.exhausted or told["exhausted"]
        if error := told.get("model_error"):
            raise ModelError(**error, usage=self.usage)
        if "run_stop" in told:
            raise RunStop(told["run_stop"])
        if "setup" in told:
            raise SetupError(told["setup"])
        return httpx2.Response(200, headers={"content-type": told["content_type"]}, content=content)


@dataclass
class RemoteLedger:
    """The parent holds the money; it tells with each answer whether there is any left for another query."""

    exhausted: bool = False
    _account: Account = field(default_factory=lambda: _ParentsAccount())

    def account(self, *, cap_usd: float | None, spent_usd: float = 0.0) -> Account:
        return self._account


class _ParentsAccount:
    def hold(self, bound: Usage, *, deadline: float) -> Hold:
        raise AssertionError("requests are paid for by the parent")
