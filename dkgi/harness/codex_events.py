"""What Codex says of its run: one JSON object a line on standard output.

>>> seen = Events()
>>> seen.read(io.BytesIO(b'{"type":"turn.completed","usage":{"input_tokens":9,"output_tokens":2}}\\n'))
>>> seen.usage
{'input_tokens': 9, 'output_tokens': 2}

A command's event has all that it printed, so of a line that is too long only both ends are kept and looked at.
Not covered: what the model said and saw, which the gateway records.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import IO, Any

LONGEST_LINE = 2**20
END = 4096
"""Bytes kept of the end of a line that is longer."""

_ACTIONS = ("command_execution", "mcp_tool_call")
_KIND = re.compile(rb'^\{"type":"item\.completed","item":\{"id":"[^"]*","type":"(\w+)"')
_FAILED = re.compile(rb'"status":"failed"\}\}\s*$')


@dataclass(slots=True)
class Events:
    """What was told so far; read by one thread, while others may look.

    calls    commands and calls of graph tools that have ended, and `errors` those of them that failed
    answer   the newest message of the model
    usage    the program's own sum, of a run that ended well
    failure  why the run failed, as the program says
    """

    calls: int = 0
    errors: int = 0
    answer: str = ""
    usage: Mapping[str, Any] | None = None
    failure: str = ""
    warnings: list[str] = field(default_factory=list)

    def read(self, stdout: IO[bytes]) -> None:
        """All lines until the end."""
        while line := stdout.readline(LONGEST_LINE):
            end = line
            while not end.endswith(b"\n") and (more := stdout.readline(LONGEST_LINE)):
                end = end[-END:] + more
            if end is line:
                self._take(line)
            else:
                self._glance(line, end)

    def _take(self, line: bytes) -> None:
        try:
            event = json.loads(line)
        except ValueError:
            return
        match event.get("type"):
            case "item.completed":
                self._item(event["item"])
            case "turn.completed":
                self.usage = event["usage"]
            case "turn.failed":
                self.failure = event["error"]["message"]
            case "error":
                self.failure = event["message"]

    def _item(self, item: Mapping[str, Any]) -> None:
        if item["type"] in _ACTIONS:
            self.calls += 1
            self.errors += item["status"] == "failed"
        elif item["type"] == "agent_message":
            self.answer = item["text"]
        elif item["type"] == "error":
            self.warnings.append(item["message"])

    def _glance(self, start: bytes, end: bytes) -> None:
        """Both ends of a line say what it is."""
        kind = _KIND.match(start)
        if kind and kind[1].decode() in _ACTIONS:
            self.calls += 1
            self.errors += bool(_FAILED.search(end))
