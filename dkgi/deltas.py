r"""Neighbouring pieces of a streamed text, put together: some programs take time with the square of their number.

>>> merge(b'data: {"type": "x.delta", "delta": "a"}\n\ndata: {"type": "x.delta", "delta": "b"}\n\n')
b'data: {"type":"x.delta","delta":"ab"}\n\n'

Knows the pieces of all three wires; every other event stays byte for byte where it is.
Not covered: pieces that are not neighbours, which no reader could tell apart from a reply that alternates.
"""

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Any

import orjson

Path = tuple[str | int, ...]

_BLOCK_TEXTS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
_CHAT_TEXTS = ("content", "reasoning_content", "reasoning")


def merge(body: bytes) -> bytes:
    """A body of server-sent events with as few pieces as possible."""
    return b"".join(_merged(body.replace(b"\r\n", b"\n")))


@dataclass(slots=True)
class _Open:
    """A piece that takes up those that follow it."""

    head: bytes
    event: dict[str, Any]
    place: Path
    what: Hashable
    texts: list[str]

    def block(self) -> bytes:
        holder: Any = self.event
        for step in self.place[:-1]:
            holder = holder[step]
        holder[self.place[-1]] = "".join(self.texts)
        return self.head + b"data: " + orjson.dumps(self.event) + b"\n\n"


def _merged(body: bytes) -> Iterator[bytes]:
    piece: _Open | None = None
    *blocks, rest = body.split(b"\n\n")
    for block in blocks:
        new = _piece(block)
        if piece and new and new.what == piece.what:
            piece.texts += new.texts
            continue
        if piece:
            yield piece.block()
        piece = new
        if not new:
            yield block + b"\n\n"
    if piece:
        yield piece.block()
    yield rest


def _piece(block: bytes) -> _Open | None:
    """The piece that an event is; None for any other event."""
    head, data, content = block.rpartition(b"data:")
    if not data or b"\n" in content:
        return None
    try:
        event = orjson.loads(content)
        found = _place(event)
    except (ValueError, KeyError, TypeError, IndexError, AttributeError):
        return None
    if found is None:
        return None
    what, place = found
    text = event
    for step in place:
        text = text[step]
    return _Open(head, event, place, what, [text]) if isinstance(text, str) else None


def _place(event: dict[str, Any]) -> tuple[Hashable, Path] | None:
    """What a piece belongs to, and where in the event its text is."""
    kind, delta = event.get("type"), event.get("delta")
    if isinstance(delta, str):
        return (kind, *(event.get(f"{part}_index") for part in ("output", "content", "summary"))), ("delta",)
    if kind == "content_block_delta" and isinstance(delta, dict) and delta["type"] in _BLOCK_TEXTS:
        return (delta["type"], event["index"]), ("delta", _BLOCK_TEXTS[delta["type"]])
    return _place_in_chunk(event) if "choices" in event else None


def _place_in_chunk(event: dict[str, Any]) -> tuple[Hashable, Path] | None:
    (choice,) = event["choices"]
    if choice.get("finish_reason") or choice.get("logprobs") or event.get("usage"):
        return None
    told = {key: value for key, value in choice["delta"].items() if value and key != "role"}
    (key,) = told
    if key in _CHAT_TEXTS:
        return key, ("choices", 0, "delta", key)
    (call,) = told["tool_calls"]
    if call.get("id") or call["function"].get("name"):
        return None
    return (key, call["index"]), ("choices", 0, "delta", key, 0, "function", "arguments")
