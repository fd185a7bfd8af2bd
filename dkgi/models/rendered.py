"""A model of our own as an external program sees it: behind OpenAI's Responses API, in the forms that programs send.

>>> Rendered(heuristic).forward(b'{"input": [{"role": "user", "content": "..."}], "tools": [...], "stream": true}', {})
Passed(content_type='text/event-stream', body=b'event: response.created...', reply=Reply(...))

The model gets user messages, replies and results as its history; what system and developer messages say it does not see.
Tools come as functions, in namespaces (those of MCP servers) or without a schema: these are offered with the one argument
`input`, and called with it or with the text itself.
Not covered: tools that a provider would run itself.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from dkgi.models.openai_responses import read_reply
from dkgi.models.provider import Passed
from dkgi.trajectory import text_of
from dkgi.types import Face, Item, Model, ModelError, Reply, ToolCall, ToolResult, ToolSpec, Usage, UserText

Json = dict[str, Any]

_FACE = Face("openai_responses", "local", "high", context_window=272_000, max_output_tokens=32_000)
_SAID = ("reasoning", "function_call", "custom_tool_call")
_ONE_TEXT = {"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}


@dataclass(frozen=True, slots=True)
class Rendered:
    model: Model

    @property
    def face(self) -> Face:
        return _FACE

    @property
    def so_far(self) -> Usage:
        """Nothing: such a model says what it used when it replies."""
        return Usage()

    def forward(self, body: bytes, headers: Mapping[str, str]) -> Passed:
        """Answer a request. Raises ModelError where the model does, and where the request is none of this wire."""
        try:
            request = orjson.loads(body)
            history, tools = list(_history(request["input"])), _tools(request)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(f"the request cannot be read: {error!r}", kind="bad_request") from None
        reply = self.model.reply(history, [tool.spec for tool in tools.values()])
        response = _response(reply, tools, number=len(history))
        if request.get("stream"):
            return Passed("text/event-stream", b"".join(_events(response)), reply)
        return Passed("application/json", orjson.dumps(response), reply)


@dataclass(frozen=True, slots=True)
class _Offered:
    """A tool as the program offers it: `type` is function or custom; its `namespace`, or None."""

    spec: ToolSpec
    type: str
    namespace: str | None


def _history(items: str | Sequence[Json]) -> Iterator[Item]:
    """The conversation; what the model said between two things that it was told is one reply."""
    said: list[Json] = []
    names: dict[str, str] = {}
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        kind, role = item.get("type", "message"), item.get("role")
        if role == "assistant":
            said.append(item | {"type": "message", "content": _parts(item["content"])})
        elif kind in _SAID:
            said.append(item)
            names |= {item["call_id"]: item["name"]} if kind != "reasoning" else {}
        elif role == "user" or kind.endswith("_output"):
            yield from _reply(said)
            said = []
            if role == "user":
                yield UserText(text_of(item["content"]))
            else:
                yield ToolResult(item["call_id"], names.get(item["call_id"], ""), text_of(item["output"]))
    yield from _reply(said)


def _parts(content: str | list[Json]) -> list[Json]:
    return [{"type": "output_text", "text": content}] if isinstance(content, str) else content


def _reply(said: list[Json]) -> Iterator[Reply]:
    if said:
        yield read_reply({"output": said})


def _tools(request: Json) -> dict[str, _Offered]:
    """The tools by name, from the request itself or from its first items, where Codex's short form has them."""
    items = request["input"] if isinstance(request["input"], list) else []
    listed = [*(request.get("tools") or ())]
    for item in items:
        listed += item["tools"] if item.get("type") == "additional_tools" else ()
    tools: dict[str, _Offered] = {}
    for tool, namespace in _flat(listed, None):
        if tool["type"] in ("function", "custom"):
            schema = tool.get("parameters") or _ONE_TEXT
            spec = ToolSpec(tool["name"], tool.get("description") or "", schema)
            tools.setdefault(spec.name, _Offered(spec, tool["type"], namespace))
    return tools


def _flat(listed: Sequence[Json], namespace: str | None) -> Iterator[tuple[Json, str | None]]:
    for tool in listed:
        if tool["type"] == "namespace":
            yield from _flat(tool["tools"], tool["name"])
        else:
            yield tool, namespace


# ------------------------------------------------------------------- replies


