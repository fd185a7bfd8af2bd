"""A model that is no server, played through Codex: what it asks of bash and read becomes JavaScript for Codex's tools.

>>> model = play_in_codex(heuristic, "the prompt", ("bash", "read"), shape)
>>> print(model.reply(history, tools).calls[0].arguments)
// @exec: {"yield_time_ms": 86400000}
let r = await tools.exec_command({"cmd": "sed -n 1,2000p -- DATA_FORMAT.txt"});
...

The model sees the tools of the policy and their outputs as native shows them, except that Codex has cut the long ones.
A command that Codex hands back before its end is waited for in the same program. Calls by other names pass as they are.
Not covered: models behind a server, which see Codex's own tools.
"""

import json
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from dkgi.harness.codex_command import SERVER, Shape
from dkgi.tools import READ_LINES, message, tool_spec
from dkgi.types import Item, Model, Reply, ToolCall, ToolResult, ToolSpec, UserText

TOOL = "exec"
_HEADS = (
    re.compile(r"Script (?:completed|failed)\nWall time [\d.]+ seconds\nOutput:\n"),
    re.compile(r"Wall time: [\d.]+ seconds\nOutput:\n?"),
)
# A program is not handed back before its end, and polls the command that is.
_PROGRAM = """// @exec: {"yield_time_ms": 86400000}
let r = await tools.exec_command(%(arguments)s);
let output = r.output;
while (r.session_id !== undefined) {
  r = await tools.write_stdin({session_id: r.session_id, chars: "", yield_time_ms: 30000});
  output += r.output;
}
const end = r.exit_code ? %(exit_code)s.replace("$code", r.exit_code) : "";
text((end && output ? output.replace(/\\n$/, "") + "\\n" : output) + end || %(no_output)s);
"""
_GRAPH_CALL = """// @exec: {"yield_time_ms": 86400000}
const r = await tools.mcp__%(server)s__%(name)s(%(arguments)s);
text(r.content.map((part) => part.text).join(""));
"""


@dataclass(frozen=True, slots=True)
class PlayedInCodex:
    """`model` under its `prompt` and the tools `names`, in Codex's tools of this `shape`."""

    model: Model
    prompt: str
    names: tuple[str, ...]
    shape: Shape

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        seen = [item for item in map(self._seen, history) if item is not None]
        reply = self.model.reply(seen, [tool_spec(name) for name in self.names])
        return replace(reply, calls=tuple(map(self._call, reply.calls)))

    def _seen(self, item: Item) -> Item | None:
        """What the model sees of it: neither what Codex tells of its surroundings nor how long a tool took."""
        if isinstance(item, UserText):
            return item if item.text == self.prompt else None
        if isinstance(item, ToolResult):
            heads = [found.end() for pattern in _HEADS if (found := pattern.match(item.text))]
            return replace(item, text=item.text[max(heads, default=0) :])
        return item

    def _call(self, call: ToolCall) -> ToolCall:
        program = self._program(call)
        return call if program is None else ToolCall(call.id, TOOL, program)

    def _program(self, call: ToolCall) -> str | None:
        """The JavaScript of a call; None where Codex takes the call itself, or is to refuse it."""
        known = call.name in self.names and (self.shape.shell or self.shape.code)
        if not known:
            return None
        try:
            arguments = json.loads(call.arguments)
            if self.shape.code:
                return _GRAPH_CALL % {"server": SERVER, "name": call.name, "arguments": json.dumps(dict(arguments))}
            return _command_program(_COMMANDS[call.name](arguments))
        except (ValueError, KeyError, TypeError) as error:
            return f"text({json.dumps(message('bad_arguments', name=call.name, reason=error, example='{}'))});"


def play_in_codex(model: Model, prompt: str, tools: tuple[str, ...], shape: Shape) -> PlayedInCodex:
    """Where there are tools of the graph these are what a model is offered, by its functions or its JavaScript."""
    return PlayedInCodex(model, prompt, shape.graph or tools, shape)


def _command_program(command: str) -> str:
    return _PROGRAM % {
        "arguments": json.dumps({"cmd": command}),
        "exit_code": json.dumps(message("exit_code", code="$code")),
        "no_output": json.dumps(message("no_output")),
    }


def _bash(arguments: dict[str, Any]) -> str:
    command = str(arguments["command"])
    seconds = arguments.get("timeout")
    return command if seconds is None else f"timeout {float(seconds)} /bin/bash -c {shlex.quote(command)}"


def _read(arguments: dict[str, Any]) -> str:
    first = int(arguments.get("offset", 1))
    last = first + min(int(arguments.get("limit", READ_LINES)), READ_LINES) - 1
    return f"sed -n {first},{last}p -- {shlex.quote(str(arguments['path']))}"


_COMMANDS = {"bash": _bash, "read": _read}
