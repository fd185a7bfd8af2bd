"""The one way to a provider: hold money, send, record, settle, try again by class.

>>> exchange = Exchange(Provider(wire="openai_responses", key_variable="OPENAI_API_KEY", max_output_tokens=32_000))
>>> transport = exchange.transport(place)
>>> client = openai.OpenAI(http_client=httpx2.Client(transport=transport), max_retries=0)

The transport raises ModelError, RunStop or SetupError; an SDK lets them through, or wraps them as `__cause__`.
After each call, a failed one too, `transport.usage` is what the call cost with all its tries.

    kind              what                                              tried again         the attempt   exit code
    rate_limit        429, 529 (overloaded)                             until the deadline  model_error   1
    server            5xx, 408, 409, a failure told inside of a reply   6 requests          model_error   1
    connection        refused, reset, no such host, broken TLS          6 requests          model_error   1
    stream            cut, malformed, no last event, over 64 MB         3 requests          model_error   1
    timeout           the deadline passed                               no                  time_limit    1
    bad_request       400, 422 and other 3xx and 4xx                    no                  model_error   1
    context_overflow  longer than the model's context, 413              no                  model_error   1
    refused           the provider's filter refused the request         no                  refused       1
    empty             a whole reply that says nothing (models/)         no                  model_error   1
    malformed         status 200, but models/ cannot read it            no                  model_error   1
    budget            a cap has no more (meter.py)                      no                  pending       1
    RunStop           the quota is used up                              no                  the run ends  3
    SetupError        401, 403 (key), 404 (model, address)              no                  the run ends  2

What is counted for a request: its own figures; nothing where it was not sent or answered with an error status; its
bound, marked as not complete, where it was sent and no figures came back.
Not covered: what a reply says (models/<wire>.py); further attempts at a query (runner.py).
"""

import math
import random
import time
from contextlib import suppress
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any

import httpx2
import orjson

from dkgi.connections import RawReply, SendError
from dkgi.keys import LEAST_SECRET
from dkgi.lines import Line
from dkgi.recording import Recording, split_body
from dkgi.types import ModelError, Place, RunStop, SetupError, Usage
from dkgi.wires import WIRES, Fault, fault_of

_REQUESTS = {"rate_limit": math.inf, "server": 6, "connection": 6, "stream": 3}
"""How often a call is sent at most, by the class of its failure; once for any other class."""
_LEAST_LEFT_S = 1.0
"""A request is not sent again with less time than this: it would be paid and not be answered."""
_PREAMBLE_TOKENS = 1000
"""Input that a provider adds by itself (its tool instructions), which is not in the body's bytes."""
_SECRET_HEADERS = ("authorization", "x-api-key", "api-key")


@dataclass(frozen=True, slots=True)
class Provider:
    """Whom an exchange talks to.

    wire                 a key of wires.WIRES
    key_variable         name of the environment variable with the key, for messages; None where none is needed
    max_output_tokens    bound of a request that states none
    backoff_s, most_s    seconds before the second request and at most between two; doubled each time, drawn at random
    """

    wire: str
    key_variable: str | None
    max_output_tokens: int
    backoff_s: float = 0.5
    most_s: float = 30.0


class Exchange:
    """One model's door to its provider, shared by all threads of a run; `line` may be that of other exchanges, too."""

    def __init__(self, provider: Provider, line: Line | None = None) -> None:
        self.provider = provider
        self.wire = WIRES[provider.wire]
        self.line = line or Line()

    def transport(self, place: Place) -> "Transport":
        """The way of one attempt, for one thread at a time. It need not be closed; connections are the line's."""
        return Transport(self, place)


class SendingTransport(httpx2.BaseTransport):
    """What an SDK sends one attempt's requests through, one at a time. `handle_request` raises as the module says.

    usage      what the last call cost with all its tries
    under_way  what is held for a request that is not answered yet; any thread may ask
    """

    usage: Usage
    under_way: Usage | None


