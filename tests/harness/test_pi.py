"""Pi itself in its jail, with scripted replies and providers on loopback sockets, the real gateway, tools and jails."""

import json
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from dkgi.context import Level3, compact
from dkgi.gateway import ModelGateway
from dkgi.harness.native import Native, NativeSpec
from dkgi.harness.pi import Pi, PiSpec
from dkgi.harness.pi_program import arguments, box, find_program
from dkgi.harness.pi_rpc import Events, Rpc
from dkgi.jail.external import AttemptPrograms
from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.process import tree
from dkgi.runner import Seat
from dkgi.tools import make_tools
from dkgi.toolserver import ToolServer
from dkgi.types import (
    Attempt,
    Item,
    Limits,
    Model,
    Query,
    Reply,
    SetupError,
    Step,
    Task,
    ToolCall,
    ToolOutput,
    ToolPolicy,
    ToolResult,
    ToolSpec,
)
from tests.jail.conftest import marked
from tests.loopback import Loopback, Turn
from tests.models.providers import KINDS, Kind, open_model
from tests.places import free_place

SPEC = PiSpec("pi", "pi", "0.65.0", 1536, Level3(), ())
POLICY = ToolPolicy("p", True, True, True, ("bash", "read"), "tools_full_dkgi.md", (0, 0, 0))
LIMITS = Limits(wall_s=90, max_turns=20, attempts=1, backoff_s=0)
ANSWER = '{"node_ids": [0]}'


def _installed(version: str) -> bool:
    try:
        find_program(version)
    except SetupError:
        return False
    return True


VERSIONS = [
    pytest.param(
        version, marks=pytest.mark.skipif(not _installed(version), reason=f"run python -m dkgi.nodetools pi@{version}")
    )
    for version in ("0.65.0", "0.73.1")
]
needs_pi = pytest.mark.skipif(not _installed("0.65.0"), reason="Pi is not installed: run python -m dkgi.nodetools")


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "bash", "arguments": {"command": command, **more}}


def scripted(tmp_path: Path, replies: list[dict[str, Any]], seconds: float = 90) -> Model:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps({"*": [replies]}))
    return Scripted(ScriptedSpec("scripted", "scripted", path, None)).model(free_place(seconds=seconds))


@dataclass(frozen=True)
class Watching:
    """Makes a number of calls of a tool, then answers; keeps what it was shown."""

    tool: str
    arguments: Sequence[str]
    shown: list[list[Item]] = field(default_factory=list)
    tools: list[ToolSpec] = field(default_factory=list)

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        turn = len(self.shown)
        self.shown.append(list(history))
        self.tools[:] = tools
        calls = (ToolCall(f"c{turn}", self.tool, self.arguments[turn]),) if turn < len(self.arguments) else ()
        return Reply("" if calls else ANSWER, calls)


class Counting:
    """A tool of the graph's kind: says how many words it was given."""

    spec = ToolSpec(
        "search", "Counts.", {"type": "object", "properties": {"query": {"type": "string"}}, "required": []}
    )

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        return ToolOutput(f"{len(args['query'].split())} words", is_error=not args["query"])


@contextmanager
def at_work(
    seat: Seat, tmp_path: Path, model: Model, *, limits: Limits = LIMITS, policy: ToolPolicy = POLICY
) -> Iterator[tuple[Task, list[Step]]]:
    """A task with all that an external harness needs. Nobody serves get_node."""
    steps: list[Step] = []
    graph = {"search": Counting()}
    tools = make_tools([name for name in policy.tools if name != "get_node"], seat.commands, graph)
    home = tmp_path / "sockets"
    home.mkdir(mode=0o700, exist_ok=True)
    with (
        ModelGateway(home) as gateway,
        ToolServer(home) as server,
        server.attempt(tools, call_s=limits.wall_s) as calls,
    ):
        yield (
            Task(
                Query(1, "q", "val", False),
                "the prompt",
                policy,
                limits,
                seat.workspace,
                model,
                seat.commands,
                steps.append,
                gateway=gateway,
                calls=calls,
                programs=AttemptPrograms(seat.workspace),
            ),
            steps,
        )


