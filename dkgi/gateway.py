"""The model gateway: one HTTP server a run, on a Unix socket, at which external programs ask their attempt's model.

>>> with ModelGateway(folder) as gateway, gateway.session(model, on_step, max_turns=300, merge=False) as session:
...     httpx2.Client(transport=httpx2.HTTPTransport(uds=str(session.socket))).post(
...         "http://model/v1/responses", headers={"authorization": f"Bearer {session.token}"}, json={...}
...     )
<Response [200 OK]>

    POST {/v1,}/responses   {/v1,}/chat/completions   {/v1,}/messages

A session speaks the wire of its model (`session.face`) and no other. A request to a provider passes as it is, through
the exchange, which adds the key, tries again, holds the money and keeps the record; its reply comes back whole when the
last event is there. A model of our own is rendered onto the Responses wire (models/rendered.py). The first request that
ends without a reply is the session's last: its program gets status 400, which programs do not try again.
Not covered: what to make of a session's end (harness/), listing of models, WebSockets.
"""

import asyncio
import contextlib
import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from typing import Self

import uvicorn
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from dkgi.listener import listen
from dkgi.models.provider import ProviderModel
from dkgi.models.rendered import Rendered
from dkgi.session import CAP_BYTES, Answered, Door, ModelSession, refusal
from dkgi.types import Model, Step, WireName

AT_ONCE = 64
"""Requests under way at a time."""

_PATHS: dict[str, WireName] = {
    "/responses": "openai_responses",
    "/chat/completions": "openai_chat",
    "/messages": "anthropic_messages",
}
_CLOSE_S = 10.0
_IDLE_S = 86_400
"""A connection outlives every command that its program runs between two requests."""


class ModelGateway:
    """Serves until closed. `folder` is a private one. Raises SetupError where it cannot hold a socket."""

    def __init__(self, folder: Path) -> None:
        self.socket = folder / "model"
        self._sessions: dict[str, ModelSession] = {}
        self._listener = listen(self.socket, 0o666)
        self._workers = _Workers(AT_ONCE)
        routes = [Route(start + path, self._answer, methods=["POST"]) for path in _PATHS for start in ("", "/v1")]
        self._server = uvicorn.Server(
            uvicorn.Config(
                Starlette(routes=routes),
                loop="asyncio",
                http="h11",
                ws="none",
                lifespan="off",
                log_config=None,
                log_level="critical",
                access_log=False,
                proxy_headers=False,
                server_header=False,
                timeout_keep_alive=_IDLE_S,
                timeout_graceful_shutdown=0,
            )
        )
        self._thread = threading.Thread(target=self._server.run, args=([self._listener],), name="gateway", daemon=True)
        self._thread.start()

    @contextmanager
    def session(
        self, model: Model, on_step: Callable[[Step], None], *, max_turns: int | None, merge: bool
    ) -> Iterator[ModelSession]:
        """As types.Gateway.session."""
        door: Door = model if isinstance(model, ProviderModel) else Rendered(model)
        token = secrets.token_hex(16)
        session = ModelSession(door, self.socket, token, on_step, max_turns=max_turns, merge=merge)
        self._sessions[token] = session
        try:
            yield session
        finally:
            del self._sessions[token]
            session.close()

    def close(self) -> None:
        """Cut everybody off and stop serving."""
        self._server.should_exit = True
        self._thread.join(timeout=_CLOSE_S)
        self._workers.close()
        self._listener.close()
        self.socket.unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _answer(self, request: Request) -> Response:
        session = self._sessions.get(_token(request))
        if session is None:
            return _response(refusal(401, "unknown token"))
        try:
            body = await _body(request)
        except ClientDisconnect:
            return Response(status_code=400)
        wire = _PATHS[request.url.path.removeprefix("/v1")]
        return _response(await self._workers.do(lambda: session.answer(wire, body, request.headers)))


def _response(answer: Answered) -> Response:
    return Response(answer.body, answer.status, {"content-type": answer.content_type})


def _token(request: Request) -> str:
    bearer = request.headers.get("authorization", "").removeprefix("Bearer ").strip()
    return bearer or request.headers.get("x-api-key", "")


async def _body(request: Request) -> bytes | None:
    """The whole body, or None where it is too long; it is read to its end, since a program that sends hears nothing."""
    parts, size = [], 0
    async for part in request.stream():
        size += len(part)
        if size <= CAP_BYTES:
            parts.append(part)
        else:
            parts.clear()
    return b"".join(parts) if size <= CAP_BYTES else None


class _Workers:
    """Threads that wait for models. Daemons, as the server's own: none of them holds up the end of the process."""

    def __init__(self, number: int) -> None:
        self._number = number
        # Started at once, since the loop would have to wait for the start of each.
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._run, name="model request", daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    async def do(self, work: Callable[[], Answered]) -> Answered:
        """The result of `work`, which does not raise."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[Answered] = loop.create_future()

        def settle(answer: Answered) -> None:
            if not done.done():  # the server closed meanwhile
                done.set_result(answer)

        def run() -> None:
            answer = work()
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(settle, answer)

        self._work.put(run)
        return await done

    def close(self) -> None:
        for _ in range(self._number):
            self._work.put(None)
