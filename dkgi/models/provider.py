"""What the models of all providers share: their configuration, their key, and how an SDK is asked.

>>> spec = load(["model=luna"]).model
>>> spec.kind, spec.model, spec.key_variable
('openai_responses', 'gpt-6-luna', 'OPENAI_API_KEY')

Keys stay in environment variables: a configuration has the variable's name alone.
Not covered: what goes over a wire (openai_responses.py, openai_chat.py, anthropic_messages.py), retries, money and
records (exchange.py), who shares a line to a provider (lines.py).
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal
from urllib.parse import urlsplit

import orjson
from pydantic import AfterValidator

from dkgi.keys import read_key
from dkgi.lines import Lines
from dkgi.types import Face, Item, ModelError, Place, Prices, Reply, RunStop, SetupError, ToolSpec, Usage
from dkgi.wires import parse_events

if TYPE_CHECKING:
    import httpx2

    from dkgi.exchange import SendingTransport

Answer = dict[str, Any] | list[dict[str, Any]]
"""What a provider said, as JSON: a whole reply, or all events of a streamed one."""

Transports = Callable[[Place], "SendingTransport"]
"""Where the requests of an attempt go."""

_LITE_HOST = "api.openai.com"
_PASSED = ("accept", "anthropic-beta", "anthropic-version", "x-openai-internal-codex-responses-lite")
"""Headers of an external program that a provider needs; all others stay here."""


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Z_][A-Z0-9_]*", name):
        raise ValueError("must be the NAME of an environment variable, in capital letters; the key itself stays there")
    return name


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """From conf/model: a model behind one of the wires.

    kind               the wire, which is the name of a module of this folder
    name, model        what we call it, what the provider calls it
    base_url           address up to the wire's own path, e.g. http://127.0.0.1:8000/v1
    key_variable       environment variable with the API key; None where the server asks for none
    effort             how much the model reasons, in the provider's words; None: not asked to
    context_window     tokens that one request may hold, its output included
    max_output_tokens  tokens of one reply, reasoning included
    stream             replies come as a stream of events
    source             where model, limits and prices are stated, and when they were read
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["openai_responses", "openai_chat", "anthropic_messages"]
    name: str
    model: str
    base_url: str
    key_variable: Annotated[str, AfterValidator(_variable)] | None
    effort: str | None
    context_window: int
    max_output_tokens: int
    prices: Prices | None
    stream: bool
    source: str


@dataclass(frozen=True, slots=True)
class Passed:
    """A provider's reply to a request that was passed on: as it came, and as it was read."""

    content_type: str
    body: bytes
    reply: Reply


@dataclass(frozen=True, slots=True)
class ProviderModel(ABC):
    """A model of a provider for one attempt, whether it is asked by us (`reply`) or by an external program (`forward`)."""

    path: ClassVar[str]
    spec: ProviderSpec
    transport: "SendingTransport"
    client: Any

    @property
    def face(self) -> Face:
        spec = self.spec
        lite = spec.kind == "openai_responses" and urlsplit(spec.base_url).hostname == _LITE_HOST
        return Face(spec.kind, spec.model, spec.effort, spec.context_window, spec.max_output_tokens, lite)

    @property
    def so_far(self) -> Usage:
        """What the request under way has cost; a sending that has no answer yet counts at its bound."""
        bound = self.transport.under_way
        return self.transport.usage + (replace(bound, complete=False) if bound else Usage())

    def send(self, body: bytes, headers: Mapping[str, str]) -> "httpx2.Response":
        """Send the body of a request as it is, with our key; `headers`, in lower case, are those that came with it.

        Raises ModelError, RunStop and SetupError as the exchange says. `transport.usage` is what it cost.
        """
        import httpx2

        _check_body(body, self.spec.model)
        passed = {name: headers[name] for name in _PASSED if name in headers}
        request = httpx2.Request(
            "POST",
            str(self.client.base_url).rstrip("/") + self.path,
            headers={"content-type": "application/json"} | passed | self.client.auth_headers,
            content=body,
        )
        return self.transport.handle_request(request)

    def forward(self, body: bytes, headers: Mapping[str, str]) -> Passed:
        """As `send`, and read what comes. Raises what `ask` raises."""
        received: list[httpx2.Response] = []

        def send() -> "httpx2.Response":
            received.append(self.send(body, headers))
            return received[0]

        reply = ask(self.transport, send, self.read)
        return Passed(received[0].headers["content-type"], received[0].content, reply)

    @abstractmethod
    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        """As Model.reply."""

    @abstractmethod
    def read(self, answer: Answer) -> Reply:
        """What a provider said, as a reply."""


