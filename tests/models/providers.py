"""Models of all wires that ask a loopback server.

>>> with Loopback([Turn(text="hello")]) as server:
...     open_model("openai_chat", server, tmp_path).reply([UserText("hi")], [BASH]).text
'hello'
"""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from dkgi.models import open_models
from dkgi.models.provider import ProviderSpec
from dkgi.types import Item, Model, Reply, ToolResult, ToolSpec
from tests.loopback import Loopback
from tests.places import free_place

Kind = Literal["openai_responses", "openai_chat", "anthropic_messages"]
KINDS: tuple[Kind, ...] = ("openai_responses", "openai_chat", "anthropic_messages")
HISTORY = {"openai_responses": "input", "openai_chat": "messages", "anthropic_messages": "messages"}
"""The key of a request's body that holds the conversation."""
BASH = ToolSpec(
    "bash",
    "Runs a command.",
    {"type": "object", "properties": {"command": {"type": "string"}}, "required": ["command"]},
)
KEY = "fake-key-for-tests-0123456789"
"""What tests put into the environment variable DKGI_TEST_KEY."""


def provider(kind: Kind, **changes: Any) -> ProviderSpec:
    plain = ProviderSpec(
        kind=kind,
        name="tested",
        model="model-1",
        base_url="http://127.0.0.1:9/v1",
        key_variable=None,
        effort="high",
        context_window=100_000,
        max_output_tokens=2_000,
        prices=None,
        stream=True,
        source="none",
    )
    return replace(plain, **changes)


def open_model(kind: Kind, server: Loopback, folder: Path, **changes: Any) -> Model:
    address = server.root if kind == "anthropic_messages" else server.url
    return open_models(provider(kind, base_url=address, **changes)).model(free_place(folder=folder))


def results(reply: Reply, text: str = "out") -> list[Item]:
    """A result for each call of a reply."""
    return [ToolResult(call.id, call.name, f"{text} {call.id}") for call in reply.calls]
