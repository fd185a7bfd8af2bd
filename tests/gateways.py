"""A gateway session of a real provider's model, asked over its socket as an external program asks.

>>> with Loopback([Turn(text="hello")]) as server, Asked.open(gateway, "openai_chat", server, tmp_path) as asked:
...     asked.post({"messages": [...]}).status_code
200
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx2
import orjson

from dkgi.exchange import Exchange, Provider
from dkgi.gateway import ModelGateway
from dkgi.meter import Ledger
from dkgi.models import open_models
from dkgi.models.provider import ProviderModel
from dkgi.types import Model, Place, Prices, Session, Step
from tests.loopback import Loopback
from tests.models.providers import Kind, provider

PATHS: dict[str, str] = {
    "openai_responses": "/v1/responses",
    "openai_chat": "/v1/chat/completions",
    "anthropic_messages": "/v1/messages",
}
PRICES = Prices(input=1.0, cached_input=0.1, cache_write=1.0, output=10.0)


@dataclass
class Asked:
    session: Session
    client: httpx2.Client
    steps: list[Step] = field(default_factory=list)
    ledger: Ledger = field(default_factory=lambda: Ledger(cap_usd=5.0, prices=PRICES))

    @classmethod
    @contextmanager
    def open(
        cls, gateway: ModelGateway, kind: Kind, server: Loopback, folder: Path, **options: Any
    ) -> Iterator["Asked"]:
        ledger = Ledger(cap_usd=5.0, prices=PRICES)
        model = wired(kind, server.root, folder, ledger, seconds=options.pop("seconds", 20.0))
        with asking(gateway, model, **options) as asked:
            asked.ledger = ledger
            yield asked

    def post(
        self, body: Mapping[str, Any] | bytes, *, path: str = "", token: str = "", **headers: str
    ) -> httpx2.Response:
        content = body if isinstance(body, bytes) else orjson.dumps(body)
        sent = {"authorization": f"Bearer {token or self.session.token}"} | headers
        return self.client.post("http://model" + (path or PATHS[self.session.face.wire]), content=content, headers=sent)


def wired(kind: Kind, root: str, folder: Path, ledger: Ledger, *, seconds: float) -> ProviderModel:
    """A model with the key of DKGI_TEST_KEY whose requests are soon tried again."""
    address = root if kind == "anthropic_messages" else f"{root}/v1"
    spec = provider(kind, base_url=address, key_variable="DKGI_TEST_KEY")
    place = Place(17, 0, 1, time.monotonic() + seconds, folder, ledger.account(cap_usd=None))
    model = open_models(spec).model(place)
    assert isinstance(model, ProviderModel)
    exchange = Exchange(Provider(kind, "DKGI_TEST_KEY", 4096, backoff_s=0.002, most_s=0.01))
    return replace(model, transport=exchange.transport(place))


@contextmanager
def asking(
    gateway: ModelGateway, model: Model, *, max_turns: int | None = None, merge: bool = False
) -> Iterator[Asked]:
    steps: list[Step] = []
    with (
        gateway.session(model, steps.append, max_turns=max_turns, merge=merge) as session,
        httpx2.Client(transport=httpx2.HTTPTransport(uds=str(session.socket)), timeout=30.0) as client,
    ):
        yield Asked(session, client, steps)