def run(
    seat: Seat,
    tmp_path: Path,
    model: Model,
    *,
    limits: Limits = LIMITS,
    policy: ToolPolicy = POLICY,
    spec: PiSpec = SPEC,
) -> tuple[Attempt, list[Step]]:
    with at_work(seat, tmp_path, model, limits=limits, policy=policy) as (task, steps):
        attempt = Pi(spec).run(task)
    folder = seat.workspace.scratch_dir.parent
    assert sorted(path.name for path in folder.iterdir()) == ["outputs", "scratch", "tmp"]
    assert set(tree(os.getpid())) & set(marked("cli.js")) == set()
    return attempt, steps


def told(steps: Sequence[Step]) -> list[tuple[object, ...]]:
    """Steps but for spaces in arguments and the numbers of output files, which count on in a seat."""
    texts = [
        json.loads(step.text) if step.type == "tool_call" else re.sub(r"\d{4}\.txt", "N.txt", step.text)
        for step in steps
    ]
    return [(step.type, text, step.name, step.usage) for step, text in zip(steps, texts, strict=True)]


@pytest.mark.parametrize("version", VERSIONS)
def test_a_script_makes_the_same_trajectory_as_in_the_native_loop(seat: Seat, tmp_path: Path, version: str) -> None:
    replies: list[dict[str, Any]] = [
        {"reasoning_summary": "hm", "text": "look", "calls": [bash("echo one > /scratch/f; ls; pwd; exit 3")]},
        {"calls": [{"name": "read", "arguments": {"path": "/scratch/f"}}], "usage": {"input_fresh": 9, "output": 5}},
        {"calls": [bash("seq 1 9000")], "usage": {"cache_read": 7}},
        {"calls": [bash("x")] * 2, "usage": {"cache_write": 3}},
        {"text": ANSWER, "usage": {"input_fresh": 100, "output": 7, "reasoning": 2}},
    ]
    with at_work(seat, tmp_path, scripted(tmp_path, replies)) as (task, native_steps):
        native = Native(NativeSpec("native", "native", Level3())).run(task)
    attempt, steps = run(seat, tmp_path, scripted(tmp_path, replies), spec=replace(SPEC, version=version))
    assert told(steps) == told(native_steps)
    assert [step.text for step in steps if "harness output limit" in step.text]
    assert replace(attempt, wall_s=native.wall_s) == native
    assert attempt.stop == "answered"


@pytest.mark.parametrize(
    ("version", "names"),
    [
        pytest.param(*version.values, names, marks=version.marks)
        for version, names in zip(VERSIONS, [("bash", "read", "search"), ("search",)], strict=True)
    ],
)
def test_a_model_is_offered_the_tools_of_the_policy_and_no_others(
    seat: Seat, tmp_path: Path, version: str, names: tuple[str, ...]
) -> None:
    model = Watching("search", ['{"query": "a long boat"}', '{"query": ""}'])
    policy, spec = replace(POLICY, tools=names), replace(SPEC, version=version)
    attempt, _ = run(seat, tmp_path, model, policy=policy, spec=spec)
    assert sorted(tool.name for tool in model.tools) == sorted(names)
    assert [item.text for item in model.shown[-1] if isinstance(item, ToolResult)] == ["3 words", "0 words"]
    assert (attempt.tool_calls, attempt.tool_errors) == (2, 1)
    stock = {tool.name: tool.description.partition(".")[0] for tool in model.tools if tool.name != "search"}
    expected = {
        "bash": "Execute a bash command in the current working directory",
        "read": "Read the contents of a file",
    }
    assert stock == {name: text for name, text in expected.items() if name in names}


@needs_pi
def test_the_context_is_cut_and_cleared_as_in_the_native_loop(seat: Seat, tmp_path: Path) -> None:
    bounds = Level3(max_chars=40, clear_above=150, keep_turns=2, placeholder="[gone]")
    words = [
        "printf '%039d😀tail' 1",
        "printf '%038d😀tail' 1",
        "echo short",
        "seq 1 99",
        "seq 1 50",
        "seq 2 50",
        "false",
    ]
    model = Watching("bash", [json.dumps({"command": word}) for word in words])
    run(seat, tmp_path, model, spec=replace(SPEC, context=bounds))
    whole = Watching("bash", [json.dumps({"command": word}) for word in words])
    with at_work(seat, tmp_path, whole) as (task, _):
        Native(NativeSpec("native", "native", Level3())).run(task)

    def results(items: Sequence[Item]) -> list[str]:
        return [item.text for item in items if isinstance(item, ToolResult)]

    expected = [results(compact(history, bounds)) for history in whole.shown]
    assert [results(history) for history in model.shown] == expected
    assert "[gone]" in expected[-1][0]
    assert any("truncated" in text for text in expected[1])


