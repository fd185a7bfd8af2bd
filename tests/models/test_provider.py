"""What holds for the models of every wire, streamed or not, asked for real over a socket and by the SDKs."""

import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dkgi.context import Level3, compact
from dkgi.exchange import Exchange, Provider
from dkgi.models import open_models, openai_chat
from dkgi.models.provider import ProviderModel, ask
from dkgi.tools import run_call
from dkgi.types import Face, Item, Model, ModelError, Reply, RunStop, SetupError, ToolResult, Usage, UserText
from tests.loopback import Loopback, Request, Turn
from tests.models.providers import BASH, HISTORY, KEY, KINDS, Kind, open_model, provider, results
from tests.places import free_place

Asked = tuple[Model, Loopback]
Ask = Callable[..., Asked]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def asked(request: pytest.FixtureRequest, kind: Kind, tmp_path: Path) -> Iterator[Ask]:
    """Opens a model of each wire, streamed and not, on a server that answers with the given turns."""
    servers: list[Loopback] = []

    def open_asked(*turns: Turn, **changes: Any) -> Asked:
        server = Loopback(turns)
        servers.append(server.__enter__())
        return open_model(kind, server, tmp_path, stream=request.param, **changes), server

    yield open_asked
    for server in servers:
        server.__exit__()


LS, WC = ("bash", '{"command": "ls"}'), ("bash", '{"command": "wc -l schema.json"}')
ANSWER = Turn(text='{"node_ids": [4]}')


def converse(model: Model, turns: int, prompt: str = "Which films?") -> list[Item]:
    """Ask `turns` times, with a result for each call in between."""
    history: list[Item] = [UserText(prompt)]
    for _ in range(turns):
        reply = model.reply(history, [BASH])
        history += [reply, *results(reply)]
    return history


def test_a_conversation_of_several_calls_a_turn_ends_with_the_answer(asked: Ask) -> None:
    model, server = asked(Turn(text="Looking.", thinking="Films are nodes.", calls=[LS, WC]), Turn(calls=[LS]), ANSWER)
    history = converse(model, 3)
    first, second, last = (item for item in history if isinstance(item, Reply))
    assert (first.text, first.reasoning_summary, first.stop) == ("Looking.", "Films are nodes.", "end")
    assert [(call.name, call.arguments) for call in first.calls] == [LS, WC]
    assert len({call.id for call in first.calls}) == 2
    assert [(call.name, call.arguments) for call in second.calls] == [LS]
    assert (last.text, last.calls) == ('{"node_ids": [4]}', ())
    assert len(server.requests) == 3


def test_tokens_come_in_disjoint_buckets(asked: Ask) -> None:
    model, _ = asked(Turn(text="hi", input=100, cached=60, written=10, output=30, reasoning=20))
    (_, reply) = converse(model, 1)
    assert isinstance(reply, Reply)
    assert reply.usage == Usage(30, 60, 10, 30, reasoning=20, requests=1)


def test_the_bytes_of_a_request_begin_with_those_of_the_request_before(asked: Ask, kind: Kind) -> None:
    model, server = asked(Turn(text="Straße", thinking="t", calls=[LS, WC]), Turn(calls=[LS]), Turn(calls=[WC]), ANSWER)
    converse(model, 4, "Where is the café?")
    for earlier, later in zip(server.requests, server.requests[1:], strict=False):
        last = json.dumps(earlier.body[HISTORY[kind]][-1], separators=(",", ":"), ensure_ascii=False).encode()
        end = earlier.raw.index(last) + len(last)
        assert later.raw[:end] == earlier.raw[:end]
        assert later.raw[end : end + 1] == b","


def test_the_rest_of_a_request_is_the_same_at_every_turn_and_attempt(asked: Ask, kind: Kind, tmp_path: Path) -> None:
    model, server = asked(Turn(calls=[LS]), Turn(calls=[LS]), ANSWER)
    converse(model, 2)
    converse(open_model(kind, server, tmp_path, stream=server.requests[0].body["stream"]), 1)
    rests = [{key: value for key, value in r.body.items() if key != HISTORY[kind]} for r in server.requests]
    assert rests[0] == rests[1] == rests[2]
    assert server.requests[0].raw == server.requests[2].raw