class Transport(SendingTransport):
    """The way over an exchange."""

    def __init__(self, exchange: Exchange, place: Place) -> None:
        self.usage = Usage()
        self.under_way: Usage | None = None
        self._exchange = exchange
        self._place = place
        self._recording: Recording | None = None
        self._requests = 0
        self._last: _Sent | None = None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send until a whole reply came, and return it read to its end. Raises as the module says."""
        self.usage = Usage()
        begun, self._requests = self._requests > 0, self._requests + 1
        try:
            call = _Call(request, self._exchange.wire.history, keyed=self._exchange.provider.key_variable is not None)
            with self._exchange.line.limiter.seat(begun=begun, deadline=self._place.deadline):
                return self._send(call)
        except ModelError as error:
            raise ModelError(str(error), kind=error.kind, usage=self.usage, retryable=error.retryable) from error

    def _send(self, call: "_Call") -> httpx2.Response:
        number = 0
        while True:
            number += 1
            outcome = self._try(call, number)
            if outcome.fault is None:
                assert outcome.reply is not None
                headers = [(b"content-type", outcome.content_type.encode())]
                return httpx2.Response(200, headers=headers, content=outcome.reply.body)
            self._wait_or_raise(outcome, number)

    def _try(self, call: "_Call", number: int) -> "_Outcome":
        """Send once: hold, record, send, settle, record."""
        place = self._place
        bound = self._bound(call)
        self._recording = self._recording or Recording(place.folder, place.attempt, history=self._exchange.wire.history)
        hold = place.account.hold(bound, deadline=place.deadline)
        outcome, usage = None, None
        self.under_way = hold.bound
        try:
            self._recording.sent(self._requests, number, call.path, call.body, hold.bound)
            outcome = self._outcome(call)
            usage = outcome.usage
        finally:
            counted = hold.settle(usage)
            self.usage += counted
            self.under_way = None
        fault, reply = outcome.fault or Fault("", ""), outcome.reply
        self._recording.got(
            self._requests,
            number,
            status=reply.status if reply else None,
            reply=reply.body if reply else None,
            usage=counted,
            kind=fault.kind,
            error=fault.message,
        )
        if not outcome.fault and counted.complete:
            self._last = _Sent(counted.input_tokens, call.parts)
        return outcome

    def _bound(self, call: "_Call") -> Usage:
        """The most that a request can use: a token has at least one byte, and the last request's input is known."""
        provider, wire = self._exchange.provider, self._exchange.wire
        tokens = len(call.content) + _PREAMBLE_TOKENS
        if self._last:
            last = self._last.parts
            new = sum(len(part) for place, part in enumerate(call.parts) if last[place : place + 1] != [part])
            tokens = min(tokens, self._last.input_tokens + new)
        # What is no number of tokens bounds nothing: a provider refuses it, or takes its own.
        stated = [cap for key in wire.output_caps if type(cap := call.body.get(key)) is int and cap > 0]
        return Usage(input_fresh=tokens, output=max(stated, default=provider.max_output_tokens), requests=1)

    def _outcome(self, call: "_Call") -> "_Outcome":
        sent = time.monotonic()
        try:
            raw = self._exchange.line.connections.send(
                call.method, call.url, call.headers, call.content, deadline=self._place.deadline
            )
        except SendError as error:
            return self._broken(call, error)
        outcome = self._judged(call.redacted(raw))
        self._tell_limiter(outcome, sent)
        return outcome

    def _broken(self, call: "_Call", error: SendError) -> "_Outcome":
        """No whole reply came: what that is, and whether it can have cost anything."""
        partial = call.redacted(error.partial) if error.partial else None
        if partial and partial.status != 200:
            return self._judged(partial)
        kind = "stream" if error.phase == "body" else "connection"
        if time.monotonic() >= self._place.deadline:
            kind = "timeout"
        usage = Usage(requests=1) if error.phase == "connect" else None
        return _Outcome(partial, usage, Fault(kind, call.without_keys(str(error))))

    def _judged(self, reply: RawReply) -> "_Outcome":
        if reply.status != 200:
            return _Outcome(reply, Usage(requests=1), fault_of(reply.status, reply.body))
        streamed = reply.header("content-type").startswith("text/event-stream")
        reading = self._exchange.wire.read(reply.body, streamed=streamed)
        return _Outcome(reply, reading.usage, reading.fault)

    def _tell_limiter(self, outcome: "_Outcome", sent: float) -> None:
        limiter = self._exchange.line.limiter
        if outcome.fault is None:
            limiter.answered()
        elif outcome.fault.kind == "rate_limit":
            limiter.refused(sent)
        elif outcome.fault.kind == "server":
            limiter.failed()

    def _wait_or_raise(self, outcome: "_Outcome", number: int) -> None:
        """Wait for the next try, or raise where there is none. The request keeps its seat in the limiter meanwhile."""
        fault, provider = outcome.fault, self._exchange.provider
        assert fault is not None
        if fault.kind == "quota":
            raise RunStop(f"the provider's quota is used up: {fault.message}")
        if fault.kind == "auth":
            where = f"the key in {provider.key_variable}" if provider.key_variable else "a request without a key"
            raise SetupError(f"the provider refuses {where}: {fault.message}")
        if fault.kind == "not_found":
            raise SetupError(f"model.model, model.base_url: the provider does not know them: {fault.message}")
        wait = min(provider.most_s, provider.backoff_s * 2 ** min(number - 1, 20)) * random.uniform(0.5, 1.0)
        if outcome.reply:
            wait = max(wait, _retry_after(outcome.reply))
        self._exchange.line.tell(f"{provider.wire}: {fault.kind}: {fault.message}")
        again = number < _REQUESTS.get(fault.kind, 1)
        if not again or time.monotonic() + wait + _LEAST_LEFT_S >= self._place.deadline:
            told = f" (after {number} requests)" if number > 1 else ""
            raise ModelError(f"{fault.message}{told}", kind=fault.kind, retryable=fault.kind in _REQUESTS)
        time.sleep(wait)


