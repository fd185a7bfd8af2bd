"""An attempt of a worker while it is open: its place, its money, and the requests to its provider.

>>> attempt = OpenAttempt(seat, 17, 0, cell.query_folder(17, 0), money.account(17, 0), money, models)
>>> attempt.ask(channel, WANTED.validate_python({"attempt": 1, "deadline": 5000.0, "headers": {}}), 4096)

Whatever the worker says, a request is for its cell's model, within its limits' time, and paid from its query's account.
Not covered: who may ask (server.py).
"""

import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, TypeAdapter

from dkgi.meter import Ledger
from dkgi.models.provider import ProviderModel
from dkgi.pricing import dollars
from dkgi.runner import Seat
from dkgi.store import Cell
from dkgi.types import Account, Limits, ModelError, ModelSource, Place, Prices, RunStop, SetupError, Usage
from dkgi.worker.channel import Channel

_LATE_S = 60.0
"""How much later than its place an attempt's clock may begin."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A worker asks for a request to the provider."""

    attempt: Annotated[int, Field(ge=1, le=10**9)]
    deadline: Annotated[float, Field(allow_inf_nan=False)]
    headers: dict[str, Annotated[str, Field(pattern="^[ -~]*$")]]


WANTED = TypeAdapter(Wanted)


class Money:
    """The accounts of a cell's queries. What a query spent before counts from the start."""

    def __init__(self, cell: Cell, ledger: Ledger, limits: Limits, prices: Prices | None) -> None:
        self.ledger = ledger
        self._cell, self.limits, self._prices = cell, limits, prices
        self._lock = threading.Lock()
        self._accounts: dict[tuple[int, int], Account] = {}

    def account(self, number: int, repeat: int) -> Account:
        """The account of a query, one for all its attempts."""
        with self._lock:
            if (number, repeat) not in self._accounts:
                spent = sum((attempt.usage for attempt in self._cell.attempts(number, repeat)), Usage())
                self._accounts[number, repeat] = self.ledger.account(
                    cap_usd=self.limits.usd_query, spent_usd=dollars(spent, self._prices) or 0.0
                )
            return self._accounts[number, repeat]


class OpenAttempt:
    """An attempt that is open: its place, and its model once that is asked."""

    def __init__(
        self,
        seat: Seat,
        number: int,
        repeat: int,
        folder: Path,
        account: Account,
        money: Money,
        models: ModelSource | None,
    ) -> None:
        self.seat = seat
        self._key, self._folder = (number, repeat), folder
        self._account, self._money, self._models = account, money, models
        self._latest = time.monotonic() + money.limits.wall_s + _LATE_S
        self._model: ProviderModel | None = None
        self._lock = threading.Lock()

    def ask(self, channel: Channel, wanted: Wanted, size: int) -> None:
        """Send a request, whose body comes on the channel, to the provider: one at a time. The answer says what it cost,
        also where there is no reply.
        """
        with self._lock:
            if (body := channel.body(size)) is None:
                return
            channel.connection.settimeout(None)
            told = self._ask(wanted, body)
        channel.send(*told)

    def _ask(self, wanted: Wanted, body: bytes) -> tuple[dict[str, Any], bytes]:
        model = self._model = self._model or self._open(wanted)
        told: dict[str, Any] = {}
        content = b""
        try:
            response = model.send(body, wanted.headers)
            told, content = {"content_type": response.headers["content-type"]}, response.content
        except ModelError as error:
            told = {"model_error": {"message": str(error), "kind": error.kind, "retryable": error.retryable}}
        except RunStop as error:
            told = {"run_stop": str(error)}
        except SetupError as error:
            told = {"setup": str(error)}
        ledger = self._money.ledger
        return told | {"exhausted": ledger.exhausted} | self.bill(), content

    def _open(self, wanted: Wanted) -> ProviderModel:
        """The model for this attempt, which has no more time than its limits say, whatever the worker says."""
        if self._models is None:
            raise ValueError("a model without a provider is the worker's own")
        deadline = min(wanted.deadline, self._latest)
        model = self._models.model(Place(*self._key, wanted.attempt, deadline, self._folder, self._account))
        assert isinstance(model, ProviderModel)
        return model

    def bill(self) -> dict[str, Any]:
        """What the last request has cost, and what is held for the one that is under way."""
        if self._model is None:
            return {"usage": asdict(Usage()), "under_way": None}
        transport = self._model.transport
        under_way = transport.under_way
        return {"usage": asdict(transport.usage), "under_way": asdict(under_way) if under_way else None}