@needs_pi
def test_a_reply_past_the_most_turns_is_not_asked_for(seat: Seat, tmp_path: Path) -> None:
    replies = [{"calls": [bash("true")], "usage": {"output": 1}}] * 5
    attempt, _ = run(seat, tmp_path, scripted(tmp_path, replies), limits=replace(LIMITS, max_turns=2))
    assert (attempt.stop, attempt.turns, attempt.usage.requests) == ("turn_limit", 2, 2)


@needs_pi
@pytest.mark.parametrize("reply", [{"calls": [bash("exec -a slow-marker sleep 60")]}, {"text": ANSWER, "sleep_s": 60}])
def test_the_time_limit_ends_a_slow_command_and_a_slow_model(
    seat: Seat, tmp_path: Path, reply: dict[str, Any], cancel: Callable[[], None]
) -> None:
    started = time.monotonic()
    limits = replace(LIMITS, wall_s=8.0)
    # The model has time beyond the attempt's, so that it is Pi that has to be ended.
    attempt, _ = run(seat, tmp_path, scripted(tmp_path, [reply, {"text": ANSWER}], 30), limits=limits)
    assert attempt.stop == "time_limit"
    assert time.monotonic() - started < 8 + 5
    cancel()
    assert marked("slow-marker") == []


@needs_pi
@pytest.mark.parametrize(
    ("reply", "stop", "requests"),
    [
        ({"error": {"message": "down", "kind": "server"}, "usage": {"input_fresh": 50}}, "model_error", 2),
        ({"text": "no", "stop": "refused"}, "refused", 2),
    ],
)
def test_a_request_that_fails_is_sent_once_and_ends_the_attempt(
    seat: Seat, tmp_path: Path, reply: dict[str, Any], stop: str, requests: int
) -> None:
    attempt, _ = run(seat, tmp_path, scripted(tmp_path, [{"calls": [bash("true")]}, reply, {"text": ANSWER}]))
    assert (attempt.stop, attempt.usage.requests) == (stop, requests)


@pytest.mark.parametrize(
    ("kind", "version"),
    [(kind, "0.65.0") for kind in KINDS] + [("openai_chat", "0.73.1")],
)
def test_pi_counts_tokens_as_the_gateway_does_on_every_wire(
    seat: Seat, tmp_path: Path, kind: Kind, version: str
) -> None:
    if not _installed(version):
        pytest.skip(f"Pi {version} is not installed: run python -m dkgi.nodetools pi@{version}")
    turns = [
        Turn(calls=[("bash", '{"command": "ls"}')], thinking="hm", input=900, cached=600, output=70, reasoning=30),
        Turn(text=ANSWER, input=1200, cached=900, output=20, reasoning=10),
    ]
    with Loopback(turns) as server:
        model = open_model(kind, server, tmp_path)
        attempt, steps = run(seat, tmp_path, model, spec=replace(SPEC, version=version))
    assert (attempt.stop, attempt.final_answer, attempt.flags) == ("answered", ANSWER, ())
    assert (attempt.usage.input_tokens, attempt.usage.output) == (2100, 90)
    assert [step.type for step in steps if step.type != "reasoning_summary"] == [
        "user",
        "tool_call",
        "tool_result",
        "assistant",
    ]
    assert server.requests[0].body["model"] == "model-1"


@needs_pi
def test_without_its_tools_an_attempt_is_void(seat: Seat, tmp_path: Path, cancel: Callable[[], None]) -> None:
    cancel()
    attempt, _ = run(seat, tmp_path, scripted(tmp_path, [{"calls": [bash("ls")]}, {"text": ANSWER}]))
    assert attempt.stop == "sandbox_error"
    # Pi may be quicker with its next request than we are to hear of the call.
    assert attempt.turns in (1, 2)


