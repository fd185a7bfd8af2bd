"""Models behind Anthropic's Messages API.

    user text      {"role": "user", "content": [{"type": "text", "text": "..."}]}
    reply          {"role": "assistant", "content": [thinking with its signature, text, tool_use]}, blocks unchanged
    tool results   {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", ...}, ...]}

The cache marker is the request's own (`cache_control`), not a block's, so the bytes of a message never change.
Thinking is signed for the conversation before it, and the provider refuses it in another one. A history whose old tool
results were cleared is another one: from the first changed item on, thinking is left out.
Not covered: tools that the provider runs itself, manual budgets of thinking (models before Claude 4.6).
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from dkgi.lines import Lines
from dkgi.models.provider import Answer, ProviderModel, ProviderModels, ProviderSpec, Transports, ask, json_object
from dkgi.types import Item, ModelSource, Reply, ToolCall, ToolResult, ToolSpec, UserText

_STOPS: dict[str | None, Literal["length", "refused"]] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}
_THINKING = ("thinking", "redacted_thinking")


def open_source(spec: ProviderSpec, transports: Transports | None = None, lines: Lines | None = None) -> ModelSource:
    """The models of one provider. Raises SetupError where the key is missing."""
    # Here and not where a thread first asks: it takes a second.
    from anthropic import Anthropic

    return ProviderModels(spec, Anthropic, _Messages, transports, lines)


@dataclass(frozen=True, slots=True)
class _Messages(ProviderModel):
    path: ClassVar[str] = "/v1/messages"

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        messages, digest = encode(history)
        body = request(self.spec, messages, tools)
        create = self.client.messages.with_raw_response.create
        reply = ask(self.transport, lambda: create(**body).http_response, read_reply)
        return replace(reply, native={"content": reply.native, "before": digest})

    def read(self, answer: Answer) -> Reply:
        return read_reply(answer)


def request(spec: ProviderSpec, messages: Sequence[dict[str, Any]], tools: Sequence[ToolSpec]) -> dict[str, Any]:
    """The body of a request."""
    body: dict[str, Any] = {
        "model": spec.model,
        "messages": messages,
        "max_tokens": spec.max_output_tokens,
        "cache_control": {"type": "ephemeral"},
        "stream": spec.stream,
    }
    if tools:
        body["tools"] = [
            {"name": tool.name, "description": tool.description, "input_schema": tool.parameters} for tool in tools
        ]
    if spec.effort is not None:
        body["thinking"] = {"type": "adaptive", "display": "summarized"}
        body["output_config"] = {"effort": spec.effort}
    return body


def encode(history: Sequence[Item]) -> tuple[list[dict[str, Any]], str]:
    """The messages of a history, and a digest of them by which a later request sees whether they have changed."""
    messages: list[dict[str, Any]] = []
    digest = hashlib.sha256()
    for item in history:
        if isinstance(item, Reply):
            role = "assistant"
            blocks = [block for block in item.native["content"] if _may_return(block)]
            if item.native["before"] != digest.hexdigest():
                blocks = [block for block in blocks if block["type"] not in _THINKING]
        else:
            role, blocks = "user", [_block(item)]
        digest.update(json.dumps(blocks).encode())
        # All results of one reply's calls belong in one message.
        if messages and messages[-1]["role"] == role:
            messages[-1]["content"] += blocks
        else:
            messages.append({"role": role, "content": blocks})
    return messages, digest.hexdigest()


def _block(item: UserText | ToolResult) -> dict[str, Any]:
    if isinstance(item, UserText):
        return {"type": "text", "text": item.text}
    return {"type": "tool_result", "tool_use_id": item.call_id, "content": item.text, "is_error": item.is_error}


def _may_return(block: dict[str, Any]) -> bool:
    """Whether the provider takes back a block that it sent: not where it is empty, or was cut before its signature."""
    return bool(block.get({"text": "text", "thinking": "signature"}.get(block["type"], "type")))


def read_reply(answer: Answer) -> Reply:
    """A reply from a message, or from its stream of events. `native` is the list of its blocks."""
    message, written = _gather(answer) if isinstance(answer, list) else (answer, dict[str, str]())
    blocks = message["content"]
    calls = tuple(
        ToolCall(block["id"], block["name"], written.get(block["id"]) or json.dumps(block["input"]))
        for block in blocks
        if block["type"] == "tool_use"
    )
    return Reply(
        text="".join(block["text"] for block in blocks if block["type"] == "text"),
        calls=calls,
        reasoning_summary="\n\n".join(
            block["thinking"] for block in blocks if block["type"] == "thinking" and block["thinking"]
        ),
        stop=_STOPS.get(message.get("stop_reason"), "end"),
        native=blocks,
    )


def _gather(events: Iterable[dict[str, Any]]) -> tuple[dict[str, Any], dict[str, str]]:
    """The whole message of a stream, and what the model wrote as arguments, by the call's id."""
    message: dict[str, Any] = {}
    blocks: dict[int, dict[str, Any]] = {}
    for event in events:
        if event["type"] == "content_block_start":
            blocks[event["index"]] = dict(event["content_block"])
        elif event["type"] == "content_block_delta":
            _add(blocks[event["index"]], event["delta"])
        elif event["type"] == "message_delta":
            message |= event["delta"]
    written = {block["id"]: block.pop("written") for block in blocks.values() if "written" in block}
    for block in blocks.values():
        if block.get("id") in written:
            block["input"] = json_object(written[block["id"]])
    return message | {"content": [blocks[index] for index in sorted(blocks)]}, written


def _add(block: dict[str, Any], delta: dict[str, Any]) -> None:
    """Append a delta to its block; other deltas than these (citations) only come with tools that we do not offer."""
    if delta["type"] == "input_json_delta":
        # An empty first piece stands for no arguments, which is the empty object that the block began with.
        if delta["partial_json"]:
            block["written"] = block.get("written", "") + delta["partial_json"]
    elif delta["type"] == "signature_delta":
        block["signature"] = delta["signature"]
    elif delta["type"] in ("text_delta", "thinking_delta"):
        key = delta["type"].removesuffix("_delta")
        block[key] += delta[key]
