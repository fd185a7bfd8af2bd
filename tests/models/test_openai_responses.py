"""The Responses wire: what is sent, and what becomes of what comes."""

from pathlib import Path
from typing import Any

import pytest

from dkgi.models.openai_responses import read_reply, request
from dkgi.types import Item, ToolResult, UserText
from tests.loopback import Loopback, Turn
from tests.models.providers import BASH, open_model, provider, results

REASONING = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "call_id": "call_1",
    "name": "bash",
    "arguments": "{}",
    "status": "completed",
}


def message(text: str, **more: Any) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    return {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": [part], **more}


def response(*items: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"id": "resp_1", "object": "response", "status": "completed", "output": list(items), **more}


def test_a_request_is_as_the_wire_wants_it() -> None:
    body = request(provider("openai_responses"), [UserText("q"), ToolResult("call_1", "bash", "out", True)], [BASH])
    assert len(body.pop("prompt_cache_key")) == 32
    assert body == {
        "model": "model-1",
        "input": [
            {"role": "user", "content": "q"},
            {"type": "function_call_output", "call_id": "call_1", "output": "out"},
        ],
        "max_output_tokens": 2_000,
        "store": False,
        "stream": True,
        "tools": [
            {
                "type": "function",
                "name": "bash",
                "description": "Runs a command.",
                "parameters": BASH.parameters,
                "strict": False,
            }
        ],
        "reasoning": {"effort": "high", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
    }


def test_a_model_without_effort_is_not_asked_to_reason() -> None:
    body = request(provider("openai_responses", effort=None), [UserText("q")], [])
    assert not {"reasoning", "include", "tools"} & set(body)


def test_the_cache_key_is_the_prompts() -> None:
    histories: list[list[Item]] = [[UserText("a")], [UserText("a"), ToolResult("1", "bash", "out")], [UserText("b")]]
    keys = [request(provider("openai_responses"), history, [BASH])["prompt_cache_key"] for history in histories]
    assert keys[0] == keys[1] != keys[2]


@pytest.mark.parametrize("stream", [True, False])
def test_items_go_back_unchanged_with_their_encrypted_reasoning(stream: bool, tmp_path: Path) -> None:
    turn = Turn(text="Looking.", thinking="Hm.", calls=[("bash", '{"command": "ls'), ("bash", "{}")])
    with Loopback([turn, Turn(text="done")]) as server:
        model = open_model("openai_responses", server, tmp_path, stream=stream)
        reply = model.reply([UserText("q")], [BASH])
        model.reply([UserText("q"), reply, *results(reply)], [BASH])
        sent = server.requests[1].body["input"]
    assert [item["type"] for item in sent[1:5]] == ["reasoning", "message", "function_call", "function_call"]
    assert sent[1]["encrypted_content"].startswith("gAAAA")
    assert sent[1]["summary"] == [{"type": "summary_text", "text": "Hm."}]
    assert (sent[3]["id"], sent[3]["arguments"]) == ("fc_0", '{"command": "ls')


def test_the_encrypted_reasoning_of_an_items_own_last_event_counts() -> None:
    final = response(REASONING | {"encrypted_content": "half"}, CALL)
    whole = REASONING | {"encrypted_content": "whole"}
    events: list[dict[str, Any]] = [
        {"type": "response.output_item.done", "output_index": 0, "item": whole},
        {"type": "response.completed", "response": final},
        {"type": "response.completed", "response": final},
    ]
    reply = read_reply(events)
    assert [item["type"] for item in reply.native] == ["reasoning", "function_call"]
    assert reply.native[0]["encrypted_content"] == "whole"


def test_unknown_fields_of_an_item_go_back_too() -> None:
    reply = read_reply(response(message("hi", phase="final_answer", new_field=[1])))
    assert (reply.native[0]["phase"], reply.native[0]["new_field"]) == ("final_answer", [1])


def test_of_several_messages_the_last_one_answers() -> None:
    reply = read_reply(response(REASONING, message("Now I know."), message('{"node_ids": [1]}')))
    assert reply.text == '{"node_ids": [1]}'
    assert reply.reasoning_summary == "Hm.\n\nNow I know."
