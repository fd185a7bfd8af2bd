"""What the models of all providers share: their configuration, their key, and how an SDK is asked.

>>> spec = load(["model=luna"]).model
>>> spec.kind, spec.model, spec.key_variable
('openai_responses', 'gpt-6-luna', 'OPENAI_API_KEY')

Keys stay in environment variables: a configuration has the variable's name alone.
Not covered: what goes over a wire (openai_responses.py, openai_chat.py, anthropic_messages.py), retries, money and
records (exchange.py).
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import orjson
from pydantic import AfterValidator

from dkgi.keys import read_key
from dkgi.types import Model, ModelError, Place, Prices, Reply, RunStop, SetupError
from dkgi.wires import parse_events

if TYPE_CHECKING:
    import httpx2

    from dkgi.exchange import Transport

Answer = dict[str, Any] | list[dict[str, Any]]
"""What a provider said, as JSON: a whole reply, or all events of a streamed one."""


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


class ProviderModels:
    """The models of one provider: its key and exchange for all attempts of a run, an SDK's client for each.

    `sdk` makes a client; `wire` makes a model of the spec, the attempt's transport and its client. Raises SetupError
    where the key is missing.
    """

    def __init__(
        self, spec: ProviderSpec, sdk: Callable[..., Any], wire: Callable[[ProviderSpec, "Transport", Any], Model]
    ) -> None:
        from dkgi.exchange import Exchange, Provider

        self._spec = spec
        self._sdk = sdk
        self._wire = wire
        self._key = _read_key(spec)
        self._exchange = Exchange(Provider(spec.kind, spec.key_variable, spec.max_output_tokens))

    def model(self, place: Place) -> Model:
        import httpx2

        transport = self._exchange.transport(place)
        client = self._sdk(
            # SDKs insist on a key; a server that asks for none does not read it.
            api_key=self._key or "none",
            base_url=self._spec.base_url,
            http_client=httpx2.Client(transport=transport),
            # Retries and deadlines are the exchange's.
            max_retries=0,
            timeout=None,
        )
        return self._wire(self._spec, transport, client)


def _read_key(spec: ProviderSpec) -> str | None:
    if spec.key_variable is None:
        return None
    if key := read_key(spec.key_variable):
        return key
    raise SetupError(
        f"model={spec.name}: {spec.key_variable} is not set; put your API key in this environment variable"
    )


def ask(transport: "Transport", send: Callable[[], Any], read: Callable[[Answer], Reply]) -> Reply:
    """One request: `send` asks by an SDK and returns its raw response, `read` makes a reply of it. Adds what it cost.

    Raises ModelError of the exchange's kinds and of two more: `malformed` where `read` cannot make sense of a reply,
    `empty` where it says nothing. Raises RunStop and SetupError of the exchange.
    """
    try:
        reply = read(_answer(send().http_response))
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
