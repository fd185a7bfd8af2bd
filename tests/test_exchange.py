"""The exchange against a real server on a loopback socket: every fault of every wire, streamed and not."""

import socket
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import openai
import pytest

from dkgi.exchange import Exchange, Provider, Transport
from dkgi.meter import Ledger
from dkgi.pricing import dollars
from dkgi.recording import read_exchange, usage_of_attempt
from dkgi.types import ModelError, Place, Prices, RunStop, SetupError, Usage
from tests.loopback import Fault, Loopback, Turn

PATHS = {
    "openai_responses": "/v1/responses",
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
}
BODIES: dict[str, dict[str, Any]] = {
    "openai_responses": {"input": [{"role": "user", "content": "hello"}], "max_output_tokens": 100},
    "openai_chat": {"messages": [{"role": "user", "content": "hello"}], "max_completion_tokens": 100},
    "anthropic_messages": {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 100},
}
CALL = ("bash", '{"command": "rg -n seizure nodes"}')
PRICES = Prices(input=1.0, cached_input=0.1, cache_write=1.0, output=10.0)
KEY = "sk-fake-0123456789abcdef"
GOOD = Turn(text="hello", calls=[CALL], input=1000, cached=200, output=50)
GOOD_USD = (800 * 1.0 + 200 * 0.1 + 50 * 10.0) / 1e6
EACH = [(wire, streamed) for wire in PATHS for streamed in (True, False)]


@dataclass
class Bench:
    """One attempt's transport to one server, and the money that pays for it."""

    folder: Path
    wire: str
    streamed: bool = True
    ledger: Ledger = field(default_factory=lambda: Ledger(cap_usd=5.0, prices=PRICES))

    def __post_init__(self) -> None:
        self.exchange = Exchange(Provider(self.wire, "FAKE_KEY", 4096, backoff_s=0.002, most_s=0.01))

    def transport(self, *, seconds: float = 20.0, attempt: int = 1) -> Transport:
        self.folder.mkdir(exist_ok=True)
        account = self.ledger.account(cap_usd=None)
        return self.exchange.transport(Place(17, 0, attempt, time.monotonic() + seconds, self.folder, account))

    def post(self, transport: Transport, root: str, **body: Any) -> httpx2.Response:
        whole = {"model": "m", "stream": self.streamed, **BODIES[self.wire], **body}
        if self.wire == "openai_chat" and self.streamed:
            whole["stream_options"] = {"include_usage": True}
        with httpx2.Client(transport=transport, headers={"authorization": f"Bearer {KEY}"}) as client:
            return client.post(root + PATHS[self.wire], json=whole)

    def fails(self, server: Loopback, *, seconds: float = 20.0) -> ModelError:
        transport = self.transport(seconds=seconds)
        with pytest.raises(ModelError) as caught:
            self.post(transport, server.root)
        assert caught.value.usage == transport.usage
        return caught.value

    @property
    def bound_usd(self) -> float:
        """The price of what was held for the first request."""
        return dollars(read_exchange(self.folder)[0].bound, PRICES) or 0.0


@pytest.fixture(params=EACH, ids=lambda case: f"{case[0]}-{'streamed' if case[1] else 'whole'}")
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path / "0", *request.param)
    yield bench
    assert bench.ledger.held_usd == pytest.approx(0.0, abs=1e-12)
    # What was counted, what was recorded and what was paid are one figure.
    assert dollars(usage_of_attempt(bench.folder, 1), PRICES) == pytest.approx(bench.ledger.spent_usd, abs=1e-12)


def error(message: str, **names: Any) -> dict[str, Any]:
    return {"type": "error", "error": {"message": message, **names}}


# ------------------------------------------------------------------- replies


def test_a_reply_is_passed_on_whole_and_paid_by_its_own_figures(bench: Bench) -> None:
    with Loopback([GOOD]) as server:
        transport = bench.transport()
        reply = bench.post(transport, server.root)
    assert reply.status_code == 200
    assert "hello" in reply.text
    assert transport.usage == Usage(input_fresh=800, cache_read=200, output=50, requests=1)
    assert server.requests[0].headers["accept-encoding"] == "identity"
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)
    assert len(server.requests) == 1


