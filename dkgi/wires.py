"""What the exchange has to know of a wire: what a reply used, whether it is whole, and what its errors mean.

>>> body = b'{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}'
>>> WIRES["openai_chat"].read(body, streamed=False).usage
Usage(input_fresh=9, cache_read=0, cache_write=0, output=2, reasoning=0, requests=1, complete=True)

Pure functions over raw bytes that never raise, whatever a server sends: the bill comes before the parsing.
OpenAI counts cached tokens inside of the input, Anthropic beside it; both become disjoint buckets here.
Not covered: what a reply says (models/<wire>.py).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from dkgi.types import Usage

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """Why there is no reply: a `kind` of exchange.py's table, and what the server said."""

    kind: str
    message: str


@dataclass(frozen=True, slots=True)
class Reading:
    """What a reply with status 200 came to. `usage` is None where no figures are in it; `fault` where it is no reply."""

    usage: Usage | None
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class Wire:
    """One provider format.

    history      key of the request body that holds the conversation
    output_caps  keys of the request body that bound the output, in tokens
    """

    history: str
    output_caps: tuple[str, ...]
    whole: Callable[[Json], Reading]
    events: Callable[[Sequence[Json]], Reading]

    def read(self, body: bytes, *, streamed: bool) -> Reading:
        """Usage and wholeness of a reply's body: one JSON object, or with `streamed` server-sent events."""
        if streamed:
            events = parse_events(body)
            return _malformed("an event that is not a JSON object") if events is None else self.events(events)
        content = _object(body)
        if content is None:
            return _malformed("the reply is not a JSON object")
        if isinstance(content.get("error"), dict):
            return Reading(None, _fault(content))
        return self.whole(content)


def parse_events(body: bytes) -> list[Json] | None:
    """The data of all finished events; None where one is not a JSON object. Comments and [DONE] are left out."""
    events = []
    text = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    # What follows the last blank line was cut off.
    for block in text.split(b"\n\n")[:-1]:
        lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if not data or data == b"[DONE]":
            continue
        event = _object(data)
        if event is None:
            return None
        events.append(event)
    return events


# ------------------------------------------------------------------- errors


_QUOTA = re.compile(r"insufficient_quota|billing|credit balance|quota_exceeded|exceeded your current quota", re.I)
_OVERFLOW = re.compile(
    r"context_length_exceeded|exceed_context_size|maximum context length|prompt is too long|context (window|size|length)",
    re.I,
)
_FILTER = re.compile(r"content_filter|content_policy|_policy|content management policy|usage polic|safety", re.I)
_KINDS = (
    ("rate_limit", re.compile(r"rate_limit|overloaded")),
    ("auth", re.compile(r"authentication|permission_error|invalid_api_key")),
    ("not_found", re.compile(r"not_found")),
    ("bad_request", re.compile(r"invalid_request|invalid_prompt|invalid_image|too_large")),
)
_STATUS_KINDS = {
    401: "auth",
    402: "quota",
    403: "auth",
    404: "not_found",
    408: "server",
    409: "server",
    413: "context_overflow",
    429: "rate_limit",
    529: "rate_limit",
}


def fault_of(status: int, body: bytes) -> Fault:
    """The class of a reply with an error status."""
    return _fault(_object(body) or {}, status=status, text=body.decode(errors="replace"))


def _fault(content: Json, *, status: int | None = None, text: str = "") -> Fault:
    """The class of an error object, or of what holds one; status None: it was told inside of a reply that began well."""
    error = content.get("error")
    said = error if isinstance(error, dict) else content
    names = " ".join(str(said[key]) for key in ("code", "type") if said.get(key))
    message = _line(said.get("message") or content.get("message") or error or text)
    if status is None and isinstance(said.get("code"), int):
        status = said["code"]
    return Fault(_kind(status, names, message), message)


def _kind(status: int | None, names: str, message: str) -> str:
    whole = f"{names} {message}"
    if status in (None, 400, 402, 403, 429) and _QUOTA.search(whole):
        return "quota"
    if status in (None, 400, 413, 422, 500) and _OVERFLOW.search(whole):
        return "context_overflow"
    if status in (None, 400, 422) and (
        _FILTER.search(names) or ("invalid_prompt" in names and _FILTER.search(message))
    ):
        return "refused"
    if status is None:
        return next((kind for kind, pattern in _KINDS if pattern.search(names)), "server")
    return _STATUS_KINDS.get(status) or ("server" if status >= 500 else "bad_request")


def _malformed(message: str, usage: Usage | None = None) -> Reading:
    return Reading(usage, Fault("stream", message))


# ------------------------------------------------------------------- OpenAI Responses


