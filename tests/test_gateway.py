"""The gateway over its socket: models of a real loopback provider on every wire, and the shipped models."""

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import orjson
import pytest

from dkgi.gateway import ModelGateway
from dkgi.meter import Ledger
from dkgi.models.openai_responses import read_reply
from dkgi.pricing import dollars
from dkgi.recording import read_exchange
from dkgi.types import ModelError, Reply, RunStop, SetupError, Step, ToolCall, Usage
from dkgi.wires import parse_events
from tests.gateways import PATHS, PRICES, Asked, asking, wired
from tests.loopback import Loopback, Turn
from tests.models.providers import HISTORY, KEY, KINDS, Kind

CALL = ("bash", '{"command": "ls"}')
GOOD = Turn(text="hello", calls=[CALL], thinking="First a look.", input=1000, cached=200, output=50)
USED = Usage(800, 200, 0, 50, 0, 1)
BOUNDS = {"openai_responses": "max_output_tokens", "openai_chat": "max_completion_tokens", "anthropic_messages": "max_tokens"}  # fmt: skip


@pytest.fixture(autouse=True)
def _key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModelGateway]:
    with ModelGateway(tmp_path_factory.mktemp("run")) as gateway:
        yield gateway


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


def body(kind: Kind, *more: dict[str, Any], stream: bool = True) -> dict[str, Any]:
    whole = {"model": "model-1", "stream": stream, BOUNDS[kind]: 100}
    whole |= {"stream_options": {"include_usage": True}} if kind == "openai_chat" else {}
    return whole | {HISTORY[kind]: [{"role": "user", "content": "Which?"}, *more]}


def error(message: str, **names: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, **names}}


# ------------------------------------------------------------------- what passes


