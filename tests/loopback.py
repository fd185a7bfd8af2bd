"""A provider on a loopback socket that speaks all three wires, streamed and not, and fails in every way on request.

>>> with Loopback([Turn(text="hello"), Turn(status=429, headers={"retry-after": "1"})]) as server:
...     openai.OpenAI(base_url=server.url, api_key="sk-fake", max_retries=0).responses.create(...)

Each request takes the next turn; the last one stands for all later ones. The wire follows from the path, streaming from
the request's `stream`. `requests` keeps what came.
Not covered: HTTPS; checks of what clients send.
"""

import json
import socket
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, Literal, Self

Json = dict[str, Any]

Fault = Literal[
    "cut_before",  # the connection breaks when the reply has begun and says nothing yet
    "cut_inside",  # ... inside of what it says, the first tool call's arguments where there are calls
    "cut_after",  # ... when all is said but the last event
    "no_last_event",  # the connection ends properly, but the last event (whole: the end of the object) is missing
    "duplicates",  # events that begin and end a reply or carry figures come twice
    "malformed",  # an event (whole: the object) that is no JSON
    "no_usage",  # no figures
    "slow_headers",  # the head of the reply comes byte by byte, for ever
    "drip",  # the body comes byte by byte, for ever
    "silence",  # accepts and never answers
    "reset",  # accepts, reads and resets the connection
]


@dataclass(frozen=True)
class Turn:
    """One reply. Tokens as providers bill them: `input` is all input, `cached` and `written` lie inside of it.

    calls     (name, arguments) of tool calls; arguments as JSON text, which may be malformed
    stop      end, length, refusal (the model refuses), filter (the provider's filter stopped it)
    status    another status than 200, with `body` (JSON or text) and `headers`
    failure   a failure that is told inside of a reply with status 200: a provider's error object
    """

    text: str = ""
    calls: Sequence[tuple[str, str]] = ()
    thinking: str = ""
    stop: Literal["end", "length", "refusal", "filter"] = "end"
    input: int = 1000
    cached: int = 0
    written: int = 0
    output: int = 50
    reasoning: int = 0
    status: int = 200
    body: Json | str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    delay_s: float = 0.0
    fault: Fault | None = None
    failure: Json | None = None


@dataclass(frozen=True)
class Request:
    path: str
    headers: Mapping[str, str]
    raw: bytes
    body: Json


