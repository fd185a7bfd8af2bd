"""A trajectory as the spans of an MLflow trace: the agent, its replies as chat turns, its tool calls.

    AGENT         hpo:00017    prompt -> final message
      CHAT_MODEL  reply 1      prompt -> text and tool calls
      TOOL        bash         {"command": "ls /graph"} -> output
      CHAT_MODEL  reply 2      output -> text

Each reply holds only the messages that are new to it: with the whole history a trace would grow with the square of
the turns. Texts of agents and tools are code or plain to the UI, never live Markdown. Pure data; the dictionaries are what `mlflow.entities.Span.from_dict` reads.
Not covered: writing traces (tracking.py), and attempts before the last one, which trajectory.jsonl has.
"""

import base64
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from dkgi.pricing import dollars
from dkgi.types import Prices, Step, Usage

TEXT_CHARS = 20_000
"""Characters kept of one text, a little more than a model sees of one output."""
READ_CHARS = 4_000
"""Characters of a tool's output that the next reply repeats; the tool's own span has it whole."""

_REPLY = ("reasoning_summary", "assistant", "tool_call")


def spans(steps: Sequence[Step], *, trace: str, name: str, model: str, prices: Prices | None) -> list[dict[str, Any]]:
    """The spans of one attempt, root first. `trace` is 32 hex digits; the span ids count from 1.

    Without prices no span names its model, since MLflow would then look for a price of its own.
    """
    if not steps:
        return []
    answer = next((step for step in reversed(steps) if step.type == "assistant"), None)
    prompt = [_message(step) for step in steps if step.type == "user"]
    root = _span(trace, 1, name, "AGENT", steps[0].time, steps[-1].time)
    _chat(root, prompt, _choice([answer] if answer else []))
    found = [root]
    turn = 0
    for number, (began, read, part) in enumerate(_parts(steps), 2):
        if part[0].type == "tool_result":
            found.append(_tool(trace, number, began, read[0] if read else None, part[0]))
        else:
            turn += 1
            span = _span(trace, number, f"reply {turn}", "CHAT_MODEL", began, part[-1].time)
            _chat(span, [_message(step) for step in read], _choice(part))
            if usage := part[0].usage:
                _attributes(span, _spent(usage, model, prices))
            found.append(span)
    return found


def _parts(steps: Sequence[Step]) -> Iterator[tuple[float, list[Step], list[Step]]]:
    """Replies and tool results in order, each with the time it began and the steps it answers.

    A reply begins with a step that carries usage or follows something that is not of a reply.
    """
    calls = {step.call_id: step for step in steps if step.type == "tool_call"}
    unread: list[Step] = []
    reply: list[Step] = []
    began = clock = steps[0].time
    for step in steps:
        if reply and (step.type not in _REPLY or step.usage is not None):
            yield began, unread, reply
            unread, reply = [], []
        if step.type in _REPLY:
            began = began if reply else clock
            reply.append(step)
        else:
            unread.append(step)
            if step.type == "tool_result":
                call = calls.get(step.call_id)
                yield clock, [call] if call else [], [step]
        clock = max(clock, step.time)
    if reply:
        yield began, unread, reply


def _spent(usage: Usage, model: str, prices: Prices | None) -> dict[str, Any]:
    values: dict[str, Any] = {
        "mlflow.chat.tokenUsage": {
            "input_tokens": usage.input_tokens,
            "output_tokens": usage.output,
            "total_tokens": usage.input_tokens + usage.output,
            "cache_read_input_tokens": usage.cache_read,
            "cache_creation_input_tokens": usage.cache_write,
        },
        "reasoning_tokens": usage.reasoning,
    }
    total = dollars(usage, prices)
    read = dollars(replace(usage, output=0), prices)
    if total is not None and read is not None:
        cost = {"input_cost": read, "output_cost": total - read, "total_cost": total}
        values |= {"mlflow.llm.model": model, "mlflow.llm.cost": cost}
    return values


def _tool(trace: str, number: int, began: float, call: Step | None, result: Step) -> dict[str, Any]:
    name = result.name or "tool"
    span = _span(trace, number, f"{name} ✗" if result.is_error else name, "TOOL", began, result.time)
    if result.is_error:
        span["status"] = {"code": "STATUS_CODE_ERROR", "message": ""}
    inputs = _arguments(call.text) if call else {}
    _attributes(span, {"mlflow.spanInputs": inputs, "mlflow.spanOutputs": _code(result.text)})
    return span


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call, each as code; what is no JSON object, as one text."""
    try:
        values = json.loads(text)
        shown = {key: value if isinstance(value, str) else json.dumps(value) for key, value in values.items()}
        json.dumps(shown, ensure_ascii=False).encode()
    # No JSON object, nested too deeply, or half a surrogate pair that only its escaped form can hold.
    except (ValueError, AttributeError, RecursionError):
        return {"arguments": _code(text)}
    return {key: _code(value) for key, value in shown.items()}


def _span(trace: str, number: int, name: str, kind: str, began: float, ended: float) -> dict[str, Any]:
    span: dict[str, Any] = {
        "trace_id": base64.b64encode(bytes.fromhex(trace)).decode(),
        "span_id": _span_id(number),
        "parent_span_id": None if number == 1 else _span_id(1),
        "name": name,
        "start_time_unix_nano": round(began * 1e9),
        "end_time_unix_nano": round(max(began, ended) * 1e9),
        "status": {"code": "STATUS_CODE_OK", "message": ""},
        "events": [],
        "attributes": {},
    }
    _attributes(span, {"mlflow.traceRequestId": f"tr-{trace}", "mlflow.spanType": kind})
    return span


def _span_id(number: int) -> str:
    return base64.b64encode(number.to_bytes(8, "big")).decode()


def _chat(span: dict[str, Any], messages: list[dict[str, Any]], choice: dict[str, Any]) -> None:
    values = {
        "mlflow.spanInputs": {"messages": messages},
        "mlflow.spanOutputs": choice,
        "mlflow.message.format": "openai",
    }
    _attributes(span, values)


def _attributes(span: dict[str, Any], values: dict[str, Any]) -> None:
    span["attributes"] |= {key: json.dumps(value, ensure_ascii=False) for key, value in values.items()}


def _message(step: Step) -> dict[str, Any]:
    if step.type == "tool_result":
        return {"role": "tool", "tool_call_id": step.call_id, "content": _cut(step.text, READ_CHARS)}
    return {"role": "user", "content": _prose(step.text)}


def _choice(reply: Sequence[Step]) -> dict[str, Any]:
    calls = [
        {"id": step.call_id, "type": "function", "function": {"name": step.name, "arguments": _cut(step.text)}}
        for step in reply
        if step.type == "tool_call"
    ]
    text = "\n\n".join(_prose(step.text) for step in reply if step.type != "tool_call")
    message: dict[str, Any] = {"role": "assistant", "content": text}
    if calls:
        message["tool_calls"] = calls
    return {"choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if calls else "stop"}]}


def _prose(text: str) -> str:
    """For a place where the UI renders Markdown: an image would make the reader's browser call a foreign host."""
    return _cut(text).replace("![", "!\\[")


def _code(text: str) -> str:
    """A fenced block that `text` cannot end, for a place where the UI renders Markdown."""
    ticks = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, ticks + 1)
    return f"{fence}\n{_cut(text)}\n{fence}"


def _cut(text: str, chars: int = TEXT_CHARS) -> str:
    return text if len(text) <= chars else f"{text[:chars]} [... {len(text) - chars} more characters]"
