"""Pi as a harness: one process of the CLI an attempt, in a jail that reaches its model and its tools, and nothing else.

    python -m dkgi harness=pi tools=shell_only model=luna

    jail (nsjail, no network)              host
      node cli.js --mode rpc ──► socket ──► gateway ──► model
        └─► extension.mjs    ──► socket ──► tools: bash and read by the command server, a jail each; graph tools

So the tools are those of the native loop, and a policy holds as it does there. Turns, usage, money and the trajectory are
the gateway's; what Pi says of itself is held against them.
Not covered: how Pi is started (pi_program.py) and spoken to (pi_rpc.py).
"""

import contextlib
import time
from dataclasses import asdict, dataclass
from typing import Any, ClassVar, Literal

from dkgi.context import Level3
from dkgi.harness.cannot import Cannot, faults
from dkgi.harness.native import TOOLS
from dkgi.harness.pi_program import arguments, box, find_program, level
from dkgi.harness.pi_rpc import Events, Rpc
from dkgi.harness.program import END_S, LOOK_S, check_jail, ended
from dkgi.types import Attempt, Face, Program, SandboxError, Session, SetupError, Stop, Task, ToolPolicy, Usage

_ABORT_S = 3.0
_BACKSTOP_S = 30.0
_TOLD = 2000


