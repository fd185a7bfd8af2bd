"""The Messages wire: what is sent, and what becomes of what comes."""

from pathlib import Path
from typing import Any

import pytest

from dkgi.context import Level3, compact
from dkgi.models.anthropic_messages import encode, read_reply, request
from dkgi.types import Item, Reply, ToolResult, UserText
from tests.loopback import Loopback, Turn
from tests.models.providers import BASH, open_model, provider, results

THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "bash", "input": {"command": "ls"}}


def said(history: list[Item], *blocks: dict[str, Any]) -> Reply:
    """A reply of these blocks to a history."""
    return Reply(native={"content": list(blocks), "before": encode(history)[1]})


def kinds(message: dict[str, Any]) -> list[str]:
    return [block["type"] for block in message["content"]]


def test_a_request_is_as_the_wire_wants_it() -> None:
    history: list[Item] = [UserText("q")]
    history += [said(history, THINKING, CALL), ToolResult("toolu_1", "bash", "out", True)]
    body = request(provider("anthropic_messages"), encode(history)[0], [BASH])
    result = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "out", "is_error": True}
    assert body == {
        "model": "model-1",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "q"}]},
            {"role": "assistant", "content": [THINKING, CALL]},
            {"role": "user", "content": [result]},
        ],
        "max_tokens": 2_000,
        "cache_control": {"type": "ephemeral"},
        "stream": True,
        "tools": [{"name": "bash", "description": "Runs a command.", "input_schema": BASH.parameters}],
        "thinking": {"type": "adaptive", "display": "summarized"},
        "output_config": {"effort": "high"},
    }


def test_a_model_without_effort_is_not_asked_to_think() -> None:
    body = request(provider("anthropic_messages", effort=None), encode([UserText("q")])[0], [])
    assert not {"thinking", "output_config", "tools"} & set(body)


def test_all_results_of_a_turn_are_one_message() -> None:
    history: list[Item] = [UserText("q")]
    history.append(said(history, CALL, CALL | {"id": "toolu_2"}))
    history += [ToolResult("toolu_1", "bash", "a"), ToolResult("toolu_2", "bash", "b")]
    messages, _ = encode(history)
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert [block["tool_use_id"] for block in messages[2]["content"]] == ["toolu_1", "toolu_2"]


@pytest.mark.parametrize("stream", [True, False])
def test_thinking_goes_back_unchanged_with_its_signature(stream: bool, tmp_path: Path) -> None:
    with Loopback([Turn(thinking="Hm.", calls=[("bash", '{"command": "ls"}')]), Turn(text="done")]) as server:
        model = open_model("anthropic_messages", server, tmp_path, stream=stream)
        reply = model.reply([UserText("q")], [BASH])
        model.reply([UserText("q"), reply, *results(reply)], [BASH])
        sent = server.requests[1].body["messages"][1]["content"]
    assert sent == [
        {"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmF0dXJl"},
        {"type": "tool_use", "id": "toolu_0", "name": "bash", "input": {"command": "ls"}},
    ]


def test_thinking_is_left_out_after_a_result_that_was_cleared_and_comes_back_with_the_next_reply() -> None:
    history: list[Item] = [UserText("q")]
    for number in range(3):
        call = CALL | {"id": f"toolu_{number}"}
        redacted = {"type": "redacted_thinking", "data": "x"}
        history += [said(history, THINKING, redacted, call), ToolResult(f"toolu_{number}", "bash", f"out {number}")]
    whole = [kinds(message) for message in encode(history)[0] if message["role"] == "assistant"]
    assert whole == [["thinking", "redacted_thinking", "tool_use"]] * 3
    cleared = compact(history, Level3(clear_above=1, keep_turns=1))
    # The first result is cleared: what was thought before it still holds.
    sent = [kinds(message) for message in encode(cleared)[0] if message["role"] == "assistant"]
    assert sent == [["thinking", "redacted_thinking", "tool_use"], ["tool_use"], ["tool_use"]]
    after = [*cleared, said(cleared, THINKING, CALL | {"id": "toolu_3"})]
    assert kinds(encode(after)[0][-1]) == ["thinking", "tool_use"]


def test_blocks_that_the_provider_would_refuse_do_not_go_back() -> None:
    history: list[Item] = [UserText("q")]
    cut = {"type": "thinking", "thinking": "So", "signature": ""}
    history.append(said(history, {"type": "text", "text": ""}, CALL, cut))
    assert kinds(encode(history)[0][1]) == ["tool_use"]


def test_broken_arguments_go_back_as_an_object_that_shows_them(tmp_path: Path) -> None:
    with Loopback([Turn(calls=[("bash", '{"command": "l')]), Turn(text="done")]) as server:
        model = open_model("anthropic_messages", server, tmp_path)
        reply = model.reply([UserText("q")], [BASH])
        model.reply([UserText("q"), reply, *results(reply)], [BASH])
        (block,) = server.requests[1].body["messages"][1]["content"]
    assert block["input"] == {"INVALID_JSON": '{"command": "l'}


def events(*deltas: tuple[int, dict[str, Any]], blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A stream that begins all blocks and then says the deltas."""
    return [
        *(
            {"type": "content_block_start", "index": index, "content_block": block}
            for index, block in enumerate(blocks)
        ),
        {"type": "ping"},
        *({"type": "content_block_delta", "index": index, "delta": delta} for index, delta in deltas),
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {}},
    ]


def test_blocks_are_told_apart_by_number() -> None:
    text, call = {"type": "text", "text": ""}, CALL | {"input": {}}
    reply = read_reply(
        events(
            (1, {"type": "input_json_delta", "partial_json": '{"a"'}),
            (0, {"type": "text_delta", "text": "Look"}),
            (1, {"type": "input_json_delta", "partial_json": ": 1}"}),
            (0, {"type": "text_delta", "text": "ing."}),
            blocks=[text, call],
        )
    )
    assert reply.text == "Looking."
    assert [call.arguments for call in reply.calls] == ['{"a": 1}']
    assert reply.native[1]["input"] == {"a": 1}


def test_a_call_without_arguments_has_an_empty_object() -> None:
    reply = read_reply(events((0, {"type": "input_json_delta", "partial_json": ""}), blocks=[CALL | {"input": {}}]))
    assert [call.arguments for call in reply.calls] == ["{}"]
    assert reply.native[0]["input"] == {}