def test_a_body_passes_byte_for_byte_with_our_key_and_the_headers_that_its_wire_needs(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    spaced = orjson.dumps(body(kind), option=orjson.OPT_INDENT_2) + b"\n"
    needed = {"anthropic-version": "2023-06-01", "x-openai-internal-codex-responses-lite": "true"}
    with Loopback([GOOD]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        asked.post(spaced, **needed, **{"x-session": "17", "cookie": "a=b"})
        (request,) = server.requests
    assert request.raw == spaced
    assert request.path == PATHS[kind]
    assert KEY in request.headers["authorization"]
    assert {name: request.headers.get(name) for name in needed} == needed
    assert not {"x-session", "cookie"} & set(request.headers)
    assert asked.session.token not in str(request.headers)


@pytest.mark.parametrize("stream", [True, False])
def test_a_reply_comes_back_as_the_provider_sent_it_and_is_counted(
    kind: Kind, gateway: ModelGateway, tmp_path: Path, stream: bool
) -> None:
    with Loopback([GOOD]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        reply = asked.post(body(kind, stream=stream))
        raw = httpx2.post(server.root + PATHS[kind], json=body(kind, stream=stream))
    assert reply.status_code == 200
    assert reply.headers["content-type"] == raw.headers["content-type"]
    assert reply.content == raw.content
    assert (asked.session.turns, asked.session.usage, asked.session.fault) == (1, USED, None)
    assert asked.session.last is not None
    assert asked.session.last.text == "hello"
    assert asked.ledger.spent_usd == pytest.approx(dollars(USED, PRICES))
    assert [record.status for record in read_exchange(tmp_path)] == [200]


def test_small_pieces_are_merged_for_a_program_that_asks_so_and_the_record_keeps_them(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    long = replace(GOOD, text="word " * 2000, calls=[("bash", '{"command": "%s"}' % ("ls; " * 2000))])
    with Loopback([long]) as server, Asked.open(gateway, kind, server, tmp_path, merge=True) as asked:
        merged = parse_events(asked.post(body(kind)).content)
        (record,) = read_exchange(tmp_path)
    pieces = parse_events((record.reply or "").encode())
    assert pieces is not None
    assert merged is not None
    assert len(merged) < 40 < 300 < len(pieces)
    assert asked.session.last is not None
    assert asked.session.last.text == long.text
    assert orjson.dumps(merged).count(b"word ") == orjson.dumps(pieces).count(b"word ")


# ------------------------------------------------------------------- faults


FAULTS = [
    (Turn(status=500, body=error("oops", type="server_error")), "server", 6),
    (Turn(status=400, body=error("unknown field")), "bad_request", 1),
    (Turn(status=400, body=error("maximum context length is 8192", code="context_length_exceeded")), "context_overflow", 1),
    (Turn(status=400, body=error("filtered", code="content_filter")), "refused", 1),
    (replace(GOOD, fault="cut_inside"), "stream", 3),
    (replace(GOOD, fault="no_last_event"), "stream", 3),
    (replace(GOOD, fault="malformed"), "stream", 3),
    (Turn(fault="reset"), "connection", 6),
    (Turn(text="", output=1), "empty", 1),
    (Turn(status=401, body=error("bad key")), SetupError, 1),
    (Turn(status=404, body=error("no such model")), SetupError, 1),
    (Turn(status=429, body=error("You exceeded your current quota", code="insufficient_quota")), RunStop, 1),
]  # fmt: skip


@pytest.mark.parametrize(("turn", "ended", "requests"), FAULTS)
def test_a_fault_ends_the_session_in_one_400_by_the_exchanges_own_classes(
    kind: Kind, gateway: ModelGateway, tmp_path: Path, turn: Turn, ended: Any, requests: int
) -> None:
    with Loopback([turn]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        first, second = asked.post(body(kind)), asked.post(body(kind))
        assert len(server.requests) == requests
    fault = asked.session.fault
    assert fault is not None
    assert getattr(fault, "kind", type(fault)) == ended
    for refused in (first, second):
        assert refused.status_code == 400
        assert refused.json()["error"]["message"].endswith(str(fault))
        assert KEY not in refused.text
    assert asked.session.turns == 0
    assert asked.session.usage.requests == requests
    assert dollars(asked.session.usage, PRICES) == pytest.approx(asked.ledger.spent_usd, abs=1e-12)
    assert asked.ledger.held_usd == pytest.approx(0.0, abs=1e-12)


def test_a_provider_that_is_busy_for_a_while_is_asked_again_and_the_program_sees_nothing(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    busy = Turn(status=429, body=error("slow down", type="rate_limit_error"))
    with Loopback([busy, Turn(status=503), GOOD]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        assert asked.post(body(kind)).status_code == 200
        assert len(server.requests) == 3
    assert (asked.session.turns, asked.session.usage.requests) == (1, 3)


def test_a_silent_provider_is_left_at_the_deadline_and_counts_at_its_bound(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    started = time.monotonic()
    with (
        Loopback([Turn(fault="silence")]) as server,
        Asked.open(gateway, kind, server, tmp_path, seconds=1.0) as asked,
        threading_post(asked, body(kind)),
    ):
        wait_for(lambda: len(server.requests) == 1)
        under_way = asked.session.usage
        wait_for(lambda: asked.session.fault is not None)
    assert time.monotonic() - started < 4
    assert isinstance(asked.session.fault, ModelError)
    assert asked.session.fault.kind == "timeout"
    assert under_way == asked.session.usage
    assert (under_way.output, under_way.complete) == (100, False)


def threading_post(asked: Asked, content: dict[str, Any]) -> AbstractContextManager[object]:
    """Post while the block goes on."""
    from concurrent.futures import ThreadPoolExecutor

    pool = ThreadPoolExecutor(1)
    pool.submit(asked.post, content)
    return pool


def wait_for(met: Any, seconds: float = 10.0) -> None:
    end = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < end
        time.sleep(0.01)


def test_a_request_that_is_no_conversation_is_a_fault_and_never_sent(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    for content in (b"{", b"[]", b"{}", orjson.dumps({HISTORY[kind]: [1]}), orjson.dumps({HISTORY[kind]: 7})):
        with Loopback([GOOD]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
            assert asked.post(content).status_code == 400
            assert server.requests == []
        assert isinstance(asked.session.fault, ModelError)
        assert asked.session.fault.kind == "bad_request"


def test_a_request_past_64_mb_is_never_sent(gateway: ModelGateway, tmp_path: Path) -> None:
    with Loopback([GOOD]) as server, Asked.open(gateway, "openai_chat", server, tmp_path) as asked:
        assert asked.post(b" " * (65 * 2**20)).status_code == 400
        assert server.requests == []
    assert isinstance(asked.session.fault, ModelError)
    assert asked.session.fault.kind == "context_overflow"


# ------------------------------------------------------------------- sessions


def test_a_token_opens_its_own_session_alone_and_nothing_once_that_is_left(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    with (
        Loopback([GOOD]) as server,
        httpx2.Client(transport=httpx2.HTTPTransport(uds=str(gateway.socket))) as client,
    ):
        model = wired(kind, server.root, tmp_path, Ledger(cap_usd=5.0, prices=PRICES), seconds=20)
        with gateway.session(model, lambda _: None, max_turns=None, merge=False) as session:
            asked = Asked(session, client)
            assert asked.post(body(kind), token="0" * 32).status_code == 401
            assert asked.post(body(kind), path="/v1/models").status_code == 404
            headers = {"x-api-key": session.token}
            assert client.post("http://model" + PATHS[kind], json=body(kind), headers=headers).status_code == 200
        assert asked.post(body(kind)).status_code == 401
        assert len(server.requests) == 1


def test_a_session_speaks_its_models_wire_alone(kind: Kind, gateway: ModelGateway, tmp_path: Path) -> None:
    with Loopback([GOOD]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        for other in set(PATHS) - {kind}:
            assert asked.post(body(kind), path=PATHS[other]).status_code == 400
        assert server.requests == []
        assert asked.post(body(kind), path=PATHS[kind].removeprefix("/v1")).status_code == 200


def test_a_request_past_the_most_turns_is_not_sent(kind: Kind, gateway: ModelGateway, tmp_path: Path) -> None:
    with Loopback([GOOD]) as server, Asked.open(gateway, kind, server, tmp_path, max_turns=2) as asked:
        assert [asked.post(body(kind)).status_code for _ in range(3)] == [200, 200, 400]
        assert len(server.requests) == 2
    assert (asked.session.turns, asked.session.over_turns, asked.session.fault) == (2, True, None)


def test_sessions_do_not_wait_for_each_other(gateway: ModelGateway, tmp_path: Path) -> None:
    ledger = Ledger(cap_usd=5.0, prices=PRICES)
    with Loopback([replace(GOOD, delay_s=1.0)]) as server:
        codes: list[int] = []

        def one(number: int) -> None:
            (tmp_path / str(number)).mkdir()
            model = wired("openai_chat", server.root, tmp_path / str(number), ledger, seconds=20)
            with (
                gateway.session(model, lambda _: None, max_turns=None, merge=False) as session,
                httpx2.Client(transport=httpx2.HTTPTransport(uds=str(gateway.socket))) as client,
            ):
                codes.append(Asked(session, client).post(body("openai_chat")).status_code)

        threads = [threading.Thread(target=one, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert codes == [200] * 4
        assert server.most_at_once > 1


def test_closing_waits_for_nobody_and_no_step_is_told_afterwards(tmp_path: Path) -> None:
    threads = sum(thread.name == "gateway" for thread in threading.enumerate())
    with Loopback([replace(GOOD, delay_s=4.0)]) as server:
        with ModelGateway(tmp_path) as gateway, Asked.open(gateway, "openai_chat", server, tmp_path) as asked:
            pool = threading_post(asked, body("openai_chat"))
            wait_for(lambda: len(server.requests) == 1)
            path, before = asked.session.socket, list(asked.steps)
        assert asked.session.turns == 0
        assert not path.exists()
        assert sum(thread.name == "gateway" for thread in threading.enumerate()) == threads
        wait_for(lambda: asked.session.turns == 1)
    assert [step.type for step in before] == ["user"]
    assert asked.steps == before
    with pool:
        pass


# ------------------------------------------------------------------- steps


def results(kind: Kind, text: str, call_id: str = "call_0") -> list[dict[str, Any]]:
    """A call's way back to the model, after the reply with it."""
    call = {"id": call_id, "type": "function", "function": {"name": CALL[0], "arguments": CALL[1]}}
    items: dict[Kind, list[dict[str, Any]]] = {
        "openai_responses": [
            {"type": "function_call", "call_id": call_id, "name": CALL[0], "arguments": CALL[1]},
            {"type": "function_call_output", "call_id": call_id, "output": text},
        ],
        "openai_chat": [
            {"role": "assistant", "content": "hello", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": call_id, "content": text},
        ],
        "anthropic_messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": call_id, "name": "bash", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call_id, "content": text}]},
        ],
    }
    return items[kind]


def test_steps_are_the_conversation_in_the_order_of_first_appearance(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    with Loopback([GOOD, GOOD, Turn(text="done")]) as server, Asked.open(gateway, kind, server, tmp_path) as asked:
        asked.post(body(kind))
        assert asked.session.last is not None
        call = asked.session.last.calls[0]
        asked.post(body(kind, *results(kind, "nodes", call.id)))
        # The old result is cleared, and the server gives its second call the same id.
        again = [*results(kind, "[cleared]", call.id), *results(kind, "more", call.id)]
        asked.post(body(kind, *again, {"role": "user", "content": "And?"}))
    turn = [("reasoning_summary", GOOD.thinking, None), ("assistant", "hello", None), ("tool_call", CALL[1], "bash")]
    assert [(step.type, step.text, step.name) for step in asked.steps] == [
        ("user", "Which?", None),
        *turn,
        ("tool_result", "nodes", "bash"),
        *turn,
        ("tool_result", "more", "bash"),
        ("user", "And?", None),
        ("assistant", "done", None),
    ]
    usages = [step.usage for step in asked.steps if step.usage]
    assert usages == [USED, USED, Usage(1000, 0, 0, 50, 0, 1)]
    assert sum(usages, Usage()) == asked.session.usage


def test_a_step_that_cannot_be_kept_stops_the_request_before_it_is_sent(
    kind: Kind, gateway: ModelGateway, tmp_path: Path
) -> None:
    full = SetupError("disk full")

    def refuse(step: Step) -> None:
        raise full

    with Loopback([GOOD]) as server:
        model = wired(kind, server.root, tmp_path, Ledger(cap_usd=5.0, prices=PRICES), seconds=20)
        with (
            gateway.session(model, refuse, max_turns=None, merge=False) as session,
            httpx2.Client(transport=httpx2.HTTPTransport(uds=str(gateway.socket))) as client,
        ):
            assert Asked(session, client).post(body(kind)).status_code == 400
        assert server.requests == []
        assert session.fault is full


# ------------------------------------------------------------------- models of our own


def test_a_fault_of_our_own_is_kept_for_the_harness_to_raise(gateway: ModelGateway) -> None:
    class Broken:
        def reply(self, history: Any, tools: Any) -> Reply:
            raise ZeroDivisionError("a bug")

    with asking(gateway, Broken()) as asked:
        assert asked.post(body("openai_responses")).status_code == 400
    assert isinstance(asked.session.fault, ZeroDivisionError)


def test_what_a_failed_reply_of_our_own_model_cost_is_counted(gateway: ModelGateway) -> None:
    lost = Usage(input_fresh=9, requests=1)

    class Failing:
        def reply(self, history: Any, tools: Any) -> Reply:
            raise ModelError("busy", kind="server", usage=lost)

    with asking(gateway, Failing()) as asked:
        assert "server: busy" in asked.post(body("openai_responses")).text
    assert asked.session.usage == lost


def test_a_reply_of_our_own_model_reads_as_it_was_said(gateway: ModelGateway) -> None:
    said = Reply("I look.", (ToolCall("c1", *CALL),), Usage(10, 5, 0, 7, 2, 1), "First a look.")

    class Saying:
        def reply(self, history: Any, tools: Any) -> Reply:
            return said

    with asking(gateway, Saying()) as asked:
        events = parse_events(asked.post(body("openai_responses")).content)
        whole = asked.post(body("openai_responses", stream=False)).json()
    assert events is not None
    for answer in (events, whole):
        read = read_reply(answer)
        assert (read.text, read.calls, read.reasoning_summary) == (said.text, said.calls, said.reasoning_summary)
    assert whole["usage"]["input_tokens"] == 15
    assert asked.session.usage == said.usage + said.usage