@dataclass(frozen=True, slots=True)
class PiSpec:
    """From conf/harness/pi.yaml.

    version    the release; no other is started
    memory_mb  MiB of its process
    context    bounds of the context that a model gets to see
    cannot     what it cannot hold
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = True
    external: ClassVar[bool] = True
    kind: Literal["pi"]
    name: str
    version: str
    memory_mb: int
    context: Level3
    cannot: tuple[Cannot, ...]


@dataclass(frozen=True, slots=True)
class Pi:
    spec: PiSpec

    def check(self, policy: ToolPolicy) -> None:
        if unknown := [name for name in policy.tools if name not in TOOLS]:
            raise SetupError(
                f"tools={policy.name}: harness {self.spec.name} has no tool {unknown[0]}; it has {', '.join(TOOLS)}"
            )
        for fault in faults(self.spec.name, self.spec.cannot, {"tools": asdict(policy)}):
            raise SetupError(fault)
        find_program(self.spec.version)

    def run(self, task: Task) -> Attempt:
        return _Run(task, self.spec).run()


class _Crash(Exception):
    """Pi ended before its answer, or is not as it was configured."""


class _Run:
    """One attempt in progress."""

    def __init__(self, task: Task, spec: PiSpec) -> None:
        self.task, self.spec = task, spec
        self.program = find_program(spec.version)
        self.started = time.monotonic()
        self.deadline = self.started + task.limits.wall_s
        self.events = Events()
        self.late = False

    def run(self) -> Attempt:
        task = self.task
        assert task.gateway is not None, "an external harness comes with a gateway"
        max_turns = task.policy.max_turns or task.limits.max_turns
        with task.gateway.session(task.model, task.on_step, max_turns=max_turns, merge=True) as session:
            try:
                self._drive(session)
            except _Crash as crash:
                return self._ended(session, crash=str(crash))
            except SandboxError as error:
                return self._end("sandbox_error", session, error=str(error))
            return self._ended(session)

    def _drive(self, session: Session) -> None:
        """Run Pi until it answers, fails or is out of time."""
        task, spec = self.task, self.spec
        assert task.programs is not None, "an external harness comes with what starts its program"
        wall_s = task.limits.wall_s + _BACKSTOP_S
        jail = box(self.program, task, session, spec.context, wall_s=wall_s, memory_mb=spec.memory_mb)
        words = arguments(self.program, session.face, task.policy.tools)
        with task.programs.start(jail, words) as process:
            rpc = Rpc(process)
            try:
                self._check(rpc, process, session.face)
                rpc.send("prompt", message=self.task.prompt)
                self._follow(rpc, self.deadline)
            except TimeoutError:
                self.late = True
                rpc.send("abort")
                with contextlib.suppress(TimeoutError):
                    self._follow(rpc, time.monotonic() + _ABORT_S)
            if not self.events.ended and not self.late:
                raise self._gone(process)

    def _gone(self, process: Program) -> _Crash:
        """Why Pi has ended before its answer. Raises SandboxError where its jail did that."""
        with contextlib.suppress(TimeoutError):  # it may have closed its output alone
            process.wait(END_S)
        check_jail(process, "Pi", memory_mb=self.spec.memory_mb)
        return _Crash(f"Pi ended before its answer: {process.told()}")

    def _check(self, rpc: Rpc, process: Program, face: Face) -> None:
        """Pi is as it was configured. Settings that it cannot read are a warning to it, and it goes on without."""
        rpc.send("get_state")
        while True:
            event = self._next(rpc, self.deadline)
            if event is None:
                raise self._gone(process)
            if event["type"] == "response":
                break
        state = event["data"]
        if state["thinkingLevel"] != level(face):
            raise SetupError(
                f"model.effort: Pi {self.spec.version} drives {face.model} at {state['thinkingLevel']}, not at {face.effort}"
            )
        if state["autoCompactionEnabled"] or state["model"]["id"] != face.model or "Warning: (" in process.told():
            raise _Crash(f"Pi is not as it was configured: {process.told()}")

    def _follow(self, rpc: Rpc, deadline: float) -> None:
        """Take events until the last one. Raises TimeoutError at the deadline, SandboxError where tools are gone."""
        while not self.events.ended and (event := self._next(rpc, deadline)) is not None:
            self.events.take(event)
            if self.events.refused:
                raise SandboxError(self.events.refused)

    def _next(self, rpc: Rpc, deadline: float) -> dict[str, Any] | None:
        """As Rpc.next; that the run is over is the end of its time, too."""
        while True:
            try:
                return rpc.next(min(deadline, time.monotonic() + LOOK_S))
            except TimeoutError:
                if self.task.cancelled() or time.monotonic() >= deadline:
                    raise

    def _ended(self, session: Session, crash: str = "") -> Attempt:
        """How the attempt stopped."""
        last, events = session.last, self.events
        ending = ended(session, late=self.late or time.monotonic() >= self.deadline)
        if ending and ending.stop != "refused":
            return self._end(ending.stop, session, ending.answer, error=ending.error)
        if events.native:
            return self._end("sandbox_error", session, error=events.native)
        if ending:
            return self._end(ending.stop, session, ending.answer)
        if not crash and last is not None and not last.calls and events.reason in ("stop", "length"):
            return self._end("answered", session, last.text)
        why = crash or f"Pi ended without an answer ({events.reason}): {events.failure}"
        return self._end("crashed", session, error=why[:_TOLD])

    def _end(self, stop: Stop, session: Session, answer: str = "", *, error: str = "") -> Attempt:
        wall = time.monotonic() - self.started
        events, usage = self.events, session.usage
        flags = self._flags(usage, session.face, answer) if stop == "answered" else ()
        return Attempt(stop, answer, usage, wall, session.turns, events.calls, events.errors, error, flags=flags)

    def _flags(self, usage: Usage, face: Face, answer: str) -> tuple[str, ...]:
        """Where Pi tells of a run that ended well otherwise than the gateway; some providers give no figures at all."""
        told = self.events.usage
        doubled = face.wire == "openai_chat" and self.program.release.doubles_thinking
        same_usage = not usage.complete or (
            # On OpenAI's wires it takes what was written to the cache for other input.
            told["input"] + told["cacheWrite"] == usage.input_fresh + usage.cache_write
            and told["cacheRead"] == usage.cache_read
            and told["output"] == usage.output + (usage.reasoning if doubled else 0)
        )
        same_answer = self.events.answer == answer
        return tuple(
            flag for flag, same in (("usage_mismatch", same_usage), ("answer_mismatch", same_answer)) if not same
        )
