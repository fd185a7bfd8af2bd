"""One attempt's door to its model: what is refused, what passes, what is counted and told of it.

>>> session = ModelSession(Rendered(model), path, token, on_step, max_turns=300, merge=False)
>>> session.answer("openai_responses", b'{"input": [...]}', {}).status
200

Requests are answered one after the other. The first one that ends without a reply is the last.
Not covered: HTTP (gateway.py); what goes to a provider (models/provider.py).
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import orjson

from dkgi.deltas import merge
from dkgi.models.provider import Passed
from dkgi.trajectory import Trajectory
from dkgi.types import Face, ModelError, Reply, Step, Usage, WireName

CAP_BYTES = 64 * 1024 * 1024


class Door(Protocol):
    """A model that takes requests of external programs."""

    @property
    def face(self) -> Face: ...

    @property
    def so_far(self) -> Usage: ...

    def forward(self, body: bytes, headers: Mapping[str, str]) -> Passed: ...


@dataclass(frozen=True, slots=True)
class Answered:
    status: int
    content_type: str
    body: bytes


class ModelSession:
    """A types.Session."""

    def __init__(
        self,
        door: Door,
        path: Path,
        token: str,
        on_step: Callable[[Step], None],
        *,
        max_turns: int | None,
        merge: bool,
    ) -> None:
        self.face, self.socket, self.token = door.face, path, token
        self.turns = 0
        self.last: Reply | None = None
        self.fault: Exception | None = None
        self.over_turns = False
        self._door, self._on_step, self._max_turns, self._merge = door, on_step, max_turns, merge
        self._trajectory = Trajectory(door.face.wire)
        self._done = Usage()
        self._in_turn = threading.Lock()
        self._lock = threading.Lock()
        self._under_way = self._closed = False

    @property
    def usage(self) -> Usage:
        with self._lock:
            return self._done + self._door.so_far if self._under_way else self._done

    def close(self) -> None:
        """No step is told and no request sent any more; one that waits for its provider is left behind."""
        with self._lock:
            self._closed = True

    def answer(self, wire: WireName, body: bytes | None, headers: Mapping[str, str]) -> Answered:
        """The answer to one request; `body` None: it was too long. Never raises."""
        with self._in_turn:
            with self._lock:
                reason = self._refused(wire) or self._begin(body)
                if reason is not None:
                    return refusal(400, reason)
                self._under_way = True
            assert body is not None
            passed, fault = None, None
            try:
                passed = self._door.forward(body, headers)
            except Exception as error:
                # Whatever it is, it is the harness's to raise: nobody hears of it in this thread.
                fault = error
            with self._lock:
                self._end(passed, fault)
                if self.fault is not None:
                    return refusal(400, _told(self.fault))
        assert passed is not None
        streamed = passed.content_type.startswith("text/event-stream")
        return Answered(200, passed.content_type, merge(passed.body) if self._merge and streamed else passed.body)

    def _refused(self, wire: WireName) -> str | None:
        """Why no request is answered now; None where one is."""
        if self._closed:
            return "the attempt is over"
        if self.fault is not None:
            return _told(self.fault)
        if wire != self.face.wire:
            return f"this model speaks {self.face.wire}"
        if self._max_turns is not None and self.turns >= self._max_turns:
            self.over_turns = True
            return "no turns left"
        return None

    def _begin(self, body: bytes | None) -> str | None:
        """Tell what is new in a request. Where it cannot be read, or its steps not be kept, this is the session's fault."""
        try:
            if body is None:
                raise ModelError(f"the request is longer than {CAP_BYTES >> 20} MB", kind="context_overflow")
            try:
                steps = self._trajectory.asked(orjson.loads(body))
            except ValueError as error:
                raise ModelError(str(error), kind="bad_request") from None
            self._tell(steps)
        except Exception as error:
            self.fault = error
            return _told(error)
        return None

    def _end(self, passed: Passed | None, fault: Exception | None) -> None:
        """Count a request and tell what came of it."""
        self._under_way = False
        if passed is None:
            self.fault = fault
            self._done += fault.usage if isinstance(fault, ModelError) else self._door.so_far
            return
        self._done += passed.reply.usage
        self.turns += 1
        self.last = passed.reply
        try:
            if not self._closed:
                self._tell(self._trajectory.answered(passed.reply))
        except Exception as error:
            self.fault = error

    def _tell(self, steps: Sequence[Step]) -> None:
        for step in steps:
            self._on_step(step)


def _told(fault: Exception) -> str:
    return f"{fault.kind}: {fault}" if isinstance(fault, ModelError) else str(fault)


def refusal(status: int, reason: str) -> Answered:
    """An error in the form of all three wires."""
    error = {"type": "invalid_request_error", "code": "gateway", "param": None, "message": reason}
    return Answered(status, "application/json", orjson.dumps({"type": "error", "error": error}))