class ProviderModels:
    """The models of one provider: its key and the way to it for all attempts of a run, an SDK's client for each.

    `sdk` makes a client; `wire` makes a model of the spec, the attempt's transport and its client. With `transports`
    requests go there, and no key is read; else over an exchange of their own, on one of `lines` where they are shared.
    Raises SetupError where the key is missing.
    """

    def __init__(
        self,
        spec: ProviderSpec,
        sdk: Callable[..., Any],
        wire: Callable[[ProviderSpec, "SendingTransport", Any], ProviderModel],
        transports: Transports | None,
        lines: Lines | None,
    ) -> None:
        self._spec = spec
        self._sdk = sdk
        self._wire = wire
        self._key = None if transports else _read_key(spec)
        self._transports = transports or _own_transports(spec, lines)

    def model(self, place: Place) -> ProviderModel:
        import httpx2

        transport = self._transports(place)
        client = self._sdk(
            # SDKs insist on a key; where none is known, nobody reads it.
            api_key=self._key or "none",
            base_url=self._spec.base_url,
            http_client=httpx2.Client(transport=transport),
            # Retries and deadlines are the exchange's.
            max_retries=0,
            timeout=None,
        )
        return self._wire(self._spec, transport, client)


def _own_transports(spec: ProviderSpec, lines: Lines | None) -> Transports:
    from dkgi.exchange import Exchange, Provider

    line = lines.to(spec.base_url, spec.key_variable) if lines else None
    return Exchange(Provider(spec.kind, spec.key_variable, spec.max_output_tokens), line).transport


def _check_body(body: bytes, model: str) -> None:
    """Raise ModelError where a program's request is no JSON object, or would be billed at another model's prices or for
    more replies than one.
    """
    try:
        asked = orjson.loads(body)
    except ValueError as error:
        raise ModelError(str(error), kind="bad_request") from None
    named = asked.get("model") if isinstance(asked, dict) else None
    if named != model:
        raise ModelError(f"the request is for the model {named!r}, not for {model}", kind="bad_request")
    if asked.get("n") not in (None, 1):
        raise ModelError(f"the request is for n={asked['n']!r} replies, not for one", kind="bad_request")


def _read_key(spec: ProviderSpec) -> str | None:
    if spec.key_variable is None:
        return None
    if key := read_key(spec.key_variable):
        return key
    raise SetupError(
        f"model={spec.name}: {spec.key_variable} is not set; put your API key in this environment variable"
    )


def ask(transport: "SendingTransport", send: Callable[[], "httpx2.Response"], read: Callable[[Answer], Reply]) -> Reply:
    """One request: `send` asks and returns the response, `read` makes a reply of it. Adds what it cost.

    Raises ModelError of the exchange's kinds and of two more: `malformed` where `read` cannot make sense of a reply,
    `empty` where it says nothing. Raises RunStop and SetupError of the exchange.
    """
    try:
        reply = read(_answer(send()))
    except Exception as error:
        for cause in _causes(error):
            if isinstance(cause, ModelError | RunStop | SetupError):
                raise cause from None
        raise ModelError(
            f"{type(error).__name__}: {error}", kind="malformed", usage=transport.usage, retryable=True
        ) from error
    if reply.stop == "end" and not reply.calls and not reply.text.strip():
        raise ModelError("the model said nothing", kind="empty", usage=transport.usage, retryable=True)
    return replace(reply, usage=transport.usage)


def _answer(response: "httpx2.Response") -> Answer:
    # Not by the SDK: its objects take 0.2 ms of the interpreter for each streamed token, which many threads share, and
    # what has to go back to the provider unchanged is best never changed.
    body = response.read()
    if response.headers["content-type"].startswith("text/event-stream"):
        return parse_events(body) or []
    answer: Answer = orjson.loads(body)
    return answer


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what it was raised from, the way an SDK wraps what its transport raises."""
    while error is not None:
        yield error
        error = error.__cause__


def json_object(text: str) -> dict[str, Any]:
    """What a model wrote as a tool's arguments, as the JSON object that histories must have.

    Text that is no JSON object comes wrapped, as Anthropic's guide to streamed tool input has it: servers refuse a
    history with broken arguments, and the model should see what it wrote.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"INVALID_JSON": text}
