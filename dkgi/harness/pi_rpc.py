"""Talk to Pi in its RPC mode: a JSON object a line, commands in, answers and events out.

>>> rpc = Rpc(process)
>>> rpc.send("get_state")
>>> rpc.next(time.monotonic() + 60)
{'type': 'response', 'command': 'get_state', 'success': True, 'data': {'thinkingLevel': 'high', ...}}

What repeats a message at each of its pieces is dropped unread: with a long answer that is hundreds of megabytes.
Not covered: what an event means for the attempt (pi.py).
"""

import contextlib
import json
import queue
import re
import threading
import time
from collections.abc import Mapping
from typing import Any

from dkgi.tools import READ_BYTES
from dkgi.truncate import WHOLE_BYTES
from dkgi.types import Program

_TYPE = re.compile(rb'\{"type":"(\w+)"')
_WANTED = {b"response", b"message_end", b"tool_execution_start", b"tool_execution_end", b"extension_error"}
_END = b"agent_end"
# A view's own notices come on top of what it shows.
_NOTICE = 1000
_MOST = {"bash": WHOLE_BYTES + _NOTICE, "read": READ_BYTES + _NOTICE}
# The last line of what Pi's own bash and read return when they cut.
_NATIVE_CUT = re.compile(
    r"\n\n\[(Showing (lines|last) .*(Full output: |Use offset=).*|\d+ more lines in file\. .*)\]\Z"
)


class Rpc:
    """Reads in a thread of its own, since Pi keeps in memory what nobody takes."""

    def __init__(self, process: Program) -> None:
        self._process = process
        self._events: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, name="pi", daemon=True)
        self._reader.start()

    def send(self, command: str, **fields: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # it has ended, which `next` tells
            self._process.stdin.write(json.dumps({"type": command, **fields}).encode() + b"\n")
            self._process.stdin.flush()

    def next(self, deadline: float) -> dict[str, Any] | None:
        """The next event, None when Pi has ended. Raises TimeoutError where none comes before `deadline` (monotonic)."""
        try:
            return self._events.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            raise TimeoutError("Pi says nothing") from None

    def _read(self) -> None:
        try:
            for line in self._process.stdout:
                kind = _TYPE.match(line)
                if kind and kind[1] == _END:  # holds the whole conversation once more
                    self._events.put({"type": "agent_end"})
                elif line.startswith(b'{"id":') or (kind and kind[1] in _WANTED):
                    self._events.put(json.loads(line))
        except ValueError:
            pass  # closed under its hands, or cut off in the middle of a line
        finally:
            self._events.put(None)


class Events:
    """What Pi told of an attempt so far.

    usage     tokens by Pi's names, as it counts them
    answer    the text of its last message
    reason    why that ended, in Pi's words; `failure` what it says of that
    refused   why no tool can be called any more
    native    a tool's result that is not as our tools make them, and why
    """

    def __init__(self) -> None:
        self.calls = self.errors = 0
        self.usage = dict.fromkeys(("input", "cacheRead", "cacheWrite", "output"), 0)
        self.ended = False
        self.answer = self.reason = self.failure = self.refused = self.native = ""

    def take(self, event: Mapping[str, Any]) -> None:
        match event["type"]:
            case "tool_execution_start":
                self.calls += 1
            case "tool_execution_end":
                self._result(event)
            case "message_end" if event["message"]["role"] == "assistant":
                self._reply(event["message"])
            case "extension_error":
                self.failure = f"{event.get('event')}: {event.get('error')}"
            case "response" if not event["success"]:  # the prompt was not taken
                self.failure, self.ended = str(event.get("error")), True
            case "agent_end":
                self.ended = True

    def _result(self, event: Mapping[str, Any]) -> None:
        self.errors += event["isError"]
        result = event["result"]
        self.refused = (result.get("details") or {}).get("refused") or self.refused
        text = "".join(part.get("text", "") for part in result["content"])
        most = _MOST.get(event["toolName"])
        if most is None:
            return
        if len(text) > most:
            self.native = f"a result of {event['toolName']} has {len(text)} characters, more than its view shows"
        elif _NATIVE_CUT.search(text):
            self.native = f"a result of {event['toolName']} was cut by Pi"

    def _reply(self, message: Mapping[str, Any]) -> None:
        for name in self.usage:
            self.usage[name] += message["usage"][name]
        self.answer = "".join(part.get("text", "") for part in message["content"] if part["type"] == "text")
        self.reason, self.failure = message["stopReason"], message.get("errorMessage") or ""
