"""A model without a key whose requests another one sends, as a jailed process and its parent do: over the real SDKs."""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dkgi.exchange import SendingTransport
from dkgi.meter import Ledger
from dkgi.models import open_models
from dkgi.models.provider import ProviderModel
from dkgi.recording import read_exchange, usage_of_attempt
from dkgi.types import Model, ModelError, Place, Prices, RunStop, SetupError, Usage, UserText
from tests.loopback import Loopback, Turn
from tests.models.providers import BASH, HISTORY, KEY, KINDS, Kind, provider, results
from tests.places import free_place

CALL = ("bash", '{"command": "ls"}')
PRICES = Prices(input=1.0, cached_input=0.1, cache_write=1.0, output=10.0)


class Handed(SendingTransport):
    """Gives each request to the model with the key."""

    def __init__(self, sender: ProviderModel) -> None:
        self.sender = sender
        self.usage, self.under_way = Usage(), None

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            sent = self.sender.send(request.read(), request.headers)
        finally:
            self.usage = self.sender.transport.usage
        return httpx2.Response(200, headers={"content-type": sent.headers["content-type"]}, content=sent.content)


@dataclass(frozen=True)
class Two:
    """A model without a key, the one with it that sends, and the server."""

    model: Model
    sender: ProviderModel
    ledger: Ledger
    server: Loopback
    folder: Path


Open = Callable[..., Two]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> Kind:
    value: Kind = request.param
    return value


@pytest.fixture
def two(kind: Kind, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Open]:
    servers: list[Loopback] = []

    def open_two(*turns: Turn, cap_usd: float = 5.0, stream: bool = True) -> Two:
        server = Loopback(turns)
        servers.append(server.__enter__())
        address = server.root if kind == "anthropic_messages" else server.url
        spec = provider(kind, base_url=address, key_variable="DKGI_TEST_KEY", stream=stream, prices=PRICES)
        ledger = Ledger(cap_usd=cap_usd, prices=PRICES)
        place = Place(1, 0, 1, time.monotonic() + 20, tmp_path, ledger.account(cap_usd=None))
        monkeypatch.setenv("DKGI_TEST_KEY", KEY)
        sender = open_models(spec).model(place)
        assert isinstance(sender, ProviderModel)
        monkeypatch.delenv("DKGI_TEST_KEY")
        model = open_models(spec, transports=lambda _: Handed(sender)).model(free_place())
        return Two(model, sender, ledger, server, tmp_path)

    yield open_two
    for server in servers:
        server.__exit__()


@pytest.mark.parametrize("stream", [True, False])
def test_a_conversation_is_sent_paid_and_recorded_where_the_key_is(kind: Kind, two: Open, stream: bool) -> None:
    turns = [Turn(thinking="Look.", calls=[CALL], input=1000, cached=400, output=50), Turn(text="done", output=9)]
    pair = two(*turns, stream=stream)
    first = pair.model.reply([UserText("Which?")], [BASH])
    last = pair.model.reply([UserText("Which?"), first, *results(first)], [BASH])
    assert (first.calls[0].name, first.reasoning_summary, last.text) == ("bash", "Look.", "done")
    assert (first.usage, last.usage) == (Usage(600, 400, 0, 50, 0, 1), Usage(1000, 0, 0, 9, 0, 1))
    assert usage_of_attempt(pair.folder, 1) == first.usage + last.usage
    assert pair.ledger.spent_usd == pytest.approx((1600 + 40 + 590) / 1e6)
    assert [KEY in request.headers["authorization"] for request in pair.server.requests] == [True, True]
    assert pair.server.requests[1].raw.startswith(pair.server.requests[0].raw[:40])
    assert [record.body for record in read_exchange(pair.folder)] == [r.body for r in pair.server.requests]
    needed = "anthropic-version" if kind == "anthropic_messages" else "accept"
    assert pair.server.requests[0].headers[needed]


@pytest.mark.parametrize(
    ("turn", "ended", "said"),
    [
        (Turn(status=400, body={"error": {"message": "no such field"}}), "bad_request", "no such field"),
        (Turn(text=""), "empty", "nothing"),
        (Turn(status=401, body={"error": {"message": "bad key"}}), SetupError, "DKGI_TEST_KEY"),
        (Turn(status=429, body={"error": {"message": "pay", "code": "insufficient_quota"}}), RunStop, "pay"),
    ],
)
def test_what_goes_wrong_there_comes_through_as_it_is(two: Open, turn: Turn, ended: Any, said: str) -> None:
    pair = two(turn)
    with pytest.raises(ModelError if isinstance(ended, str) else ended, match=said) as caught:
        pair.model.reply([UserText("Which?")], [BASH])
    assert getattr(caught.value, "kind", type(caught.value)) == ended
    assert getattr(caught.value, "usage", pair.sender.transport.usage) == pair.sender.transport.usage
    assert len(pair.server.requests) == 1


def test_a_cap_refuses_there_before_anything_is_sent(two: Open) -> None:
    pair = two(Turn(text="hello"), cap_usd=0.001)
    with pytest.raises(ModelError, match=r"limits\.usd_run") as caught:
        pair.model.reply([UserText("Which?")], [BASH])
    assert (caught.value.kind, pair.ledger.exhausted, pair.server.requests) == ("budget", True, [])


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"[" * 100_000, b'"model-1"', b"{}", b'{"model": "dear"}', b'{"model": 7}', b"\xff"]
)
def test_a_request_for_another_model_or_of_no_form_is_refused_before_anything_is_sent(two: Open, body: bytes) -> None:
    pair = two(Turn(text="hello"))
    with pytest.raises(ModelError) as caught:
        pair.sender.send(body, {})
    assert caught.value.kind == "bad_request"
    assert (pair.server.requests, pair.ledger.held_usd) == ([], 0)


def test_other_headers_than_a_wire_needs_stay_behind(kind: Kind, two: Open) -> None:
    pair = two(Turn(text="hello"))
    body = json.dumps({"model": "model-1", HISTORY[kind]: [{"role": "user", "content": "hi"}]}).encode()
    pair.sender.send(
        body, {"authorization": "Bearer other", "x-api-key": "other", "cookie": "a=b", "host": "elsewhere"}
    )
    (request,) = pair.server.requests
    assert request.raw == body
    assert "other" not in str(request.headers)
    assert "cookie" not in request.headers
    assert "elsewhere" not in request.headers["host"]