def _response(reply: Reply, tools: Mapping[str, _Offered], *, number: int) -> Json:
    """The reply as a whole response; `number` makes its ids differ from those of other replies."""
    usage = reply.usage
    reasons = {"length": "max_output_tokens"}
    return {
        "id": f"resp_{number}",
        "object": "response",
        "created_at": 0,
        "model": _FACE.model,
        "status": "incomplete" if reply.stop in reasons else "completed",
        "incomplete_details": {"reason": reasons[reply.stop]} if reply.stop in reasons else None,
        "error": None,
        "output": list(_items(reply, tools, number)),
        "usage": {
            "input_tokens": usage.input_tokens,
            "input_tokens_details": {"cached_tokens": usage.cache_read, "cache_write_tokens": usage.cache_write},
            "output_tokens": usage.output,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning},
            "total_tokens": usage.input_tokens + usage.output,
        },
    }


def _items(reply: Reply, tools: Mapping[str, _Offered], number: int) -> Iterator[Json]:
    if reply.reasoning_summary:
        summary = [{"type": "summary_text", "text": reply.reasoning_summary}]
        # Programs send reasoning back only with its encrypted form.
        yield {"id": f"rs_{number}", "type": "reasoning", "summary": summary, "encrypted_content": "none"}
    if reply.text or not reply.calls:
        part: Json = {"type": "output_text", "text": reply.text, "annotations": []}
        if reply.stop == "refused":
            part = {"type": "refusal", "refusal": reply.text}
        message = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "completed"}
        yield message | {"content": [part]}
    for place, call in enumerate(reply.calls):
        item = {"status": "completed", "call_id": call.id, "name": call.name}
        yield item | _call(call, tools.get(call.name), f"{number}_{place}")


def _call(call: ToolCall, tool: _Offered | None, number: str) -> Json:
    namespace = {"namespace": tool.namespace} if tool and tool.namespace else {}
    if tool and tool.type == "custom":
        return {"id": f"ctc_{number}", "type": "custom_tool_call", "input": _one_text(call.arguments)} | namespace
    return {"id": f"fc_{number}", "type": "function_call", "arguments": call.arguments} | namespace


def _one_text(arguments: str) -> str:
    """What a tool without a schema gets; what is no such object the model wrote as the text itself."""
    try:
        text = json.loads(arguments)["input"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return arguments
    return text if isinstance(text, str) else arguments


def _events(response: Json) -> Iterator[bytes]:
    """The stream of a response, each text in one piece."""
    begun = response | {"status": "in_progress", "output": [], "usage": None, "incomplete_details": None}
    events: list[Json] = [{"type": "response.created", "response": begun}]
    for place, item in enumerate(response["output"]):
        where = {"output_index": place, "item_id": item["id"]}
        empty = {key: type(item[key])() for key in ("content", "arguments", "input", "summary") if key in item}
        added = item | empty | ({"status": "in_progress"} if "status" in item else {})
        events.append({"type": "response.output_item.added", "output_index": place, "item": added})
        events += [{"type": f"response.{kind}", **where, **data} for kind, data in _telling(item)]
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": f"response.{response['status']}", "response": response})
    for number, event in enumerate(events):
        content = orjson.dumps(event | {"sequence_number": number})
        yield b"event: " + event["type"].encode() + b"\ndata: " + content + b"\n\n"


def _telling(item: Json) -> Iterator[tuple[str, Json]]:
    """The events between an item's first and its last one."""
    if item["type"] == "message":
        (part,) = item["content"]
        key = "refusal" if part["type"] == "refusal" else "text"
        yield "content_part.added", {"content_index": 0, "part": part | {key: ""}}
        yield f"{part['type']}.delta", {"content_index": 0, "delta": part[key]}
        yield f"{part['type']}.done", {"content_index": 0, key: part[key]}
        yield "content_part.done", {"content_index": 0, "part": part}
    elif item["type"] == "reasoning":
        (part,) = item["summary"]
        yield "reasoning_summary_part.added", {"summary_index": 0, "part": part | {"text": ""}}
        yield "reasoning_summary_text.delta", {"summary_index": 0, "delta": part["text"]}
        yield "reasoning_summary_text.done", {"summary_index": 0, "text": part["text"]}
        yield "reasoning_summary_part.done", {"summary_index": 0, "part": part}
    elif item["type"] == "custom_tool_call":
        yield "custom_tool_call_input.delta", {"delta": item["input"]}
        yield "custom_tool_call_input.done", {"input": item["input"]}
    else:
        yield "function_call_arguments.delta", {"delta": item["arguments"]}
        yield "function_call_arguments.done", {"arguments": item["arguments"]}