@dataclass(frozen=True, slots=True)
class _Sent:
    """The last request that was answered with figures: its input, and the parts of its body as JSON."""

    input_tokens: int
    parts: list[bytes]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """One sending: the reply or what came of it; usage None: unknown; fault None: a whole reply."""

    reply: RawReply | None
    usage: Usage | None
    fault: Fault | None

    @property
    def content_type(self) -> str:
        return self.reply.header("content-type") if self.reply else ""


class _Call:
    """One request of an SDK, taken apart."""

    def __init__(self, request: httpx2.Request, history: str, *, keyed: bool) -> None:
        self.content = request.read()
        self.method, self.url, self.path = request.method, str(request.url), request.url.path
        self.body: dict[str, Any] = orjson.loads(self.content)
        # What comes back is recorded as it comes, so it must not be packed.
        kept = [(name, value) for name, value in request.headers.raw if name.lower() != b"accept-encoding"]
        self.headers = [*kept, (b"accept-encoding", b"identity")]
        self._secrets = _secrets(request) if keyed else []
        items, rest = split_body(self.body, history)
        self.parts = [orjson.dumps(part) for part in [rest, *items]]

    def redacted(self, raw: RawReply) -> RawReply:
        """The reply unpacked, and without the key, which some servers repeat."""
        body = raw.body
        if raw.header("content-encoding"):
            # Some servers pack what nobody asked them to pack; what cannot be unpacked is judged as it came.
            with suppress(httpx2.DecodingError):
                body = httpx2.Response(200, headers=list(raw.headers), content=body).content
        for secret in self._secrets:
            body = body.replace(secret, b"[key]")
        return RawReply(raw.status, raw.headers, body)

    def without_keys(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret.decode(), "[key]")
        return text


def _secrets(request: httpx2.Request) -> list[bytes]:
    values = [request.headers.get(name, "").removeprefix("Bearer ").strip() for name in _SECRET_HEADERS]
    return [value.encode() for value in values if len(value) >= LEAST_SECRET]


def _retry_after(reply: RawReply) -> float:
    """Seconds that a server asks to wait: retry-after-ms, or retry-after in seconds or as a date; else 0."""
    try:
        if milliseconds := reply.header("retry-after-ms"):
            return max(0.0, float(milliseconds) / 1000)
        if text := reply.header("retry-after"):
            seconds = text.replace(".", "", 1).isdigit()
            return float(text) if seconds else max(0.0, parsedate_to_datetime(text).timestamp() - time.time())
    except (ValueError, OverflowError):
        pass
    return 0.0
