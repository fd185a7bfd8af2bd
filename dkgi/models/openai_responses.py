"""Models behind OpenAI's Responses API.

    user text     {"role": "user", "content": "..."}
    reply         the provider's own items, unchanged: reasoning with its encrypted content, message, function_call
    tool result   {"type": "function_call_output", "call_id": "call_1", "output": "141 schema.json"}

Nothing is stored at the provider (`store: false`), so each request carries the whole history, and its reasoning
encrypted. The bytes up to the new items are those of the request before: that, and a cache key of the prompt, is what
the provider's prompt cache needs to hit.
Not covered: tools that the provider runs itself, replies that are not text or calls.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dkgi.lines import Lines
from dkgi.models.provider import Answer, ProviderModel, ProviderModels, ProviderSpec, Transports, ask
from dkgi.types import Item, ModelSource, Reply, ToolCall, ToolResult, ToolSpec, UserText

_LAST_EVENTS = ("response.completed", "response.incomplete")


def open_source(spec: ProviderSpec, transports: Transports | None = None, lines: Lines | None = None) -> ModelSource:
    """The models of one provider. Raises SetupError where the key is missing."""
    # Here and not where a thread first asks: it takes a second.
    from openai import OpenAI

    return ProviderModels(spec, OpenAI, _Responses, transports, lines)


@dataclass(frozen=True, slots=True)
class _Responses(ProviderModel):
    path: ClassVar[str] = "/responses"

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        body = request(self.spec, history, tools)
        create = self.client.responses.with_raw_response.create
        return ask(self.transport, lambda: create(**body).http_response, read_reply)

    def read(self, answer: Answer) -> Reply:
        return read_reply(answer)


def request(spec: ProviderSpec, history: Sequence[Item], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = {
        "model": spec.model,
        "input": [entry for item in history for entry in _entries(item)],
        "max_output_tokens": spec.max_output_tokens,
        "prompt_cache_key": _cache_key(history),
        "store": False,
        "stream": spec.stream,
    }
    if tools:
        body["tools"] = [
            {
                "type": "function",
                "name": tool.name,
                "description": tool.description,
                "parameters": tool.parameters,
                "strict": False,
            }
            for tool in tools
        ]
    if spec.effort is not None:
        body["reasoning"] = {"effort": spec.effort, "summary": "auto"}
        body["include"] = ["reasoning.encrypted_content"]
    return body


def _entries(item: Item) -> list[dict[str, Any]]:
    if isinstance(item, UserText):
        return [{"role": "user", "content": item.text}]
    if isinstance(item, ToolResult):
        return [{"type": "function_call_output", "call_id": item.call_id, "output": item.text}]
    entries: list[dict[str, Any]] = item.native
    return entries


def _cache_key(history: Sequence[Item]) -> str:
    """The same for all requests that begin with the same prompt, so that the provider sends them to the same cache."""
    prompt = next((item.text for item in history if isinstance(item, UserText)), "")
    return hashlib.sha256(prompt.encode()).hexdigest()[:32]


def read_reply(answer: Answer) -> Reply:
    """A reply from a response, or from its stream of events."""
    done: dict[int, dict[str, Any]] = {}
    if isinstance(answer, list):
        done = {
            event["output_index"]: event["item"] for event in answer if event["type"] == "response.output_item.done"
        }
        (response, *_) = [event["response"] for event in answer if event["type"] in _LAST_EVENTS]
    else:
        response = answer
    # The encrypted reasoning is only sure to be whole in an item's own last event.
    found = dict(enumerate(response["output"])) | done
    items = [found[index] for index in sorted(found)]
    reason = (response.get("incomplete_details") or {}).get("reason")
    parts = [part for item in items if item["type"] == "message" for part in item["content"]]
    refusals = [part["refusal"] for part in parts if part["type"] == "refusal"]
    *comments, text = [_text(item) for item in items if item["type"] == "message"] or [""]
    summaries = [part["text"] for item in items if item["type"] == "reasoning" for part in item.get("summary") or ()]
    return Reply(
        text="".join(refusals) or text,
        calls=tuple(_call(item) for item in items if item["type"] in ("function_call", "custom_tool_call")),
        # A reply of several messages answers with the last one; those before are remarks on the way.
        reasoning_summary="\n\n".join([*summaries, *comments]),
        stop="refused" if refusals or reason == "content_filter" else "length" if reason else "end",
        native=items,
    )


def _call(item: dict[str, Any]) -> ToolCall:
    """A call; a tool without a schema (Codex's JavaScript) gets a text that is no JSON."""
    return ToolCall(item["call_id"], item["name"], item["arguments" if item["type"] == "function_call" else "input"])


def _text(message: dict[str, Any]) -> str:
    return "".join(part["text"] for part in message["content"] if part["type"] == "output_text")
