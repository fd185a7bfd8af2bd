"""Usage, wholeness and error classes of raw replies; prices to a billionth of a dollar."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dkgi.pricing import dollars
from dkgi.types import Prices, Usage
from dkgi.wires import WIRES, Fault, fault_of, parse_events

LUNA = Prices(input=0.10, cached_input=0.01, cache_write=0.125, output=0.50)
CLAUDE = Prices(input=2.0, cached_input=0.20, cache_write=2.5, output=10.0)


def responses(
    input_tokens: int, cached: int, output: int, reasoning: int = 0, written: int | None = None
) -> dict[str, Any]:
    details = {"cached_tokens": cached} | ({} if written is None else {"cache_write_tokens": written})
    usage = {
        "input_tokens": input_tokens,
        "input_tokens_details": details,
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
    }
    return {"status": "completed", "usage": usage}


def chat(input_tokens: int, cached: int | None, output: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"prompt_tokens": input_tokens, "completion_tokens": output}
    usage |= {} if cached is None else {"prompt_tokens_details": {"cached_tokens": cached}}
    return {"choices": [{"finish_reason": "stop"}], "usage": usage}


def message(fresh: int, read: int | None, written: int | None, output: int) -> dict[str, Any]:
    cache = {"cache_read_input_tokens": read, "cache_creation_input_tokens": written}
    return {"stop_reason": "end_turn", "usage": {"input_tokens": fresh, "output_tokens": output, **cache}}


@pytest.mark.parametrize(
    ("wire", "reply", "prices", "usd"),
    [
        # Cached tokens lie inside of the input.
        ("openai_responses", responses(120_346, 96_000, 2_212), LUNA, 0.0045006),
        ("openai_chat", chat(120_346, 96_000, 2_212), LUNA, 0.0045006),
        # All of the input from the cache.
        ("openai_responses", responses(50_000, 50_000, 0), LUNA, 0.0005),
        ("anthropic_messages", message(0, 50_000, 0, 0), CLAUDE, 0.01),
        # Tokens written to the cache: inside of the input, and beside it.
        ("openai_responses", responses(10_000, 2_000, 100, written=3_000), LUNA, 0.000945),
        ("anthropic_messages", message(21, 18_000, 4_000, 393), CLAUDE, 0.017572),
        # Reasoning lies inside of the output and is paid once.
        ("openai_responses", responses(1_000, 0, 5_000, reasoning=4_800), LUNA, 0.0026),
        # Servers that state no details.
        ("openai_chat", chat(1_000, None, 10), LUNA, 0.000105),
        ("anthropic_messages", message(1_000, None, None, 10), CLAUDE, 0.0021),
    ],
)
def test_golden_prices(wire: str, reply: dict[str, Any], prices: Prices, usd: float) -> None:
    usage = WIRES[wire].read(json.dumps(reply).encode(), streamed=False).usage
    assert usage is not None
    assert dollars(usage, prices) == pytest.approx(usd, abs=1e-9)


@pytest.mark.parametrize(
    ("wire", "reply"),
    [
        ("openai_responses", responses(-5, 0, 10)),
        ("openai_responses", responses(100, 0, -100_000)),
        ("openai_responses", responses(1_000, 5_000, 10)),
        ("openai_responses", responses(0, 0, 0)),
        ("openai_chat", chat(0, None, 0)),
        ("openai_chat", {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": "9"}}),
        ("openai_chat", {"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 9.5}}),
        ("anthropic_messages", message(0, 0, None, 0)),
        ("anthropic_messages", message(10, -1, None, 5)),
    ],
)
def test_figures_that_cannot_be_right_are_none(wire: str, reply: dict[str, Any]) -> None:
    reading = WIRES[wire].read(json.dumps(reply).encode(), streamed=False)
    assert (reading.usage, reading.fault) == (None, None)


def test_buckets_are_disjoint_on_both_sides() -> None:
    openai = WIRES["openai_responses"].read(json.dumps(responses(1000, 700, 9, 5, 100)).encode(), streamed=False)
    anthropic = WIRES["anthropic_messages"].read(json.dumps(message(200, 700, 100, 9)).encode(), streamed=False)
    assert openai.usage == Usage(200, 700, 100, 9, 5, requests=1)
    assert anthropic.usage == Usage(200, 700, 100, 9, 0, requests=1)


def test_figures_of_a_streamed_message_are_the_last_that_were_told() -> None:
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 10, "output_tokens": 1}}},
        {"type": "message_delta", "usage": {"input_tokens": None, "output_tokens": 7}},
        {"type": "message_delta", "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    body = b"".join(b"event: x\r\ndata: " + json.dumps(event).encode() + b"\r\n\r\n" for event in events)
    assert WIRES["anthropic_messages"].read(body, streamed=True).usage == Usage(input_fresh=10, output=9, requests=1)


def test_events_may_have_comments_many_data_lines_and_a_cut_end() -> None:
    body = b': keep-alive\n\ndata: {"a":\ndata: 1}\n\ndata:{"b": 2}\n\ndata: [DONE]\n\ndata: {"cut'
    assert parse_events(body) == [{"a": 1}, {"b": 2}]
    assert parse_events(b'data: {"a"\n\n') is None


WORDS = """type status usage error choices message response code input_tokens prompt_tokens output_tokens delta
completion_tokens input_tokens_details prompt_tokens_details cached_tokens finish_reason stop_reason"""
KEYS = st.sampled_from(WORDS.split()) | st.text(max_size=4)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=5),
    max_leaves=12,
)
NAMES = st.sampled_from(
    ["message_start", "message_delta", "message_stop", "error", "response.completed", "response.failed"]
)


@settings(max_examples=300, deadline=None)
@given(st.dictionaries(KEYS, JSON, max_size=6), NAMES, st.sampled_from(sorted(WIRES)))
def test_nothing_that_a_server_says_makes_the_reading_fail(reply: dict[str, Any], name: str, wire: str) -> None:
    body = json.dumps(reply).encode()
    WIRES[wire].read(body, streamed=False)
    WIRES[wire].read(b"data: " + json.dumps(reply | {"type": name}).encode() + b"\n\n", streamed=True)
    fault_of(400, body)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=200), st.sampled_from(sorted(WIRES)))
def test_bytes_that_are_no_reply_are_a_fault(body: bytes, wire: str) -> None:
    assert WIRES[wire].read(body, streamed=False).fault
    assert WIRES[wire].read(body, streamed=True).fault
    assert fault_of(502, body).kind == "server"


@pytest.mark.parametrize(
    ("wire", "event", "kind"),
    [
        ("openai_responses", {"type": "error", "code": "rate_limit_exceeded", "message": "busy"}, "rate_limit"),
        ("openai_responses", {"type": "error", "error": {"code": "server_error", "message": "busy"}}, "server"),
        ("openai_chat", {"error": {"code": 429, "message": "busy"}}, "rate_limit"),
        ("openai_chat", {"error": "busy"}, "server"),
        (
            "anthropic_messages",
            {"type": "error", "error": {"type": "overloaded_error", "message": "busy"}},
            "rate_limit",
        ),
        ("anthropic_messages", {"type": "error", "error": {"type": "api_error", "message": "busy"}}, "server"),
    ],
)
def test_an_error_event_has_the_class_of_its_names(wire: str, event: dict[str, Any], kind: str) -> None:
    body = b"data: " + json.dumps(event).encode() + b"\n\n"
    assert WIRES[wire].read(body, streamed=True).fault == Fault(kind, "busy")


def test_what_a_page_of_html_says_becomes_one_line() -> None:
    fault = fault_of(502, b"<html>\n<head><title>502</title></head>\n<body><h1>Bad Gateway</h1></body></html>")
    assert (fault.kind, fault.message) == ("server", "502 Bad Gateway")
