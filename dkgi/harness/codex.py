"""Codex as a harness: one process of the CLI an attempt, in a jail that reaches its model and nothing else.

    python -m dkgi harness=codex tools=graph_tools model=luna

    jail (nsjail, no network)                              host
      codex ──► 127.0.0.1:8080, codex_relay.py ──► socket ──► gateway ──► model
        ├─► commands, in Codex's own sandbox: no sockets, /graph to read, /scratch to write
        └─► graph_mcp.py ──► socket ──► graph server

Turns, usage, money and the trajectory are those of the gateway; what Codex says of itself is held against them.
Not covered: models that are no server (codex_local.py), the command line (codex_command.py).
"""

import contextlib
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dkgi.harness import codex_command as command
from dkgi.harness.cannot import Cannot, faults
from dkgi.harness.codex_events import Events
from dkgi.harness.codex_local import play_in_codex
from dkgi.harness.codex_program import Program as Release
from dkgi.harness.codex_program import find_codex
from dkgi.harness.program import END_S, LOOK_S, check_jail, ended
from dkgi.kg.remote import RemoteTool
from dkgi.models.provider import ProviderModel
from dkgi.paths import data_dir
from dkgi.types import (
    Attempt,
    CliBox,
    Face,
    Program,
    SandboxError,
    Session,
    SetupError,
    Stop,
    Task,
    ToolPolicy,
    ToolSocket,
    Usage,
)


