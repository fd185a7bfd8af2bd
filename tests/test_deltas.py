"""Merging pieces of streams: nothing but their number changes, whatever a server sends."""

import orjson
import pytest

from dkgi.deltas import merge
from dkgi.wires import parse_events


def stream(*events: object) -> bytes:
    return b"".join(b"data: " + orjson.dumps(event) + b"\n\n" for event in events)


def chunk(delta: object, **more: object) -> dict[str, object]:
    return {"id": "c", "choices": [{"index": 0, "delta": delta, **more}]}


def call(arguments: str, index: int = 0, **more: object) -> dict[str, object]:
    return chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}, **more}]})


def said(text: str, **more: object) -> dict[str, object]:
    return {"type": "response.output_text.delta", "output_index": 0, "content_index": 0, "delta": text, **more}


def block(kind: str, key: str, text: str, index: int = 0) -> dict[str, object]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, key: text}}


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        (said("a"), said("b"), said("ab")),
        (block("text_delta", "text", "a"), block("text_delta", "text", "b"), block("text_delta", "text", "ab")),
        (block("input_json_delta", "partial_json", "{"), block("input_json_delta", "partial_json", "}"),
         block("input_json_delta", "partial_json", "{}")),
        (chunk({"content": "a"}), chunk({"content": "b"}), chunk({"content": "ab"})),
        (chunk({"role": "assistant", "reasoning": "a"}), chunk({"reasoning": "b", "content": None}),
         chunk({"role": "assistant", "reasoning": "ab"})),
        (call("{"), call("}"), call("{}")),
    ],
)  # fmt: skip
def test_neighbouring_pieces_of_one_text_become_one(first: object, second: object, whole: object) -> None:
    assert parse_events(merge(stream(first, second))) == [whole]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (said("a"), said("b", output_index=1)),
        (said("a"), {**said("b"), "type": "response.refusal.delta"}),
        (block("text_delta", "text", "a"), block("text_delta", "text", "b", index=1)),
        (block("text_delta", "text", "a"), block("signature_delta", "signature", "b")),
        (chunk({"content": "a"}), chunk({"reasoning": "b"})),
        (chunk({"content": "a"}), chunk({"content": "b"}, finish_reason="stop")),
        (chunk({"content": "a"}), {**chunk({"content": "b"}), "usage": {"prompt_tokens": 1}}),
        (chunk({"content": "a"}), chunk({"content": "b"}, logprobs={"content": [1]})),
        (chunk({"content": "a"}), {"choices": [], "usage": {"prompt_tokens": 1}}),
        (call("{"), call("}", index=1)),
        (call("{"), call("}", id="call_2")),
        (chunk({"content": "a"}), {"choices": None}),
        (said("a"), "text"),
    ],
)
def test_what_belongs_to_something_else_stays_as_it_came(first: object, second: object) -> None:
    assert merge(stream(first, second)) == stream(first, second)


def test_comments_names_of_events_line_ends_and_a_torn_end_stay() -> None:
    named = b"event: x\r\ndata: " + orjson.dumps(said("a")) + b"\r\n\r\n: keep-alive\r\n\r\n"
    torn = b'data: {"type": "response.outp'
    merged = merge(named + stream(said("b"), said("c")) + b"data: [DONE]\n\n" + torn)
    assert merged == (
        b"event: x\n" + stream(said("a")) + b": keep-alive\n\n" + stream(said("bc")) + b"data: [DONE]\n\n" + torn
    )


def test_fifty_thousand_pieces_take_no_second() -> None:
    pieces = stream(*[said("word ")] * 50_000)
    assert parse_events(merge(pieces)) == [said("word " * 50_000)]