def test_malformed_arguments_are_passed_on_as_they_are_and_teach(kind: Kind, tmp_path: Path) -> None:
    with Loopback([Turn(calls=[("bash", '{"command": "l')]), ANSWER]) as server:
        model = open_model(kind, server, tmp_path)
        (_, reply, _) = history = converse(model, 1)
        assert isinstance(reply, Reply)
        (call,) = reply.calls
        assert call.arguments == '{"command": "l'
        output = run_call(call, {"bash": _Bash()}, timeout_s=1)
        assert output.is_error
        assert "JSON" in output.text
        model.reply(history, [BASH])
        assert server.requests[1].raw.replace(b"\\", b"").count(b'{"command": "l') == 1


class _Bash:
    spec = BASH

    def call(self, args: Any, *, timeout_s: float) -> Any:
        raise AssertionError("malformed arguments reached the tool")


@pytest.mark.parametrize(
    ("turn", "stop"),
    [
        (Turn(text="I will not.", stop="refusal"), "refused"),
        (Turn(text="Half of", stop="filter"), "refused"),
        (Turn(text="", stop="filter"), "refused"),
        (Turn(text='{"node_ids": [4', stop="length"), "length"),
        (Turn(thinking="So much to think of", stop="length"), "length"),
    ],
)
def test_a_reply_that_does_not_end_well_says_so(asked: Ask, turn: Turn, stop: str) -> None:
    model, _ = asked(turn)
    (_, reply) = converse(model, 1)
    assert isinstance(reply, Reply)
    assert (reply.stop, reply.text) == (stop, turn.text)


@pytest.mark.parametrize("turn", [Turn(), Turn(text=" \n"), Turn(thinking="Hm.")])
def test_a_reply_that_says_nothing_is_an_error_that_is_paid_for(asked: Ask, turn: Turn) -> None:
    model, server = asked(turn)
    with pytest.raises(ModelError) as caught:
        converse(model, 1)
    assert (caught.value.kind, caught.value.usage) == ("empty", Usage(1000, output=50, requests=1))
    assert len(server.requests) == 1


def test_errors_of_the_exchange_come_through_the_sdk_as_they_are(asked: Ask) -> None:
    error = {"error": {"message": "no such field", "type": "invalid_request_error"}}
    model, server = asked(Turn(status=400, body=error))
    with pytest.raises(ModelError, match="no such field") as caught:
        converse(model, 1)
    assert (caught.value.kind, caught.value.usage.requests) == ("bad_request", 1)
    assert len(server.requests) == 1


