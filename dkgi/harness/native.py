"""Our own agent loop: ask the model, run the tools it calls, show it the results, until it answers.

    user -> reply(bash "rg -n 'seizure' nodes") -> result -> reply(bash "python3 - <<'E' ...") -> result -> reply('{"node_ids": [..]}')

The loop knows neither provider, policy nor data set. A reply without calls is the final answer.
Not covered: retries (runner.py), what the answer is worth (answer.py, metrics.py).
"""

import time
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dkgi.context import Level3, compact
from dkgi.tools import GRAPH_TOOLS, make_tools, run_call
from dkgi.trajectory import steps_of
from dkgi.types import (
    Attempt,
    Item,
    ModelError,
    Reply,
    SandboxError,
    SetupError,
    Step,
    Stop,
    Task,
    ToolCall,
    ToolOutput,
    ToolPolicy,
    ToolResult,
    Usage,
    UserText,
)

TOOLS = ("bash", "read", *GRAPH_TOOLS)
ERROR_STOPS: dict[str, Stop] = {
    "refused": "refused",
    "budget": "budget",
    "time_limit": "time_limit",
    # Told by a clock that began a little earlier than the attempt's.
    "timeout": "time_limit",
}
"""How an attempt stops, by the kind of the model's error; any other is a `model_error`."""


@dataclass(frozen=True, slots=True)
class NativeSpec:
    """From conf/harness/native.yaml: bounds of the context that a model gets to see."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = True
    external: ClassVar[bool] = False
    kind: Literal["native"]
    name: str
    context: Level3


@dataclass(frozen=True, slots=True)
class Native:
    spec: NativeSpec

    def check(self, policy: ToolPolicy) -> None:
        if unknown := [name for name in policy.tools if name not in TOOLS]:
            raise SetupError(
                f"tools={policy.name}: harness {self.spec.name} has no tool {unknown[0]}; it has {', '.join(TOOLS)}"
            )

    def run(self, task: Task) -> Attempt:
        return _Loop(task, self.spec).run()


class _Loop:
    """One attempt in progress."""

    def __init__(self, task: Task, spec: NativeSpec) -> None:
        self.task = task
        self.spec = spec
        self.tools = make_tools(task.policy.tools, task.commands, task.graph_tools)
        self.max_turns = task.policy.max_turns or task.limits.max_turns
        self.started = time.monotonic()
        self.history: list[Item] = []
        self.usage = Usage()
        self.turns = self.calls = self.errors = 0

    def run(self) -> Attempt:
        self.history.append(UserText(self.task.prompt))
        self._record(Step("user", self.task.prompt))
        try:
            while True:
                if self._seconds_left() <= 0:
                    return self._end("time_limit")
                if self.turns == self.max_turns:
                    return self._end("turn_limit")
                reply = self._ask()
                if self._seconds_left() <= 0:
                    return self._end("time_limit", reply.text)
                if reply.stop == "refused":
                    return self._end("refused", reply.text)
                if not reply.calls:
                    return self._end("answered", reply.text)
                for call in reply.calls:
                    self._run(call)
        except ModelError as error:
            self.usage += error.usage
            stop = ERROR_STOPS.get(error.kind, "model_error")
            return self._end("time_limit" if self._seconds_left() <= 0 else stop, error=f"{error.kind}: {error}")
        except SandboxError as error:
            return self._end("sandbox_error", error=str(error))

    def _ask(self) -> Reply:
        specs = [tool.spec for tool in self.tools.values()]
        reply = self.task.model.reply(compact(self.history, self.spec.context), specs)
        self.turns += 1
        self.usage += reply.usage
        self.history.append(reply)
        for step in steps_of(reply):
            self._record(step)
        return reply

    def _run(self, call: ToolCall) -> None:
        left = self._seconds_left()
        output = run_call(call, self.tools, timeout_s=left) if left > 0 else ToolOutput("", is_error=True)
        self.calls += 1
        self.errors += output.is_error
        self.history.append(ToolResult(call.id, call.name, output.text, output.is_error))
        self._record(Step("tool_result", output.text, name=call.name, call_id=call.id, is_error=output.is_error))

    def _record(self, step: Step) -> None:
        self.task.on_step(step)

    def _seconds_left(self) -> float:
        return self.started + self.task.limits.wall_s - time.monotonic()

    def _end(self, stop: Stop, answer: str = "", *, error: str = "") -> Attempt:
        wall = time.monotonic() - self.started
        return Attempt(stop, answer, self.usage, wall, self.turns, self.calls, self.errors, error)