@needs_pi
def test_pi_that_cannot_start_says_why(seat: Seat, tmp_path: Path) -> None:
    policy = replace(POLICY, tools=("bash", "get_node"))  # which nobody serves here
    attempt, _ = run(seat, tmp_path, scripted(tmp_path, [{"text": ANSWER}]), policy=policy)
    assert attempt.stop == "crashed"
    assert "extension.mjs" in attempt.error


@needs_pi
def test_past_its_memory_pi_is_ended_and_the_attempt_void(seat: Seat, tmp_path: Path) -> None:
    # It is looked at once a second.
    slow = scripted(tmp_path, [{"calls": [bash("sleep 20")]}, {"text": ANSWER}])
    attempt, _ = run(seat, tmp_path, slow, spec=replace(SPEC, memory_mb=40))
    assert (attempt.stop, "harness.memory_mb=40" in attempt.error) == ("sandbox_error", True)


@pytest.mark.parametrize(
    ("tool", "text", "found"),
    [
        ("bash", "x" * 20_000, "more than its view shows"),
        ("bash", "1\n\n[Showing lines 2-9 of 9. Full output: /tmp/pi-bash-1.log]", "cut by Pi"),
        ("read", "1\n\n[Showing lines 1-9 of 12 (50KB limit). Use offset=10 to continue.]", "cut by Pi"),
        ("bash", "[Showing lines 2-9 of 9. Full output: /tmp/pi-bash-1.log]\n\nand more", ""),
        ("search", "x" * 20_000, ""),
    ],
)
def test_a_result_that_is_not_of_our_tools_is_found(tool: str, text: str, found: str) -> None:
    events = Events()
    result = {"content": [{"type": "text", "text": text}], "details": {}}
    events.take({"type": "tool_execution_end", "toolName": tool, "result": result, "isError": False})
    assert found in events.native
    assert bool(found) == bool(events.native)


def test_a_prompt_that_pi_does_not_take_is_its_end() -> None:
    events = Events()
    events.take({"type": "response", "command": "prompt", "success": False, "error": "no model"})
    assert (events.ended, events.failure) == (True, "no model")


def test_what_cannot_work_is_told_before_any_model_call() -> None:
    with pytest.raises(SetupError, match="browse"):
        Pi(SPEC).check(replace(POLICY, tools=("browse",)))
    with pytest.raises(SetupError, match=r"harness\.version: Pi 9\.9\.9"):
        Pi(replace(SPEC, version="9.9.9")).check(POLICY)


@needs_pi
@pytest.mark.parametrize(
    ("effort", "told"), [("ultra", "harness=pi reasons at minimal"), ("xhigh", "drives model-1 at high, not at xhigh")]
)
def test_an_effort_that_pi_does_not_give_a_model_is_refused(seat: Seat, tmp_path: Path, effort: str, told: str) -> None:
    with Loopback([Turn(text=ANSWER)]) as server, pytest.raises(SetupError, match=rf"model\.effort: .*{told}"):
        run(seat, tmp_path, open_model("openai_responses", server, tmp_path, effort=effort))
    assert server.requests == []


@pytest.mark.parametrize("version", VERSIONS)
def test_pi_warns_where_it_cannot_read_its_settings_in_the_words_that_end_an_attempt(
    seat: Seat, tmp_path: Path, version: str
) -> None:
    with at_work(seat, tmp_path, Watching("bash", [])) as (task, _):
        assert task.gateway
        with task.gateway.session(task.model, task.on_step, max_turns=1, merge=True) as session:
            program = find_program(version)
            jail = box(program, task, session, Level3(), wall_s=60, memory_mb=1536)
            locked = replace(jail, files=(*jail.files, ("settings.json.lock", "")))
            words = arguments(program, session.face, ("bash", "read"))
            with AttemptPrograms(seat.workspace).start(locked, words) as process:
                rpc = Rpc(process)
                rpc.send("get_state")
                rpc.next(time.monotonic() + 60)
                assert "Warning: (" in process.told()
