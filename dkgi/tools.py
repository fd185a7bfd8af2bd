"""The tools that a harness offers: bash and read for shell and files, and those of the graph that it is given.

>>> bash.call({"command": "wc -l schema.json"}, timeout_s=60).text
'141 schema.json\\n'

bash and read work only through the commands of the attempt's jail: no host code opens a path that an agent named. What
the model reads of tools lies in prompts/tools. A tool's failure is its output, so a harness has no branch for it.
Not covered: what graph tools do (kg/); the jail itself (jail/).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from string import Template
from typing import Any

from dkgi.paths import data_dir
from dkgi.truncate import head_tail
from dkgi.types import CommandResult, CommandRunner, SandboxError, TextTool, Tool, ToolCall, ToolOutput, ToolSpec

READ_LINES = 2_000
READ_BYTES = 50 * 1024
GRAPH_TOOLS = ("get_schema", "search", "get_node", "neighbors")
"""Tools that look into the graph without its files (paper, section 7)."""

_EXAMPLES = {"string": "text", "integer": 1, "number": 60}
_PYTHON_TYPES: dict[str, tuple[type, ...]] = {"string": (str,), "integer": (int,), "number": (int, float)}


def make_tools(names: Sequence[str], commands: CommandRunner, graph_tools: Mapping[str, Tool]) -> dict[str, Tool]:
    """The named tools of one attempt, in that order."""
    return {name: graph_tools[name] if name in GRAPH_TOOLS else _TOOLS[name](commands) for name in names}


def run_call(call: ToolCall, tools: Mapping[str, Tool], *, timeout_s: float) -> ToolOutput:
    """Run what a model asked for. Unknown tools and malformed arguments come back as errors that teach the right call.

    Raises SandboxError where no jail could be started.
    """
    tool = tools.get(call.name)
    if tool is None:
        return ToolOutput(message("unknown_tool", name=call.name, tools=", ".join(tools)), is_error=True)
    if isinstance(tool, TextTool):
        return tool.call_text(call.arguments, timeout_s=timeout_s)
    example = json.dumps(
        {key: _EXAMPLES[tool.spec.parameters["properties"][key]["type"]] for key in tool.spec.parameters["required"]}
    )
    try:
        args = _plain(json.loads(call.arguments or "{}"), tool.spec.parameters)
    except (ValueError, RecursionError) as error:
        return ToolOutput(message("not_json", name=call.name, reason=error, example=example), is_error=True)
    if reason := _wrong_arguments(args, tool.spec.parameters):
        return ToolOutput(message("bad_arguments", name=call.name, reason=reason, example=example), is_error=True)
    return tool.call(args, timeout_s=timeout_s)


def _plain(args: Any, parameters: Mapping[str, Any]) -> Any:
    """Arguments as models mean them: null for one that can be left out, and 2.0 for an integer."""
    if not isinstance(args, dict):
        return args
    whole = {name for name, schema in parameters["properties"].items() if schema["type"] == "integer"}
    return {
        name: int(value) if name in whole and isinstance(value, float) and value.is_integer() else value
        for name, value in args.items()
        if value is not None or name in parameters["required"]
    }


def _wrong_arguments(args: Any, parameters: Mapping[str, Any]) -> str:
    """What is wrong with `args` under a flat JSON schema, or an empty string."""
    if not isinstance(args, dict):
        return "the arguments must be an object"
    for name in parameters["required"]:
        if name not in args:
            return f"{name} is missing"
    for name, value in args.items():
        if name not in parameters["properties"]:
            return f"there is no argument {name}"
        wanted = parameters["properties"][name]
        if isinstance(value, bool) or not isinstance(value, _PYTHON_TYPES[wanted["type"]]):
            return f"{name} must be of type {wanted['type']}"
        if isinstance(value, int | float) and (reason := _out_of_range(value, wanted)):
            return f"{name} must be {reason}"
    return ""


def _out_of_range(value: float, wanted: Mapping[str, Any]) -> str:
    """What a number should be, or an empty string where it is that; nan never is."""
    if "exclusiveMinimum" in wanted and not value > wanted["exclusiveMinimum"]:
        return f"greater than {wanted['exclusiveMinimum']}"
    if "minimum" in wanted and not value >= wanted["minimum"]:
        return f"{wanted['minimum']} or more"
    if "maximum" in wanted and not value <= wanted["maximum"]:
        return f"{wanted['maximum']} or less"
    return ""


@dataclass(frozen=True, slots=True)
class Bash:
    """Runs one command line and shows its output, long output as head and tail (paper, section 3)."""

    commands: CommandRunner

    @property
    def spec(self) -> ToolSpec:
        return tool_spec("bash")

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        if "\0" in args["command"]:
            return ToolOutput(
                message(
                    "bad_arguments", name="bash", reason="command holds a NUL character", example='{"command": "ls"}'
                ),
                is_error=True,
            )
        seconds = min(timeout_s, args.get("timeout", timeout_s))
        result = _run(self.commands, ["/bin/bash", "-c", args["command"]], seconds)
        parts = [head_tail(result.output, f"{result.shown_at}/{result.output.name}")]
        if result.killed_by:
            parts.append(message(f"killed_{result.killed_by}", seconds=round(seconds, 1)))
        elif result.exit_code:
            parts.append(message("exit_code", code=result.exit_code))
        text = "\n".join(part.removesuffix("\n") if len(parts) > 1 else part for part in parts if part)
        return ToolOutput(text or message("no_output"), is_error=bool(result.killed_by or result.exit_code))


@dataclass(frozen=True, slots=True)
class Read:
    """Shows lines of a file: 2,000 lines or 50 KB a call (paper, section 3)."""

    commands: CommandRunner

    @property
    def spec(self) -> ToolSpec:
        return tool_spec("read")

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        path, offset = args["path"], args.get("offset", 1)
        limit = min(args.get("limit", READ_LINES), READ_LINES)
        if not path or "\0" in path:
            return ToolOutput(message("read_failed", path=repr(path), reason="no such file"), is_error=True)
        argv = ["/bin/bash", "-c", _read_script(), "read", path, str(offset), str(limit), str(READ_BYTES)]
        result = _run(self.commands, argv, timeout_s)
        if result.killed_by:
            return ToolOutput(message(f"killed_{result.killed_by}", seconds=round(timeout_s, 1)), is_error=True)
        head, _, body = result.output.read_bytes().partition(b"\n")
        word, _, rest = head.decode("utf-8", "replace").partition(" ")
        if word != "total":
            return ToolOutput(message("read_failed", path=path, reason=rest or "unreadable"), is_error=True)
        return _show(body, path, offset, total=int(rest))


def _show(body: bytes, path: str, offset: int, *, total: int) -> ToolOutput:
    """The lines that were read, ending with a whole line, and how to go on."""
    if offset > max(total, 1):
        return ToolOutput(message("read_past_end", offset=offset, total=total), is_error=True)
    if len(body) == READ_BYTES and not body.endswith(b"\n"):
        body = body[: body.rfind(b"\n") + 1]
        if not body:
            return ToolOutput(message("read_long_line", line=offset, bytes=READ_BYTES, path=path), is_error=True)
    text = body.decode("utf-8", "replace")
    shown = body.count(b"\n") + (bool(body) and not body.endswith(b"\n"))
    last = offset + shown - 1
    if last >= total:
        return ToolOutput(text or message("no_output"))
    return ToolOutput(text + message("read_more", first=offset, last=last, total=total, next=last + 1))


def _run(commands: CommandRunner, argv: Sequence[str], timeout_s: float) -> CommandResult:
    result = commands.run(argv, timeout_s=timeout_s)
    if result.killed_by in ("sandbox", "cancelled"):
        raise SandboxError(result.error or "the attempt is over")
    return result


def message(name: str, /, **values: object) -> str:
    """A line for the model from prompts/tools/messages.json."""
    return Template(_messages()[name]).substitute({key: str(value) for key, value in values.items()})


@cache
def _messages() -> dict[str, str]:
    texts: dict[str, str] = json.loads((data_dir("prompts") / "tools" / "messages.json").read_text())
    return texts


@cache
def tool_spec(name: str) -> ToolSpec:
    return ToolSpec(**json.loads((data_dir("prompts") / "tools" / f"{name}.json").read_text()))


@cache
def _read_script() -> str:
    return (data_dir("sandbox") / "read.sh").read_text()


_TOOLS: dict[str, type[Bash] | type[Read]] = {"bash": Bash, "read": Read}