@dataclass(frozen=True, slots=True)
class CodexSpec:
    """From conf/harness/codex.yaml.

    version    the release; no other is started
    like       the model of its catalog whose entry other models get
    memory_mb  MiB of all its processes together
    scratch_mb MiB on disk of all that they keep
    sections   sections of prompts that it has another text for
    cannot     what it cannot hold
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = True
    external: ClassVar[bool] = True
    kind: Literal["codex"]
    name: str
    version: str
    like: str
    memory_mb: int
    scratch_mb: int
    sections: Mapping[str, str]
    cannot: tuple[Cannot, ...]


@dataclass(frozen=True, slots=True)
class Codex:
    spec: CodexSpec

    def check(self, policy: ToolPolicy) -> None:
        for fault in faults(self.spec.name, self.spec.cannot, {"tools": asdict(policy)}):
            raise SetupError(fault)
        program = find_codex(self.spec.version)
        if self.spec.like not in program.catalog():
            raise SetupError(f"harness.like: Codex {self.spec.version} knows no model {self.spec.like}")

    def run(self, task: Task) -> Attempt:
        return _Run(task, self.spec).run()


class _Run:
    """One attempt in progress."""

    def __init__(self, task: Task, spec: CodexSpec) -> None:
        self.task, self.spec = task, spec
        self.program = find_codex(spec.version)
        self.shape = command.shape_of(task.policy)
        self.started = time.monotonic()
        self.events = Events()

    def run(self) -> Attempt:
        task = self.task
        assert task.gateway is not None, "an external harness comes with a gateway"
        model = task.model
        if not isinstance(model, ProviderModel):
            model = play_in_codex(model, task.prompt, task.policy.tools, self.shape)
        max_turns = task.policy.max_turns or task.limits.max_turns
        with task.gateway.session(model, task.on_step, max_turns=max_turns, merge=False) as session:
            try:
                code, told = self._drive(session)
            except SandboxError as error:
                return self._end("sandbox_error", session, error=str(error))
            return self._ended(session, code, told)

    def _drive(self, session: Session) -> tuple[int | None, str]:
        """Run Codex to its end. Gives its exit code, None after the time limit, and what it said on standard error."""
        starter = self.task.programs
        assert starter is not None, "an external harness comes with what starts its program"
        entry = _entry(self.program, session.face, self.spec.like, self.shape)
        with starter.start(self._box(session, entry), self._words(session.face, catalog=entry is not None)) as process:
            reader = threading.Thread(target=self._read, args=(process,), name="codex", daemon=True)
            reader.start()
            with contextlib.suppress(BrokenPipeError):  # it ended before it had read all; its exit code says why
                process.stdin.write(self.task.prompt.encode())
                process.stdin.close()
            code = self._wait(process)
            reader.join(END_S)
            check_jail(process, "Codex", memory_mb=self.spec.memory_mb, scratch_mb=self.spec.scratch_mb)
            return None if process.killed_by == "time" else code, process.told()

    def _wait(self, process: Program) -> int | None:
        """Its exit code; None where it had to be killed, since its time was over or the run is stopped."""
        while self._seconds_left() > 0 and not self.task.cancelled():
            with contextlib.suppress(TimeoutError):
                return process.wait(min(LOOK_S, max(0.0, self._seconds_left())))
        process.kill()
        return None

    def _read(self, process: Program) -> None:
        with contextlib.suppress(OSError, ValueError):  # closed under its hands
            self.events.read(process.stdout)

    def _words(self, face: Face, *, catalog: bool) -> list[str]:
        """The relay's command line, and Codex's in it."""
        relay = ["/usr/bin/env", "python3", command.RELAY, str(command.PORT), command.SOCKET]
        codex = f"{command.PROGRAM}/bin/codex"
        return [*relay, codex, *command.arguments(face, self.shape, catalog=catalog)]

    def _box(self, session: Session, entry: dict[str, Any] | None) -> CliBox:
        """The jail of one attempt; `entry` is the catalog that it is to read."""
        workspace = self.task.workspace
        read_only = [
            (self.program.folder, command.PROGRAM),
            (workspace.graph_dir, workspace.graph_at),
            (session.socket, command.SOCKET),
            (data_dir("sandbox") / "codex_relay.py", command.RELAY),
        ]
        files = []
        if entry is not None:
            files.append((Path(command.CATALOG).name, json.dumps({"models": [entry]})))
        if self.shape.graph:
            door = _graph_door(self.task)
            files.append((Path(command.TOKEN).name, door.token))
            read_only += [
                (door.path, command.GRAPH_SOCKET),
                (data_dir("sandbox") / "graph_mcp.py", command.GRAPH_SERVER),
            ]
        return CliBox(
            read_only=tuple(read_only),
            home=command.HOME,
            files=tuple(files),
            folders=True,
            cwd=workspace.graph_at,
            env=command.environment(session.token),
            wall_s=max(0.0, self._seconds_left()) + 1,
            memory_mb=self.spec.memory_mb,
            scratch_mb=self.spec.scratch_mb,
            nested=True,
        )

    def _ended(self, session: Session, code: int | None, told: str) -> Attempt:
        """How the attempt stopped."""
        last, text = session.last, self.events.answer
        if ending := ended(session, late=code is None or self._seconds_left() <= 0):
            return self._end(ending.stop, session, ending.answer, error=ending.error)
        # A reply that was cut short is an error to Codex, and an answer that cannot be read to everybody else.
        if code == 0 or (last is not None and last.stop == "length"):
            return self._end("answered", session, text if last is None or last.calls else last.text)
        return self._end("crashed", session, error=f"Codex ended with exit code {code}: {self.events.failure or told}")

    def _end(self, stop: Stop, session: Session, answer: str = "", *, error: str = "") -> Attempt:
        wall = time.monotonic() - self.started
        events, usage = self.events, session.usage
        flags = _flags(events, usage, session)
        return Attempt(stop, answer, usage, wall, session.turns, events.calls, events.errors, error, flags=flags)

    def _seconds_left(self) -> float:
        return self.started + self.task.limits.wall_s - time.monotonic()


def _graph_door(task: Task) -> ToolSocket:
    """Where the graph's tools are called: those that the model is offered, or those that programs may call."""
    for tool in task.graph_tools.values():
        if isinstance(tool, RemoteTool):
            return ToolSocket(tool.socket, tool.token)
    files = {name: path for path, name in task.workspace.client}
    return ToolSocket(files["socket"], files["token"].read_text(encoding="ascii"))


def _entry(program: Release, face: Face, like: str, shape: command.Shape) -> dict[str, Any] | None:
    """The catalog's entry for the model, where it needs one of ours.

    Its own models have their own, with a shell; where tools differ, and for every other model, theirs is trimmed to
    the tools of the policy.
    """
    known = face.model in program.catalog()
    if known and face.lite and shape.shell:
        return None
    return program.entry(face.model, like=like) | {
        "tool_mode": shape.tool_mode,
        # A form of requests that OpenAI's own address alone is known to take.
        "use_responses_lite": known and face.lite,
        "apply_patch_tool_type": None,
        "experimental_supported_tools": [],
        "supports_search_tool": False,
        "multi_agent_version": None,
    }


def _flags(events: Events, usage: Usage, session: Session) -> tuple[str, ...]:
    """Where Codex, after a run that ended well, tells of it otherwise than the gateway."""
    if events.usage is None:
        return ()
    told = events.usage
    same_usage = (
        told.get("input_tokens") == usage.input_tokens
        and told.get("cached_input_tokens") == usage.cache_read
        and told.get("output_tokens") == usage.output
    )
    same_answer = session.last is None or events.answer == session.last.text
    return tuple(flag for flag, same in (("usage_mismatch", same_usage), ("answer_mismatch", same_answer)) if not same)