def _responses_whole(reply: Json) -> Reading:
    usage = _openai_usage(reply.get("usage"), "input_tokens", "output_tokens")
    if reply.get("status") in ("completed", "incomplete"):
        return Reading(usage)
    if reply.get("status") == "failed":
        return Reading(usage, _fault(_part(reply, "error"), text="the response failed"))
    return _malformed("the response has no final status", usage)


def _responses_events(events: Sequence[Json]) -> Reading:
    for event in events:
        if event.get("type") == "error":
            return Reading(None, _fault(event))
        if event.get("type") in ("response.completed", "response.incomplete", "response.failed"):
            reply = event.get("response")
            return _responses_whole(reply) if isinstance(reply, dict) else _malformed("the last event has no response")
    return _malformed("the stream ended without its last event")


# ------------------------------------------------------------------- OpenAI Chat Completions


def _chat_whole(reply: Json) -> Reading:
    usage = _openai_usage(reply.get("usage"), "prompt_tokens", "completion_tokens")
    return Reading(usage) if _choices(reply) else _malformed("the completion has no choices", usage)


def _chat_events(events: Sequence[Json]) -> Reading:
    usage, finished = None, False
    for event in events:
        if event.get("error"):
            return Reading(usage, _fault(event))
        # Figures come once or grow from chunk to chunk; the last ones are those of the whole.
        usage = _openai_usage(event.get("usage"), "prompt_tokens", "completion_tokens") or usage
        finished = finished or any(choice.get("finish_reason") for choice in _choices(event))
    return Reading(usage) if finished else _malformed("the stream ended without a finish_reason")


def _choices(reply: Json) -> list[Json]:
    choices = reply.get("choices")
    return [choice for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []


def _openai_usage(usage: Any, input_key: str, output_key: str) -> Usage | None:
    if not isinstance(usage, dict) or usage.get(input_key) is None:
        return None
    details = _part(usage, input_key.replace("tokens", "tokens_details"))
    thoughts = _part(usage, output_key.replace("tokens", "tokens_details"))
    whole, read, written = usage[input_key], details.get("cached_tokens"), details.get("cache_write_tokens")
    if not _are_counts(whole, read, written) or (read or 0) + (written or 0) > whole:
        return None
    fresh = whole - (read or 0) - (written or 0)
    return _usage(fresh, read, written, usage.get(output_key), thoughts.get("reasoning_tokens"))


# ------------------------------------------------------------------- Anthropic Messages


def _messages_whole(reply: Json) -> Reading:
    usage = _anthropic_usage(reply.get("usage"))
    return Reading(usage) if reply.get("stop_reason") else _malformed("the message has no stop_reason", usage)


def _messages_events(events: Sequence[Json]) -> Reading:
    figures: Json = {}
    for event in events:
        match event.get("type"):
            case "message_start":
                figures |= _told(_part(_part(event, "message"), "usage"))
            case "message_delta":
                figures |= _told(_part(event, "usage"))
            case "message_stop":
                return Reading(_anthropic_usage(figures))
            case "error":
                return Reading(None, _fault(_part(event, "error"), text="the message failed"))
    return _malformed("the stream ended without message_stop")


def _anthropic_usage(usage: Any) -> Usage | None:
    if not isinstance(usage, dict) or usage.get("input_tokens") is None:
        return None
    return _usage(
        usage["input_tokens"],
        usage.get("cache_read_input_tokens"),
        usage.get("cache_creation_input_tokens"),
        usage.get("output_tokens"),
        _part(usage, "output_tokens_details").get("thinking_tokens"),
    )


# ------------------------------------------------------------------- JSON that may be anything


def _object(data: bytes) -> Json | None:
    try:
        content = orjson.loads(data)
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _part(content: Json, key: str) -> Json:
    part = content.get(key)
    return part if isinstance(part, dict) else {}


def _told(figures: Json) -> Json:
    return {key: value for key, value in figures.items() if value is not None}


def _usage(fresh: Any, read: Any, written: Any, output: Any, thought: Any) -> Usage | None:
    """Figures that can be right, as usage; None for others, and for a request that is said to have had no input."""
    if not _are_counts(fresh, read, written, output, thought):
        return None
    usage = Usage(fresh, read or 0, written or 0, output or 0, min(thought or 0, output or 0), requests=1)
    return usage if usage.input_tokens else None


def _are_counts(*figures: Any) -> bool:
    return all(figure is None or (type(figure) is int and figure >= 0) for figure in figures)


def _line(text: Any) -> str:
    line = " ".join(re.sub(r"<[^>]*>", " ", str(text)[:2000]).split())
    return line[:300] or "no message"


WIRES = {
    "openai_responses": Wire("input", ("max_output_tokens",), _responses_whole, _responses_events),
    "openai_chat": Wire("messages", ("max_completion_tokens", "max_tokens"), _chat_whole, _chat_events),
    "anthropic_messages": Wire("messages", ("max_tokens",), _messages_whole, _messages_events),
}
"""By the `kind` of a model's configuration."""
