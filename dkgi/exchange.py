"""The one way to a provider: hold money, send, record, retry by class, settle.

>>> exchange = Exchange(Provider(wire="openai_responses", key_variable="OPENAI_API_KEY", max_output_tokens=32_000))
>>> transport = exchange.transport(place)
>>> client = openai.OpenAI(http_client=httpx2.Client(transport=transport), max_retries=0)

The transport raises ModelError, RunStop or SetupError; an SDK wraps them in its connection error, as `__cause__`.
After each call, failed ones too, `transport.usage` is what the call cost with all its tries.

kind              what                                              tried again        then                 exit code
rate_limit        429, overloaded                                   until the deadline model_error          1
server            5xx, 408, 409, a failure told inside a stream     6 requests         model_error          1
connection        refused, reset, no such host, broken TLS          6 requests         model_error          1
stream            cut, malformed, without its last event, > 64 MB   3 requests         model_error          1
timeout           the deadline passed                               no                 time_limit           0
bad_request       400, 413, 422 ...                                 no                 model_error          1
context_overflow  the history is longer than the model takes        no                 model_error          1
refused           the provider's filter refused the request         no                 refused              0
empty             a whole reply that says nothing                   no (models/)       model_error          1
budget            a cap has no more (meter.py)                      no                 pending              1
RunStop           the quota is used up                              no                 the run ends         3
SetupError        401, 403 (key), 404 (model or address)            no                 the run ends         2
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkgi.types import Place, Usage

if TYPE_CHECKING:
    import httpx2


@dataclass(frozen=True, slots=True)
class Provider:
    """wire: openai_responses, openai_chat or anthropic_messages; `max_output_tokens` bounds a request that states none."""

    wire: str
    key_variable: str | None
    max_output_tokens: int


@dataclass(frozen=True, slots=True)
class Record:
    """One request as exchange.jsonl.zst has it. `status`, `reply`, `usage` are None where no reply was recorded.

    attempt, request  counted from 1; `request` counts the calls of an attempt, `try_` the sendings of one call
    body              the whole JSON body that was sent
    bound             what was held for it
    reply             raw text
    kind, error       class of the failure and what was said, or empty
    """

    attempt: int
    request: int
    try_: int
    time: float
    body: dict[str, Any]
    bound: Usage
    status: int | None
    reply: str | None
    usage: Usage | None
    kind: str
    error: str


class Exchange:
    """One provider's door for all threads of a run."""

    def __init__(self, provider: Provider) -> None:
        self.provider = provider

    def transport(self, place: Place) -> "Transport":
        """The way of one attempt; one thread at a time. Closing it leaves the shared connections open."""
        raise NotImplementedError


class Transport:  # becomes an httpx2.BaseTransport
    usage: Usage

    def handle_request(self, request: "httpx2.Request") -> "httpx2.Response":
        raise NotImplementedError


def read_exchange(folder: Path) -> list[Record]:
    """All requests recorded in a query's folder, oldest first; none where there is no file. A torn end is passed over."""
    raise NotImplementedError


def usage_of_attempt(folder: Path, attempt: int) -> Usage:
    """What an attempt used by its records: every request counts, one without a reply at its bound, `complete=False`."""
    raise NotImplementedError
