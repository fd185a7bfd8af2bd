"""The steps of a trajectory, from what a model was told and what it replied.

>>> trajectory = Trajectory("openai_chat")
>>> trajectory.asked({"messages": [{"role": "user", "content": "Which diseases ...?"}]})
[Step(type='user', text='Which diseases ...?', ...)]
>>> trajectory.answered(Reply(calls=(ToolCall("call_1", "bash", '{"command": "ls"}'),), usage=Usage(requests=1)))
[Step(type='tool_call', text='{"command": "ls"}', name='bash', call_id='call_1', ..., usage=Usage(...))]

An external program sends its whole conversation with each request; an item becomes a step when it first appears. A
result that is sent again cut or cleared is the same item, since its call's id says so.
Not covered: what system and developer messages say (the raw record has it); steps of our own loop's tools.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from dkgi.types import Reply, Step, WireName

Json = Mapping[str, Any]


def steps_of(reply: Reply) -> list[Step]:
    """The steps of one reply; the first one carries its usage, and there is always a first one to carry it."""
    steps = [Step("reasoning_summary", reply.reasoning_summary)] if reply.reasoning_summary else []
    if reply.text or not (steps or reply.calls):
        steps.append(Step("assistant", reply.text))
    steps += [Step("tool_call", call.arguments, name=call.name, call_id=call.id) for call in reply.calls]
    return [replace(steps[0], usage=reply.usage), *steps[1:]]


class Trajectory:
    """One attempt's conversation as it goes over `wire`."""

    def __init__(self, wire: WireName) -> None:
        self._read = _READERS[wire]
        self._seen: Counter[tuple[str, str]] = Counter()
        self._names: dict[str, str] = {}

    def asked(self, body: Json) -> list[Step]:
        """What a request tells the model for the first time. Raises ValueError where its items are no such items."""
        try:
            told = list(self._read(body))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"the request's conversation cannot be read: {error!r}") from None
        steps = []
        times: Counter[tuple[str, str]] = Counter()
        for step in told:
            # Some servers give the calls of all replies the same ids, and people say the same thing twice.
            item = (step.type, step.text if step.call_id is None else step.call_id)
            times[item] += 1
            if times[item] > self._seen[item]:
                self._seen[item] = times[item]
                steps.append(replace(step, name=self._names.get(step.call_id or "")))
        return steps

    def answered(self, reply: Reply) -> list[Step]:
        self._names |= {call.id: call.name for call in reply.calls}
        return steps_of(reply)


def text_of(content: Any) -> str:
    """The text of an item, which comes as such, in parts, or not at all."""
    if isinstance(content, str):
        return content
    return "".join(part.get("text") or "" for part in content or ())


def _responses(body: Json) -> Iterator[Step]:
    items = body["input"]
    for item in [{"role": "user", "content": items}] if isinstance(items, str) else items:
        if item.get("role") == "user":
            yield Step("user", text_of(item["content"]))
        elif item.get("type") in ("function_call_output", "custom_tool_call_output"):
            # This wire does not say whether a call failed, nor does the next one.
            yield Step("tool_result", text_of(item["output"]), call_id=item["call_id"])


def _chat(body: Json) -> Iterator[Step]:
    for message in body["messages"]:
        if message["role"] == "user":
            yield Step("user", text_of(message["content"]))
        elif message["role"] == "tool":
            yield Step("tool_result", text_of(message["content"]), call_id=message["tool_call_id"])


def _messages(body: Json) -> Iterator[Step]:
    for message in body["messages"]:
        if message["role"] != "user":
            continue
        content = message["content"]
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        for block in blocks:
            if block["type"] == "tool_result":
                failed = bool(block.get("is_error"))
                yield Step("tool_result", text_of(block.get("content")), call_id=block["tool_use_id"], is_error=failed)
        if text := text_of([block for block in blocks if block["type"] == "text"]):
            yield Step("user", text)


_READERS: dict[WireName, Callable[[Json], Iterator[Step]]] = {
    "openai_responses": _responses,
    "openai_chat": _chat,
    "anthropic_messages": _messages,
}