class Loopback:
    """The server. With `capacity`, requests beyond that many at a time are answered 429; `log` has (time, status).

    `keep=False`: requests are not kept.
    """

    def __init__(self, turns: Sequence[Turn], *, capacity: int | None = None, keep: bool = True) -> None:
        self.turns = list(turns)
        self.capacity = capacity
        self.keep = keep
        self.requests: list[Request] = []
        self.log: list[tuple[float, int]] = []
        self.most_at_once = 0
        self._lock = threading.Lock()
        self._at_once = 0
        self._closing = threading.Event()

    @property
    def url(self) -> str:
        """Base URL as OpenAI's SDK takes it; Anthropic's takes `root`."""
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        handler = type("Handler", (_Handler,), {"server_of": self})

        class Server(ThreadingHTTPServer):
            daemon_threads = True
            block_on_close = False
            request_queue_size = 512

        self._server = Server(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def take(self, request: Request) -> Turn | None:
        """The turn for a request, or None where it is one too many at a time."""
        with self._lock:
            self.requests += [request] if self.keep else []
            if self.capacity is not None and self._at_once >= self.capacity:
                self.log.append((time.monotonic(), 429))
                return None
            self._at_once += 1
            self.most_at_once = max(self.most_at_once, self._at_once)
            return self.turns.pop(0) if len(self.turns) > 1 else self.turns[0]

    def leave(self, turn: Turn) -> None:
        """The turn is about to be answered in full: its place is free before the client can send again."""
        with self._lock:
            self._at_once -= 1
            self.log.append((time.monotonic(), turn.status))

    def hang(self, seconds: float = 3600.0) -> None:
        """Do nothing until the server closes."""
        self._closing.wait(seconds)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server_of: ClassVar[Loopback]

    def log_message(self, *_: object) -> None:
        pass

    def do_POST(self) -> None:
        loopback = self.server_of
        raw = self.rfile.read(int(self.headers["Content-Length"]))
        body = json.loads(raw)
        names = {name.lower(): value for name, value in self.headers.items()}
        turn = loopback.take(Request(self.path, names, raw, body))
        if turn is None:
            self._plain(429, {"error": {"message": "too many at a time", "type": "rate_limit_error"}}, {})
            return
        loopback.hang(turn.delay_s)
        loopback.leave(turn)
        try:
            self._answer(turn, body)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _answer(self, turn: Turn, body: Json) -> None:
        wire = _WIRES[self.path.rsplit("/", 1)[-1]]
        if turn.fault in ("silence", "reset", "slow_headers"):
            self._broken(turn)
        elif turn.status != 200:
            self._plain(turn.status, turn.body, turn.headers)
        elif body.get("stream"):
            self._stream(turn, wire.events(turn, body))
        else:
            self._whole(turn, json.dumps(wire.whole(turn, body)).encode())

    def _broken(self, turn: Turn) -> None:
        self.close_connection = True
        if turn.fault == "silence":
            self.server_of.hang()
        elif turn.fault == "reset":
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()
        else:
            self._drip(b"HTTP/1.1 200 OK\r\nx-slow: " + b"z" * 100_000)

    def _drip(self, content: bytes) -> None:
        for place in range(len(content)):
            self.wfile.write(content[place : place + 1])
            self.server_of.hang(0.02)
            if self.server_of._closing.is_set():
                return

    def _plain(self, status: int, body: Json | str, headers: Mapping[str, str]) -> None:
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        kind = "text/html" if isinstance(body, str) else "application/json"
        self._head(status, {"content-type": kind, "content-length": str(len(content)), **headers})
        self.wfile.write(content)

    def _head(self, status: int, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()

    def _whole(self, turn: Turn, content: bytes) -> None:
        sent = content
        if turn.fault == "malformed":
            sent = content = b"{" + content
        elif turn.fault == "cut_before":
            sent = b""
        elif turn.fault in ("cut_inside", "cut_after"):
            sent = content[: len(content) // 2] if turn.fault == "cut_inside" else content[:-1]
        elif turn.fault == "no_last_event":
            sent = content = content[:-1]
        self._head(200, {"content-type": "application/json", "content-length": str(len(content)), **turn.headers})
        if turn.fault == "drip":
            self._drip(b" " * len(content))
        self.wfile.write(sent)
        self.close_connection = sent != content

    def _stream(self, turn: Turn, events: "list[_Event]") -> None:
        self._head(200, {"content-type": "text/event-stream", "transfer-encoding": "chunked", **turn.headers})
        middle = len(events) // 2
        calls = [place for place, event in enumerate(events) if event.part == "call"]
        inside = calls[len(calls) // 2] if calls else middle
        ends = {"cut_before": 1, "cut_inside": inside, "cut_after": -1, "no_last_event": -1}
        if turn.fault in ends:
            last = ends[turn.fault]
            events = events[: last if last > 0 else next(n for n, event in enumerate(events) if event.part == "end")]
        for place, event in enumerate(events):
            content = event.content
            if turn.fault == "malformed" and place == middle:
                content = b'data: {"type": "response.outp\n\n'
            if turn.fault == "duplicates" and event.part in ("begin", "end", "figures"):
                content += event.content
            self._chunk(content[:7] if turn.fault == "cut_inside" and place == len(events) - 1 else content)
            if turn.fault == "drip":
                for _ in range(100_000):
                    self._chunk(b":\n")
                    self.server_of.hang(0.02)
                    if self.server_of._closing.is_set():
                        return
        if turn.fault in ("cut_before", "cut_inside", "cut_after"):
            self.close_connection = True
        else:
            self.wfile.write(b"0\r\n\r\n")

    def _chunk(self, content: bytes) -> None:
        self.wfile.write(f"{len(content):x}\r\n".encode() + content + b"\r\n")


@dataclass(frozen=True)
class _Event:
    """One event and what part of the reply it is."""

    part: Literal["begin", "say", "call", "figures", "end"]
    content: bytes


def _event(part: Any, data: Json | str, name: str | None = None) -> _Event:
    text = data if isinstance(data, str) else json.dumps(data)
    return _Event(part, (f"event: {name}\n" if name else "").encode() + f"data: {text}\n\n".encode())


def _pieces(text: str) -> list[str]:
    size = max(7, len(text) // 200)
    return [text[start : start + size] for start in range(0, len(text), size)]


class _Responses:
    """OpenAI Responses."""

    @staticmethod
    def usage(turn: Turn) -> Json | None:
        if turn.fault == "no_usage":
            return None
        return {
            "input_tokens": turn.input,
            "input_tokens_details": {"cached_tokens": turn.cached, "cache_write_tokens": turn.written},
            "output_tokens": turn.output,
            "output_tokens_details": {"reasoning_tokens": turn.reasoning},
            "total_tokens": turn.input + turn.output,
        }

    @classmethod
    def items(cls, turn: Turn) -> list[Json]:
        items: list[Json] = []
        if turn.thinking:
            summary = [{"type": "summary_text", "text": turn.thinking}]
            items.append(
                {"id": "rs_1", "type": "reasoning", "summary": summary, "encrypted_content": "gAAAA" + "x" * 64}
            )
        if turn.text:
            part: Json = {"type": "output_text", "text": turn.text, "annotations": []}
            if turn.stop == "refusal":
                part = {"type": "refusal", "refusal": turn.text}
            items.append(
                {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part]}
            )
        for place, (name, arguments) in enumerate(turn.calls):
            items.append(
                {
                    "id": f"fc_{place}",
                    "type": "function_call",
                    "status": "completed",
                    "call_id": f"call_{place}",
                    "name": name,
                    "arguments": arguments,
                }
            )
        return items

    @classmethod
    def whole(cls, turn: Turn, body: Json) -> Json:
        reasons = {"length": "max_output_tokens", "filter": "content_filter"}
        reply: Json = {
            "id": "resp_1",
            "object": "response",
            "created_at": 1_790_000_000,
            "model": body.get("model"),
            "status": "incomplete" if turn.stop in reasons else "completed",
            "incomplete_details": {"reason": reasons[turn.stop]} if turn.stop in reasons else None,
            "error": None,
            "instructions": None,
            "metadata": {},
            "output": cls.items(turn),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "temperature": None,
            "top_p": None,
            "usage": cls.usage(turn),
        }
        return reply | {"status": "failed", "error": turn.failure, "output": []} if turn.failure else reply

    @classmethod
    def events(cls, turn: Turn, body: Json) -> list[_Event]:
        done = cls.whole(turn, body)
        begun = done | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None, "error": None}
        events: list[_Event] = []

        def tell(role: Any, kind: str, /, **data: Any) -> None:
            events.append(_event(role, {"type": kind, "sequence_number": len(events), **data}, kind))

        tell("begin", "response.created", response=begun)
        for place, item in enumerate(done["output"]):
            where = {"output_index": place, "item_id": item["id"]}
            is_call = item["type"] == "function_call"
            empty: Json = {"arguments": ""} if is_call else {"content": []} if item["type"] == "message" else {}
            start = item | empty | {"status": "in_progress"}
            tell("say", "response.output_item.added", output_index=place, item=start)
            if is_call:
                for piece in _pieces(item["arguments"]):
                    tell("call", "response.function_call_arguments.delta", delta=piece, **where)
                tell("say", "response.function_call_arguments.done", arguments=item["arguments"], **where)
            elif item["type"] == "message":
                cls._message(item["content"][0], where, tell)
            tell("say", "response.output_item.done", output_index=place, item=item)
        tell("end", f"response.{done['status']}", response=done)
        return events

    @staticmethod
    def _message(part: Json, where: Json, tell: Any) -> None:
        key = "text" if part["type"] == "output_text" else "refusal"
        kind = f"response.{part['type']}"
        tell("say", "response.content_part.added", content_index=0, part=part | {key: ""}, **where)
        for piece in _pieces(part[key]):
            tell("say", f"{kind}.delta", content_index=0, delta=piece, logprobs=[], **where)
        tell("say", f"{kind}.done", content_index=0, **{key: part[key]}, logprobs=[], **where)
        tell("say", "response.content_part.done", content_index=0, part=part, **where)


class _Chat:
    """OpenAI Chat Completions, as vLLM, Ollama and llama.cpp speak it too."""

    @staticmethod
    def usage(turn: Turn) -> Json | None:
        if turn.fault == "no_usage":
            return None
        return {
            "prompt_tokens": turn.input,
            "completion_tokens": turn.output,
            "total_tokens": turn.input + turn.output,
            "prompt_tokens_details": {"cached_tokens": turn.cached, "cache_write_tokens": turn.written},
            "completion_tokens_details": {"reasoning_tokens": turn.reasoning},
        }

    @staticmethod
    def finish(turn: Turn) -> str:
        reasons = {"length": "length", "filter": "content_filter"}
        return reasons.get(turn.stop) or ("tool_calls" if turn.calls else "stop")

    @classmethod
    def whole(cls, turn: Turn, body: Json) -> Json:
        if turn.failure:
            return {"error": turn.failure}
        calls = [
            {"id": f"call_{place}", "type": "function", "function": {"name": name, "arguments": arguments}}
            for place, (name, arguments) in enumerate(turn.calls)
        ]
        refused = turn.stop == "refusal"
        message: Json = {
            "role": "assistant",
            "content": None if refused else turn.text,
            "refusal": turn.text if refused else None,
        }
        message |= {"reasoning_content": turn.thinking} if turn.thinking else {}
        message |= {"tool_calls": calls} if calls else {}
        return {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1_790_000_000,
            "model": body.get("model"),
            "choices": [{"index": 0, "message": message, "finish_reason": cls.finish(turn), "logprobs": None}],
            "usage": cls.usage(turn),
        }

    @classmethod
    def events(cls, turn: Turn, body: Json) -> list[_Event]:
        events: list[_Event] = []
        base = {
            "id": "chatcmpl-1",
            "object": "chat.completion.chunk",
            "created": 1_790_000_000,
            "model": body.get("model"),
        }

        def tell(part: Any, delta: Json, finish: str | None = None) -> None:
            choice = {"index": 0, "delta": delta, "finish_reason": finish, "logprobs": None}
            events.append(_event(part, {**base, "choices": [choice]}))

        tell("begin", {"role": "assistant", "content": ""})
        if turn.failure:
            return [*events, _event("end", {"error": turn.failure})]
        for piece in _pieces(turn.thinking):
            tell("say", {"reasoning_content": piece})
        for piece in _pieces(turn.text):
            tell("say", {"refusal" if turn.stop == "refusal" else "content": piece})
        for place, (name, arguments) in enumerate(turn.calls):
            function = {"name": name, "arguments": ""}
            tell(
                "say",
                {"tool_calls": [{"index": place, "id": f"call_{place}", "type": "function", "function": function}]},
            )
            for piece in _pieces(arguments):
                tell("call", {"tool_calls": [{"index": place, "function": {"arguments": piece}}]})
        tell("end", {}, cls.finish(turn))
        if (usage := cls.usage(turn)) and (body.get("stream_options") or {}).get("include_usage"):
            events.append(_event("figures", {**base, "choices": [], "usage": usage}))
        return [*events, _event("end", "[DONE]")]


class _Messages:
    """Anthropic Messages. Cached input lies beside `input_tokens` here."""

    @staticmethod
    def usage(turn: Turn) -> Json:
        if turn.fault == "no_usage":
            return {}
        return {
            "input_tokens": turn.input - turn.cached - turn.written,
            "cache_read_input_tokens": turn.cached,
            "cache_creation_input_tokens": turn.written,
            "output_tokens": turn.output,
            "output_tokens_details": {"thinking_tokens": turn.reasoning},
        }

    @staticmethod
    def reason(turn: Turn) -> str:
        reasons = {"length": "max_tokens", "refusal": "refusal", "filter": "refusal"}
        return reasons.get(turn.stop) or ("tool_use" if turn.calls else "end_turn")

    @classmethod
    def blocks(cls, turn: Turn) -> list[Json]:
        blocks: list[Json] = []
        if turn.thinking:
            blocks.append({"type": "thinking", "thinking": turn.thinking, "signature": "c2lnbmF0dXJl"})
        if turn.text:
            blocks.append({"type": "text", "text": turn.text})
        for place, (name, arguments) in enumerate(turn.calls):
            blocks.append({"type": "tool_use", "id": f"toolu_{place}", "name": name, "input": _parsed(arguments)})
        return blocks

    @classmethod
    def whole(cls, turn: Turn, body: Json) -> Json:
        if turn.failure:
            return {"type": "error", "error": turn.failure}
        return {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": cls.blocks(turn),
            "stop_reason": cls.reason(turn),
            "stop_sequence": None,
            "usage": cls.usage(turn),
        }

    @classmethod
    def events(cls, turn: Turn, body: Json) -> list[_Event]:
        events: list[_Event] = []

        def tell(role: Any, kind: str, /, **data: Any) -> None:
            events.append(_event(role, {"type": kind, **data}, kind))

        usage = cls.usage(turn)
        message = cls.whole(turn, body) if not turn.failure else {"id": "msg_1", "type": "message", "role": "assistant"}
        start = {**message, "content": [], "stop_reason": None, "usage": usage and {**usage, "output_tokens": 1}}
        tell("begin", "message_start", message=start)
        if turn.failure:
            tell("end", "error", error=turn.failure)
            return events
        arguments = iter([arguments for _, arguments in turn.calls])
        for place, block in enumerate(cls.blocks(turn)):
            text, empty, deltas = cls._said(block, arguments)
            tell("say", "content_block_start", index=place, content_block=block | empty)
            for piece in _pieces(text):
                tell(
                    "call" if block["type"] == "tool_use" else "say",
                    "content_block_delta",
                    index=place,
                    delta=deltas(piece),
                )
            if block["type"] == "thinking":
                delta = {"type": "signature_delta", "signature": block["signature"]}
                tell("say", "content_block_delta", index=place, delta=delta)
            tell("say", "content_block_stop", index=place)
        delta = {"stop_reason": cls.reason(turn), "stop_sequence": None}
        tell("figures", "message_delta", delta=delta, usage=usage and {"output_tokens": turn.output})
        tell("end", "message_stop")
        return events

    @staticmethod
    def _said(block: Json, arguments: Any) -> tuple[str, Json, Any]:
        """The text of a block, how it begins, and a delta of it."""
        if block["type"] == "thinking":
            empty = {"thinking": "", "signature": ""}
            return block["thinking"], empty, lambda piece: {"type": "thinking_delta", "thinking": piece}
        if block["type"] == "text":
            return block["text"], {"text": ""}, lambda piece: {"type": "text_delta", "text": piece}
        return next(arguments), {"input": {}}, lambda piece: {"type": "input_json_delta", "partial_json": piece}


_WIRES: dict[str, Any] = {"responses": _Responses, "completions": _Chat, "messages": _Messages}


def _parsed(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        # A whole reply of this wire holds arguments as an object; a server cannot say malformed JSON in it.
        return {}
