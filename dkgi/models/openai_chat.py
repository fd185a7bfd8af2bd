"""Models behind Chat Completions, the wire that nearly every server speaks: vLLM, Ollama, llama.cpp, ...

    user text     {"role": "user", "content": "..."}
    reply         {"role": "assistant", "content": "", "tool_calls": [{"id": "call_1", "type": "function", ...}]}
    tool result   {"role": "tool", "tool_call_id": "call_1", "content": "141 schema.json"}

Only fields that all these servers take are sent (so the bound of a reply is `max_tokens`), and what they get wrong is
put right: calls without an id, arguments that are an object instead of its text. Reasoning that a server shows goes
back with the message, under the name that the server gave it.
Not covered: OpenAI's own reasoning models, which want their Responses API.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dkgi.lines import Lines
from dkgi.models.provider import Answer, ProviderModel, ProviderModels, ProviderSpec, Transports, ask, json_object
from dkgi.types import Item, ModelSource, Reply, ToolCall, ToolResult, ToolSpec, UserText

_REASONING = ("reasoning_content", "reasoning")
_TEXTS = ("content", "refusal", *_REASONING)


def open_source(spec: ProviderSpec, transports: Transports | None = None, lines: Lines | None = None) -> ModelSource:
    """The models of one server. Raises SetupError where a key is named and missing."""
    # Here and not where a thread first asks: it takes a second.
    from openai import OpenAI

    return ProviderModels(spec, OpenAI, _Chat, transports, lines)


@dataclass(frozen=True, slots=True)
class _Chat(ProviderModel):
    path: ClassVar[str] = "/chat/completions"

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        body = request(self.spec, history, tools)
        turn = sum(isinstance(item, Reply) for item in history)
        create = self.client.chat.completions.with_raw_response.create
        return ask(self.transport, lambda: create(**body).http_response, lambda answer: read_reply(answer, turn))

    def read(self, answer: Answer) -> Reply:
        # Only for the record: an external program names calls that come without an id by itself.
        return read_reply(answer, 0)


def request(spec: ProviderSpec, history: Sequence[Item], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = {
        "model": spec.model,
        "messages": [_message(item) for item in history],
        "max_tokens": spec.max_output_tokens,
        "stream": spec.stream,
    }
    if spec.stream:
        body["stream_options"] = {"include_usage": True}
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "function": {"name": tool.name, "description": tool.description, "parameters": tool.parameters},
            }
            for tool in tools
        ]
    if spec.effort is not None:
        body["reasoning_effort"] = spec.effort
    return body


def _message(item: Item) -> dict[str, Any]:
    if isinstance(item, UserText):
        return {"role": "user", "content": item.text}
    if isinstance(item, ToolResult):
        return {"role": "tool", "tool_call_id": item.call_id, "content": item.text}
    message: dict[str, Any] = item.native
    return message


def read_reply(answer: Answer, turn: int) -> Reply:
    """A reply from a completion, or from its stream of chunks; `turn` replies came before it."""
    if isinstance(answer, list):
        message, finish = _gather(answer)
    else:
        choice = answer["choices"][0]
        message, finish = choice["message"], choice.get("finish_reason")
    calls = tuple(_call(call, f"call_{turn}_{n}") for n, call in enumerate(message.get("tool_calls") or ()))
    refusal = message.get("refusal")
    return Reply(
        text=refusal or message.get("content") or "",
        calls=calls,
        reasoning_summary=next((message[key] for key in _REASONING if message.get(key)), ""),
        stop="refused" if refusal or finish == "content_filter" else "length" if finish == "length" else "end",
        native=_native(message, calls),
    )


def _gather(chunks: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], str | None]:
    """The whole message of a stream, and why it ended."""
    message: dict[str, Any] = {"tool_calls": []}
    finish = None
    for chunk in chunks:
        for choice in chunk["choices"][:1]:
            delta = choice.get("delta") or {}
            for key in _TEXTS:
                if delta.get(key):
                    message[key] = message.get(key, "") + delta[key]
            for part in delta.get("tool_calls") or ():
                _add(message["tool_calls"], part)
            finish = choice.get("finish_reason") or finish
    return message, finish


def _add(calls: list[dict[str, Any]], part: dict[str, Any]) -> None:
    """Take a piece of a call. A new id begins a new call: some servers count all calls of a reply as number 0."""
    function = part.get("function") or {}
    same = [
        call
        for call in calls
        if call["index"] == part.get("index") and (not part.get("id") or part["id"] == call["id"])
    ]
    if not same:
        calls.append({"index": part.get("index"), "id": part.get("id"), "function": {"name": None, "arguments": ""}})
        same = calls[-1:]
    known = same[-1]["function"]
    known["name"] = known["name"] or function.get("name")
    arguments = function.get("arguments") or ""
    known["arguments"] += arguments if isinstance(arguments, str) else json.dumps(arguments)


def _call(call: dict[str, Any], id_if_none: str) -> ToolCall:
    arguments = call["function"]["arguments"]
    return ToolCall(
        call.get("id") or id_if_none,
        call["function"]["name"] or "",
        arguments if isinstance(arguments, str) else json.dumps(arguments),
    )


def _native(message: dict[str, Any], calls: Sequence[ToolCall]) -> dict[str, Any]:
    """The message to send back. Chat templates of open models take no content that is not text, nor broken arguments."""
    native: dict[str, Any] = {"role": "assistant", "content": message.get("content") or ""}
    native |= {key: message[key] for key in _REASONING if message.get(key)}
    if calls:
        native["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": _sound(call.arguments)},
            }
            for call in calls
        ]
    return native


def _sound(arguments: str) -> str:
    """The arguments as the model wrote them where they are a JSON object."""
    value = json_object(arguments)
    return json.dumps(value) if "INVALID_JSON" in value else arguments