def test_events_that_come_twice_are_paid_once(bench: Bench) -> None:
    with Loopback([replace(GOOD, fault="duplicates")]) as server:
        bench.post(bench.transport(), server.root)
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)


def test_a_reply_that_was_cut_by_its_length_is_a_reply(bench: Bench) -> None:
    with Loopback([replace(GOOD, calls=(), stop="length")]) as server:
        assert bench.post(bench.transport(), server.root).status_code == 200
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)


@pytest.mark.parametrize("stop", ["refusal", "filter"])
def test_a_refusal_of_the_model_is_a_reply_that_costs_what_it_says(bench: Bench, stop: Any) -> None:
    with Loopback([replace(GOOD, calls=(), stop=stop)]) as server:
        assert bench.post(bench.transport(), server.root).status_code == 200
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)
    assert len(server.requests) == 1


def test_a_reply_of_50_mb_is_passed_on(bench: Bench) -> None:
    # Streamed Responses say a text five times: in pieces, and at the end of part, item and reply.
    times = 5 if (bench.wire, bench.streamed) == ("openai_responses", True) else 1
    with Loopback([replace(GOOD, text="x" * (50_000_000 // times))]) as server:
        assert len(bench.post(bench.transport(), server.root).content) > 50_000_000
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)


def test_a_reply_past_the_cap_is_a_fault(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat", streamed=False)
    with Loopback([replace(GOOD, text="x" * 70_000_000)]) as server:
        assert bench.fails(server).kind == "stream"


def test_a_reply_without_figures_counts_as_its_bound_and_is_marked(bench: Bench) -> None:
    with Loopback([replace(GOOD, fault="no_usage")]) as server:
        transport = bench.transport()
        bench.post(transport, server.root)
    assert not transport.usage.complete
    assert transport.usage.output == 100
    assert bench.ledger.spent_usd == pytest.approx(bench.bound_usd)


# ------------------------------------------------------------------- faults that are told by a status


@pytest.mark.parametrize(
    ("status", "body", "kind", "requests"),
    [
        (500, error("oops", type="server_error"), "server", 6),
        (502, "<html><body><h1>502 Bad Gateway</h1></body></html>", "server", 6),
        (503, "", "server", 6),
        (400, error("unknown field", type="invalid_request_error"), "bad_request", 1),
        (400, error("This model's maximum context length is 8192 tokens", code="context_length_exceeded"),
         "context_overflow", 1),
        (400, error("prompt is too long: 210000 tokens > 200000 maximum", type="invalid_request_error"),
         "context_overflow", 1),
        (400, error("the request exceeds the available context size", type="exceed_context_size_error"),
         "context_overflow", 1),
        (400, error("The response was filtered", code="content_filter"), "refused", 1),
        (400, error("flagged as violating our usage policy", code="invalid_prompt"), "refused", 1),
        (422, "not json at all", "bad_request", 1),
    ],
)  # fmt: skip
def test_an_error_status_has_a_class_and_costs_nothing(
    bench: Bench, status: int, body: Any, kind: str, requests: int
) -> None:
    with Loopback([Turn(status=status, body=body)]) as server:
        caught = bench.fails(server)
    assert caught.kind == kind
    assert len(server.requests) == requests
    assert caught.usage == Usage(requests=requests)
    assert not isinstance(body, dict) or body["error"]["message"] in str(caught)
    assert bench.ledger.spent_usd == 0


@pytest.mark.parametrize("headers", [{}, {"retry-after": "0.3"}, {"retry-after-ms": "300"}])
def test_a_429_is_tried_again_after_the_time_that_it_names(bench: Bench, headers: Mapping[str, str]) -> None:
    body = error("slow down", type="rate_limit_error")
    with Loopback([Turn(status=429, body=body, headers=headers), GOOD]) as server:
        started = time.monotonic()
        bench.post(bench.transport(), server.root)
        waited = time.monotonic() - started
    assert len(server.requests) == 2
    assert waited >= (0.3 if headers else 0)
    assert bench.ledger.spent_usd == pytest.approx(GOOD_USD, abs=1e-9)


def test_a_storm_of_429_ends_by_the_deadline(bench: Bench) -> None:
    with Loopback([Turn(status=429, body=error("slow down", type="rate_limit_error"))]) as server:
        started = time.monotonic()
        caught = bench.fails(server, seconds=1.3)
        assert time.monotonic() - started < 6.3
    assert caught.kind == "rate_limit"
    assert len(server.requests) > 6
    assert bench.ledger.spent_usd == 0


def test_a_wait_beyond_the_deadline_is_not_waited(bench: Bench) -> None:
    with Loopback([Turn(status=429, body="", headers={"retry-after": "3600"})]) as server:
        started = time.monotonic()
        assert bench.fails(server, seconds=30).kind == "rate_limit"
        assert time.monotonic() - started < 5
    assert len(server.requests) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        (429, error("You exceeded your current quota", type="insufficient_quota", code="insufficient_quota")),
        (400, error("Your credit balance is too low to access the API", type="invalid_request_error")),
        (402, error("pay first")),
    ],
)
def test_a_quota_that_is_used_up_stops_the_run(bench: Bench, status: int, body: Any) -> None:
    with Loopback([Turn(status=status, body=body)]) as server, pytest.raises(RunStop, match="quota"):
        bench.post(bench.transport(), server.root)
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_a_wrong_key_names_its_variable_and_never_itself(bench: Bench, status: int) -> None:
    body = error(f"Incorrect API key provided: {KEY}", code="invalid_api_key")
    with Loopback([Turn(status=status, body=body)]) as server, pytest.raises(SetupError) as caught:
        bench.post(bench.transport(), server.root)
    assert "FAKE_KEY" in str(caught.value)
    assert KEY not in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert KEY not in str(read_exchange(bench.folder))
    assert "[key]" in str(read_exchange(bench.folder))


def test_an_unknown_model_or_address_is_the_users_to_mend(bench: Bench) -> None:
    turn = Turn(status=404, body=error("no such model"))
    with Loopback([turn]) as server, pytest.raises(SetupError, match=r"model\.base_url"):
        bench.post(bench.transport(), server.root)
    assert len(server.requests) == 1


# ------------------------------------------------------------------- faults inside of a reply


@pytest.mark.parametrize("fault", ["cut_before", "cut_inside", "cut_after", "no_last_event", "malformed"])
def test_a_broken_reply_is_tried_again_and_counts_as_its_bound(bench: Bench, fault: Fault) -> None:
    with Loopback([replace(GOOD, fault=fault), GOOD]) as server:
        transport = bench.transport()
        bench.post(transport, server.root)
    assert len(server.requests) == 2
    assert not transport.usage.complete
    known = fault in ("malformed", "no_last_event") and bench.ledger.spent_usd == pytest.approx(2 * GOOD_USD, abs=1e-9)
    assert known or bench.ledger.spent_usd == pytest.approx(bench.bound_usd + GOOD_USD, abs=1e-9)


@pytest.mark.parametrize("fault", ["cut_inside", "malformed"])
def test_a_reply_that_is_always_broken_is_sent_three_times(bench: Bench, fault: Fault) -> None:
    with Loopback([replace(GOOD, fault=fault)]) as server:
        caught = bench.fails(server)
    assert caught.kind == "stream"
    assert len(server.requests) == 3
    assert bench.ledger.spent_usd == pytest.approx(3 * bench.bound_usd, abs=1e-9)


@pytest.mark.parametrize(
    ("failure", "kind", "requests"),
    [
        ({"code": "server_error", "type": "server_error", "message": "oops"}, "server", 6),
        ({"code": "context_length_exceeded", "type": "invalid_request_error", "message": "too long"},
         "context_overflow", 1),
        ({"code": "invalid_prompt", "type": "invalid_prompt", "message": "violates our usage policy"}, "refused", 1),
        ({"code": "bad", "type": "invalid_request_error", "message": "what?"}, "bad_request", 1),
    ],
)  # fmt: skip
def test_a_failure_that_is_told_inside_of_a_reply_has_its_class(
    bench: Bench, failure: dict[str, Any], kind: str, requests: int
) -> None:
    with Loopback([replace(GOOD, failure=failure)]) as server:
        caught = bench.fails(server)
    assert caught.kind == kind
    assert len(server.requests) == requests


def test_an_overload_that_is_told_inside_of_a_reply_is_tried_again(bench: Bench) -> None:
    failure = {"type": "overloaded_error", "code": "rate_limit_exceeded", "message": "busy"}
    with Loopback([replace(GOOD, failure=failure), GOOD]) as server:
        bench.post(bench.transport(), server.root)
    assert len(server.requests) == 2


# ------------------------------------------------------------------- faults of the connection


@pytest.mark.parametrize("fault", ["silence", "slow_headers", "drip"])
def test_the_deadline_holds_against_a_server_that_does_not_come_to_an_end(bench: Bench, fault: Fault) -> None:
    with Loopback([replace(GOOD, fault=fault)]) as server:
        started = time.monotonic()
        caught = bench.fails(server, seconds=0.5)
        assert time.monotonic() - started < 5.5
    assert caught.kind == "timeout"
    assert not caught.usage.complete
    assert len(server.requests) == 1
    assert bench.ledger.spent_usd == pytest.approx(bench.bound_usd)


def test_a_reset_connection_is_tried_again_and_counts_as_its_bound(bench: Bench) -> None:
    with Loopback([replace(GOOD, fault="reset"), GOOD]) as server:
        bench.post(bench.transport(), server.root)
    assert len(server.requests) == 2
    assert bench.ledger.spent_usd == pytest.approx(bench.bound_usd + GOOD_USD, abs=1e-9)


@pytest.mark.parametrize("address", ["http://no-such-host.invalid", "refused"])
def test_what_was_not_sent_costs_nothing(bench: Bench, address: str) -> None:
    transport = bench.transport()
    with pytest.raises(ModelError) as caught:
        bench.post(transport, f"http://127.0.0.1:{_closed_port()}" if address == "refused" else address)
    assert caught.value.kind == "connection"
    assert caught.value.usage == Usage(requests=6)
    assert bench.ledger.spent_usd == 0


def _closed_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


# ------------------------------------------------------------------- money


def test_a_cap_refuses_before_anything_is_sent(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat", ledger=Ledger(cap_usd=0.001, prices=PRICES))
    with Loopback([GOOD]) as server:
        assert bench.fails(server).kind == "budget"
    assert server.requests == []


def test_the_bound_of_a_later_request_is_the_last_input_and_what_is_new(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat")
    first: list[dict[str, Any]] = [{"role": "user", "content": "a" * 9000}]
    new = {"role": "tool", "tool_call_id": "call_0", "content": "b" * 500}
    with Loopback([GOOD]) as server:
        transport = bench.transport()
        bench.post(transport, server.root, messages=first)
        bench.post(transport, server.root, messages=[*first, new])
    bounds = [record.bound.input_tokens for record in read_exchange(bench.folder)]
    assert bounds[0] > 9000
    assert 1000 + 500 < bounds[1] < 1000 + 500 + 100


def test_eight_threads_never_overrun_a_cap_through_a_real_server(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat", ledger=Ledger(cap_usd=0.10, prices=PRICES))
    over: list[float] = []
    kinds: list[str] = []

    def work(place: int) -> None:
        folder = tmp_path / str(place)
        folder.mkdir(exist_ok=True)
        account = bench.ledger.account(cap_usd=None)
        transport = bench.exchange.transport(Place(place, 0, 1, time.monotonic() + 60, folder, account))
        try:
            while True:
                bench.post(transport, server.root)
                over.append(bench.ledger.spent_usd + bench.ledger.held_usd)
        except ModelError as error:
            kinds.append(error.kind)

    with Loopback([replace(GOOD, output=90, delay_s=0.005)]) as server:
        workers = [threading.Thread(target=work, args=(place,)) for place in range(8)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join(60)
    assert kinds == ["budget"] * 8
    assert max(over) <= 0.10 + 1e-9
    # All that could be spent was: the next request would not have fitted.
    assert bench.ledger.spent_usd > 0.10 - 2 * bench.bound_usd


# ------------------------------------------------------------------- the limiter


def test_answers_raise_the_limit_and_a_failing_provider_gets_no_more(tmp_path: Path) -> None:
    limits = {}
    for name, turns in {"good": [GOOD], "failing": [Turn(status=500), GOOD]}.items():
        bench = Bench(tmp_path / name, "openai_chat")
        limiter = bench.exchange.line.limiter
        for _ in range(20):
            limiter.refused(time.monotonic() + 1)
        with Loopback(turns) as server:
            bench.post(bench.transport(), server.root)
        limits[name] = limiter.limit
    assert limits == {"good": 2, "failing": 1}


def test_a_429_cuts_the_limit(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat")
    first = bench.exchange.line.limiter.limit
    with Loopback([Turn(status=429), GOOD]) as server:
        bench.post(bench.transport(), server.root)
    assert bench.exchange.line.limiter.limit < first


def test_a_query_that_has_begun_is_served_before_a_new_one(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat")
    limiter = bench.exchange.line.limiter
    begun, new = bench.transport(attempt=1), bench.transport(attempt=2)
    with Loopback([GOOD]) as server:
        bench.post(begun, server.root)
        for _ in range(20):
            limiter.refused(time.monotonic() + 1)
        waiting = [(new, "new"), (begun, "begun")]
        threads = [
            threading.Thread(target=bench.post, args=(transport, server.root), kwargs={"model": name})
            for transport, name in waiting
        ]
        with limiter.seat(begun=True, deadline=time.monotonic() + 30):
            for thread in threads:
                thread.start()
                time.sleep(0.1)
        for thread in threads:
            thread.join(30)
    assert [request.body["model"] for request in server.requests] == ["m", "begun", "new"]


# ------------------------------------------------------------------- records and SDKs


def test_a_body_is_recorded_by_what_is_new_in_it_and_read_back_whole(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_responses")
    items: list[dict[str, Any]] = []
    sent: list[list[dict[str, Any]]] = []
    with Loopback([GOOD]) as server:
        transport = bench.transport()
        for turn in range(40):
            items.append({"role": "user", "content": f"{turn} " + "text that compresses badly, turn by turn " * 20})
            if turn == 20:
                items[3] = {"role": "user", "content": "[cleared]"}
            sent.append(list(items))
            bench.post(transport, server.root, input=items)
    records = read_exchange(bench.folder)
    assert [record.body["input"] for record in records] == sent
    assert all(record.body["model"] == "m" for record in records)
    assert [record.status for record in records] == [200] * 40
    assert '"response.completed"' in (records[-1].reply or "")


def test_no_key_is_in_any_file(tmp_path: Path) -> None:
    bench = Bench(tmp_path / "0", "openai_chat")
    with Loopback([Turn(text=f"your key is {KEY}")]) as server:
        reply = bench.post(bench.transport(), server.root)
    assert KEY not in reply.text
    assert KEY not in str(read_exchange(bench.folder))
    assert server.requests[0].headers["authorization"] == f"Bearer {KEY}"


@pytest.mark.parametrize("wire", ["openai_chat", "anthropic_messages"])
def test_what_the_transport_raises_comes_through_the_sdks(tmp_path: Path, wire: str) -> None:
    bench = Bench(tmp_path / "0", wire)
    with Loopback([Turn(status=400, body=error("no"))]) as server, pytest.raises(Exception) as caught:  # noqa: PT011
        ask_by_sdk(wire, server, bench.transport())
    # One SDK lets it through, the other wraps it.
    found = caught.value if isinstance(caught.value, ModelError) else caught.value.__cause__
    assert isinstance(found, ModelError)
    assert found.kind == "bad_request"
    assert len(server.requests) == 1


def ask_by_sdk(wire: str, server: Loopback, transport: Transport) -> None:
    messages: list[Any] = [{"role": "user", "content": "hello"}]
    http = httpx2.Client(transport=transport)
    if wire == "openai_chat":
        client = openai.OpenAI(base_url=server.url, api_key=KEY, max_retries=0, http_client=http)
        client.chat.completions.create(model="m", messages=messages)
    else:
        other = anthropic.Anthropic(base_url=server.root, api_key=KEY, max_retries=0, http_client=http)
        other.messages.create(model="m", max_tokens=100, messages=messages)