def test_a_refused_key_ends_the_run_and_names_its_variable(asked: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    error = {"error": {"message": f"{KEY} is not a key", "type": "authentication_error"}}
    model, server = asked(Turn(status=401, body=error), key_variable="DKGI_TEST_KEY")
    with pytest.raises(SetupError, match="DKGI_TEST_KEY") as caught:
        converse(model, 1)
    assert KEY not in str(caught.value)
    assert KEY in server.requests[0].headers["authorization"]


def test_a_used_up_quota_ends_the_run(asked: Ask) -> None:
    model, _ = asked(Turn(status=429, body={"error": {"message": "pay first", "code": "insufficient_quota"}}))
    with pytest.raises(RunStop, match="pay first"):
        converse(model, 1)


def test_a_missing_key_is_found_before_any_request(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", " ")
    with pytest.raises(SetupError, match="DKGI_TEST_KEY is not set"):
        open_models(provider(kind, key_variable="DKGI_TEST_KEY"))


@pytest.mark.parametrize(
    ("address", "lite"), [("https://api.openai.com/v1", True), ("https://api.openai.com.example.org/v1", False)]
)
def test_a_program_sees_the_models_own_figures_and_codexs_short_form_is_for_openai_alone(
    kind: Kind, tmp_path: Path, address: str, lite: bool
) -> None:
    model = open_models(provider(kind, base_url=address)).model(free_place(folder=tmp_path))
    assert isinstance(model, ProviderModel)
    assert model.face == Face(kind, "model-1", "high", 100_000, 2_000, lite and kind == "openai_responses")


@pytest.mark.parametrize("variable", ["OPENAI_BASE_URL", "ANTHROPIC_BASE_URL"])
def test_the_environment_does_not_move_a_model(asked: Ask, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(variable, "http://127.0.0.1:9/elsewhere")
    model, server = asked(ANSWER)
    converse(model, 1)
    assert len(server.requests) == 1


@pytest.mark.parametrize("content", [b'{"choices": [{}]}', b"{}", b'{"choices": [{"message": 7}]}'])
def test_a_reply_of_an_unknown_form_is_an_error_that_is_paid_for(content: bytes, tmp_path: Path) -> None:
    transport = Exchange(Provider("openai_chat", None, 10)).transport(free_place(folder=tmp_path))
    transport.usage = Usage(7, requests=1)
    raw = httpx2.Response(200, json=json.loads(content))
    with pytest.raises(ModelError) as caught:
        ask(transport, lambda: raw, lambda answer: openai_chat.read_reply(answer, 0))
    assert (caught.value.kind, caught.value.usage) == ("malformed", Usage(7, requests=1))


def test_a_server_may_stream_or_not_whatever_it_was_asked_for(tmp_path: Path) -> None:
    transport = Exchange(Provider("openai_chat", None, 10)).transport(free_place(folder=tmp_path))
    chunk = b'data: {"choices": [{"delta": {"content": "hi"}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    streamed = httpx2.Response(200, headers={"content-type": "text/event-stream; charset=utf-8"}, content=chunk)
    whole = httpx2.Response(200, json={"choices": [{"message": {"content": "hi"}}]})
    for response in (streamed, whole):
        assert ask(transport, partial(_same, response), lambda answer: openai_chat.read_reply(answer, 0)).text == "hi"


def _same(response: httpx2.Response) -> httpx2.Response:
    return response


@pytest.mark.parametrize(("keep_turns", "cleared_results"), [(0, 3), (1, 2)])
def test_a_history_whose_old_results_were_cleared_is_still_whole(
    asked: Ask, kind: Kind, keep_turns: int, cleared_results: int
) -> None:
    model, server = asked(Turn(thinking="a", calls=[LS, WC]), Turn(thinking="b", calls=[LS]), Turn(calls=[WC]), ANSWER)
    history = converse(model, 3)
    cleared = compact(history, Level3(clear_above=1, keep_turns=keep_turns))
    assert [item.text for item in cleared if isinstance(item, ToolResult)].count("[cleared]") == cleared_results
    assert model.reply(cleared, [BASH]).text == ANSWER.text
    assert _pairs(kind, server.requests[-1]) == _calls_and_results(history)


def _calls_and_results(history: Sequence[Item]) -> list[str]:
    found: list[str] = []
    for item in history:
        if isinstance(item, Reply):
            found += [f"call {call.id}" for call in item.calls]
        elif isinstance(item, ToolResult):
            found.append(f"result {item.call_id}")
    return found


def _pairs(kind: Kind, request: Request) -> list[str]:
    """The calls and results of a request in their order, as each wire writes them."""
    found: list[str] = []
    for entry in request.body[HISTORY[kind]]:
        if kind == "openai_chat":
            found += [f"call {call['id']}" for call in entry.get("tool_calls", [])]
            found += [f"result {entry['tool_call_id']}"] if entry["role"] == "tool" else []
            continue
        for block in [entry] if kind == "openai_responses" else entry["content"]:
            if block.get("type") in ("function_call", "tool_use"):
                found.append(f"call {block.get('call_id') or block['id']}")
            elif block.get("type") in ("function_call_output", "tool_result"):
                found.append(f"result {block.get('call_id') or block['tool_use_id']}")
    return found


def test_where_no_tools_are_offered_a_request_has_none(asked: Ask) -> None:
    model, server = asked(ANSWER)
    model.reply([UserText("q")], [])
    assert "tools" not in server.requests[0].body


def test_arguments_stay_the_text_that_the_model_wrote(kind: Kind, tmp_path: Path) -> None:
    written = '{ "command":"ls" }'
    with Loopback([Turn(calls=[("bash", written)]), ANSWER]) as server:
        (_, reply, _) = converse(open_model(kind, server, tmp_path), 1)
    assert isinstance(reply, Reply)
    assert [call.arguments for call in reply.calls] == [written]
