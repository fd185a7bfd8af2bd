"""Models of our own behind the Responses wire, in the forms in which programs send their requests."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import openai
import orjson
import pytest

from dkgi.models.openai_responses import read_reply
from dkgi.models.rendered import Rendered
from dkgi.types import Item, ModelError, Reply, ToolCall, ToolResult, ToolSpec, Usage, UserText
from dkgi.wires import WIRES, parse_events

LOOK = ToolCall("c1", "bash", '{"command": "ls"}')
FUNCTION = {"type": "function", "name": "bash", "description": "Runs.", "parameters": {"type": "object"}, "strict": False}  # fmt: skip
GRAPH = {"type": "namespace", "name": "mcp__kg", "tools": [{"type": "function", "name": "search", "parameters": {}}]}
SCRIPT = {"type": "custom", "name": "exec", "description": "Runs JavaScript.", "format": {"type": "grammar"}}


@dataclass
class Saying:
    """Says the same each time and keeps what it was told."""

    said: Reply
    history: Sequence[Item] = ()
    tools: Sequence[ToolSpec] = field(default_factory=list)

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        self.history, self.tools = history, tools
        return self.said


def ask(model: Saying, *items: dict[str, Any], tools: Sequence[Any] = (), stream: bool = True) -> Any:
    """The items of the response, as its stream's last event has them."""
    request = {"input": [{"role": "user", "content": "Which?"}, *items], "tools": tools, "stream": stream}
    passed = Rendered(model).forward(orjson.dumps(request), {})
    reading = WIRES["openai_responses"].read(passed.body, streamed=stream)
    assert reading.fault is None
    if not stream:
        return orjson.loads(passed.body)["output"]
    events = parse_events(passed.body)
    assert events is not None
    done = [event["item"] for event in events if event["type"] == "response.output_item.done"]
    assert done == events[-1]["response"]["output"]
    return done


@pytest.mark.parametrize("stream", [True, False])
def test_a_function_is_called_by_its_name_and_a_namespaced_one_in_its_namespace(stream: bool) -> None:
    calls = (LOOK, ToolCall("c2", "search", "{broken"), ToolCall("c3", "unknown", "{}"))
    first, second, third = ask(Saying(Reply(calls=calls)), tools=[FUNCTION, GRAPH], stream=stream)
    assert (first["type"], first["name"], first["arguments"]) == ("function_call", "bash", '{"command": "ls"}')
    assert "namespace" not in first
    assert (second["namespace"], second["name"], second["arguments"]) == ("mcp__kg", "search", "{broken")
    assert third["name"] == "unknown"


@pytest.mark.parametrize(
    ("arguments", "text"), [('{"input": "text(1)"}', "text(1)"), ("text(1)", "text(1)"), ('{"input": 7}', '{"input": 7}')]
)  # fmt: skip
def test_a_tool_without_a_schema_gets_one_text(arguments: str, text: str) -> None:
    model = Saying(Reply(calls=(ToolCall("c1", "exec", arguments),)))
    (call,) = ask(model, tools=[SCRIPT])
    assert (call["type"], call["input"]) == ("custom_tool_call", text)
    assert model.tools[0].parameters["required"] == ["input"]
    assert read_reply({"output": [call]}).calls == (ToolCall("c1", "exec", text),)


def test_the_tools_of_the_short_form_are_found_in_its_first_item() -> None:
    model = Saying(Reply("hello"))
    lite = {"type": "additional_tools", "role": "developer", "tools": [SCRIPT, GRAPH, FUNCTION]}
    ask(model, lite)
    assert [tool.name for tool in model.tools] == ["exec", "search", "bash"]
    assert model.history == [UserText("Which?")]


def test_the_history_is_what_was_told_and_said_and_no_systems_word() -> None:
    said = Reply("I look.", (LOOK, ToolCall("c2", "exec", '{"input": "text(1)"}')), reasoning_summary="First a look.")
    items = ask(Saying(said), tools=[FUNCTION, SCRIPT])
    model = Saying(Reply("done"))
    ask(
        model,
        {"role": "developer", "content": "You are Pi."},
        *items,
        {"type": "function_call_output", "call_id": "c1", "output": "nodes"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": t} for t in "ab"]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "And?"}]},
    )  # fmt: skip
    prompt, reply, *rest = model.history
    assert prompt == UserText("Which?")
    assert isinstance(reply, Reply)
    assert (reply.text, reply.reasoning_summary) == (said.text, said.reasoning_summary)
    assert reply.calls == (LOOK, ToolCall("c2", "exec", "text(1)"))
    assert rest == [ToolResult("c1", "bash", "nodes"), ToolResult("c2", "exec", "ab"), UserText("And?")]


def test_the_stream_is_one_that_openais_own_client_reads(tmp_path: Any) -> None:
    import httpx2

    model = Rendered(Saying(Reply("I look.", (LOOK,), Usage(10, 5, 2, 7, 3, 1), "First a look.")))

    def answer(request: httpx2.Request) -> httpx2.Response:
        passed = model.forward(request.read(), {})
        return httpx2.Response(200, headers={"content-type": passed.content_type}, content=passed.body)

    client = openai.OpenAI(api_key="none", http_client=httpx2.Client(transport=httpx2.MockTransport(answer)))
    with client.responses.stream(model="local", input="Which?") as stream:
        kinds = [event.type for event in stream]
        final = stream.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert final.output_text == "I look."
    assert [item.type for item in final.output] == ["reasoning", "message", "function_call"]
    assert final.usage is not None
    assert (final.usage.input_tokens, final.usage.output_tokens) == (17, 7)
    assert final.usage.input_tokens_details.cached_tokens == 5


def test_a_reply_that_was_cut_or_refused_says_so() -> None:
    for stop in ("length", "refused"):
        passed = Rendered(Saying(Reply("No", stop=stop))).forward(b'{"input": "Which?", "stream": true}', {})
        assert read_reply(parse_events(passed.body) or []).stop == stop


@pytest.mark.parametrize("body", [b"{", b"{}", b"[]", b'{"input": [{"type": "function_call"}]}', b'{"input": [7]}'])
def test_a_request_of_another_form_is_told_as_a_bad_one(body: bytes) -> None:
    with pytest.raises(ModelError) as caught:
        Rendered(Saying(Reply("hello"))).forward(body, {})
    assert caught.value.kind == "bad_request"
