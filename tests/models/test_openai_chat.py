"""The Chat Completions wire: what is sent, and what becomes of what all kinds of servers answer."""

import json
from pathlib import Path
from typing import Any

import pytest

from dkgi.models.openai_chat import read_reply, request
from dkgi.types import Reply, ToolResult, UserText
from tests.loopback import Loopback, Turn
from tests.models.providers import BASH, open_model, provider, results


def whole(message: dict[str, Any], finish: str = "stop") -> Reply:
    return read_reply({"choices": [{"index": 0, "message": message, "finish_reason": finish}]}, 7)


def streamed(*deltas: dict[str, Any]) -> Reply:
    chunks = [{"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    return read_reply([*chunks, {"choices": []}], 7)


def piece(arguments: Any, **more: Any) -> dict[str, Any]:
    return {"tool_calls": [{"type": "function", "function": {"name": "bash", "arguments": arguments}, **more}]}


def pairs(reply: Reply) -> list[tuple[str, str]]:
    return [(call.id, call.arguments) for call in reply.calls]


def test_a_request_is_as_the_wire_wants_it() -> None:
    body = request(provider("openai_chat"), [UserText("q"), ToolResult("call_1", "bash", "out", True)], [BASH])
    assert body == {
        "model": "model-1",
        "messages": [
            {"role": "user", "content": "q"},
            {"role": "tool", "tool_call_id": "call_1", "content": "out"},
        ],
        "max_tokens": 2_000,
        "stream": True,
        "stream_options": {"include_usage": True},
        "tools": [
            {
                "type": "function",
                "function": {"name": "bash", "description": "Runs a command.", "parameters": BASH.parameters},
            }
        ],
        "reasoning_effort": "high",
    }


def test_a_plain_server_gets_no_field_that_it_may_not_know() -> None:
    body = request(provider("openai_chat", effort=None, stream=False), [UserText("q")], [])
    assert set(body) == {"model", "messages", "max_tokens", "stream"}


@pytest.mark.parametrize("stream", [True, False])
def test_a_message_goes_back_with_its_calls_and_shown_reasoning(stream: bool, tmp_path: Path) -> None:
    with Loopback([Turn(thinking="Hm.", calls=[("bash", '{"command": "ls"}')]), Turn(text="done")]) as server:
        model = open_model("openai_chat", server, tmp_path, stream=stream)
        reply = model.reply([UserText("q")], [BASH])
        model.reply([UserText("q"), reply, *results(reply)], [BASH])
        sent = server.requests[1].body["messages"][1]
    function = {"name": "bash", "arguments": '{"command": "ls"}'}
    assert sent == {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Hm.",
        "tool_calls": [{"id": "call_0", "type": "function", "function": function}],
    }


@pytest.mark.parametrize("arguments", ['{"command": "l', "", "ls", '["ls"]', "[" * 100_000])
def test_broken_arguments_go_back_as_an_object_that_shows_them(arguments: str) -> None:
    reply = whole({"role": "assistant", "content": None} | piece(arguments, id="a"))
    assert pairs(reply) == [("a", arguments)]
    sent = json.loads(reply.native["tool_calls"][0]["function"]["arguments"])
    assert sent == {"INVALID_JSON": arguments}


def test_arguments_as_an_object_become_its_text() -> None:
    assert pairs(whole({"content": ""} | piece({"command": "ls"}, id="a"))) == [("a", '{"command": "ls"}')]
    assert pairs(streamed(piece({"command": "ls"}, index=0, id="a"))) == [("a", '{"command": "ls"}')]


def test_missing_arguments_teach_and_do_not_crash() -> None:
    assert pairs(whole({"content": ""} | piece(None, id="a"))) == [("a", "null")]


def test_calls_without_an_id_get_one_of_their_own() -> None:
    parts = [*piece("{}", id="")["tool_calls"], *piece("{}")["tool_calls"]]
    reply = whole({"content": "", "tool_calls": parts})
    assert [call.id for call in reply.calls] == ["call_7_0", "call_7_1"]
    assert [call["id"] for call in reply.native["tool_calls"]] == ["call_7_0", "call_7_1"]


def test_calls_that_all_have_number_0_stay_apart_by_their_ids() -> None:
    reply = streamed(piece('{"a": 1}', index=0, id="a"), piece('{"b": 2}', index=0, id="b"))
    assert pairs(reply) == [("a", '{"a": 1}'), ("b", '{"b": 2}')]


def test_a_name_and_id_that_come_with_every_piece_count_once() -> None:
    reply = streamed(piece('{"a"', index=0, id="a"), piece(": 1}", index=0, id="a"))
    assert pairs(reply) == [("a", '{"a": 1}')]
    assert reply.calls[0].name == "bash"


def test_calls_whose_pieces_mix_are_told_apart_by_number() -> None:
    reply = streamed(
        piece("", index=0, id="a"), piece("", index=1, id="b"), piece('{"a": 1}', index=0), piece('{"b": 2}', index=1)
    )
    assert pairs(reply) == [("a", '{"a": 1}'), ("b", '{"b": 2}')]


def test_a_message_without_content_goes_back_with_empty_content() -> None:
    assert whole({"role": "assistant", "content": None, "tool_calls": None}).native == {
        "role": "assistant",
        "content": "",
    }
    assert streamed({"role": "assistant", "content": None}).native == {"role": "assistant", "content": ""}


def test_reasoning_goes_back_under_the_name_it_came_by() -> None:
    assert whole({"content": "hi", "reasoning": "Hm."}).native["reasoning"] == "Hm."
    assert streamed({"reasoning": "H"}, {"reasoning": "m."}, {"content": "hi"}).reasoning_summary == "Hm."
