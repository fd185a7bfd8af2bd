"""The native loop with scripted replies and a real jail."""

import json
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dkgi.context import Level3
from dkgi.harness.native import Native, NativeSpec
from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.runner import Seat
from dkgi.types import Attempt, Limits, Query, SetupError, Step, Task, ToolPolicy, Usage
from tests.places import free_place

SPEC = NativeSpec("native", "native", Level3())
POLICY = ToolPolicy("p", True, True, True, ("bash", "read"), "tools_full_dkgi.md", (0, 0, 0))
LIMITS = Limits(wall_s=30, max_turns=20, attempts=1, backoff_s=0)
ANSWER = '{"node_ids": [0]}'


def bash(command: str, **more: Any) -> dict[str, Any]:
    return {"name": "bash", "arguments": {"command": command, **more}}


def run(
    seat: Seat, tmp_path: Path, replies: list[dict[str, Any]], limits: Limits = LIMITS, policy: ToolPolicy = POLICY
) -> tuple[Attempt, list[Step]]:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps({"*": [replies]}))
    model = Scripted(ScriptedSpec("scripted", "scripted", path, None)).model(free_place(seconds=limits.wall_s))
    steps: list[Step] = []
    task = Task(
        Query(1, "q", "val", False), "the prompt", policy, limits, seat.workspace, model, seat.commands, steps.append
    )
    return Native(SPEC).run(task), steps


def test_a_reply_without_calls_is_the_answer(seat: Seat, tmp_path: Path) -> None:
    attempt, steps = run(seat, tmp_path, [{"text": ANSWER, "usage": {"output": 7}}])
    assert (attempt.stop, attempt.final_answer, attempt.turns) == ("answered", ANSWER, 1)
    assert [(step.type, step.text) for step in steps] == [("user", "the prompt"), ("assistant", ANSWER)]


def test_several_calls_in_one_turn_are_run_in_order_and_answered_by_their_ids(seat: Seat, tmp_path: Path) -> None:
    calls = [
        bash("echo one > /scratch/f"),
        bash("cat /scratch/f; exit 2"),
        {"name": "read", "arguments": {"path": "/scratch/f"}},
    ]
    attempt, steps = run(seat, tmp_path, [{"text": "look", "calls": calls}, {"text": ANSWER}])
    assert [step.type for step in steps] == ["user", "assistant", *["tool_call"] * 3, *["tool_result"] * 3, "assistant"]
    assert [step.call_id for step in steps[2:5]] == [step.call_id for step in steps[5:8]]
    assert [step.text for step in steps[5:8]] == ["(no output)", "one\n[exit code 2]", "one\n"]
    assert (attempt.turns, attempt.tool_calls, attempt.tool_errors) == (2, 3, 1)


def test_usage_is_added_up_and_stands_on_the_first_step_of_each_reply(seat: Seat, tmp_path: Path) -> None:
    first = {
        "calls": [bash("true"), bash("true")],
        "reasoning_summary": "hm",
        "usage": {"input_fresh": 100, "output": 10},
    }
    attempt, steps = run(seat, tmp_path, [first, {"text": ANSWER, "usage": {"cache_read": 100, "output": 5}}])
    assert attempt.usage == Usage(input_fresh=100, cache_read=100, output=15, requests=2)
    assert [(s.type, s.usage.output) for s in steps if s.usage] == [("reasoning_summary", 10), ("assistant", 5)]


def test_malformed_arguments_and_unknown_tools_do_not_end_the_attempt(seat: Seat, tmp_path: Path) -> None:
    calls = [{"name": "bash", "arguments": "{not json"}, {"name": "python", "arguments": {}}]
    attempt, _ = run(seat, tmp_path, [{"calls": calls}, {"text": ANSWER}])
    assert (attempt.stop, attempt.tool_errors) == ("answered", 2)


def test_the_turn_limit_ends_the_attempt_after_that_many_replies(seat: Seat, tmp_path: Path) -> None:
    replies = [{"calls": [bash("true")], "usage": {"output": 1}}] * 5
    attempt, _ = run(seat, tmp_path, replies, replace(LIMITS, max_turns=3))
    assert (attempt.stop, attempt.turns, attempt.usage.output) == ("turn_limit", 3, 3)


def test_a_policy_may_allow_fewer_replies_than_the_limits(seat: Seat, tmp_path: Path) -> None:
    policy = replace(POLICY, max_turns=1)
    attempt, _ = run(seat, tmp_path, [{"calls": [bash("true")]}, {"text": ANSWER}], policy=policy)
    assert (attempt.stop, attempt.turns) == ("turn_limit", 1)
    assert run(seat, tmp_path, [{"text": ANSWER}], policy=policy)[0].stop == "answered"


def test_no_turn_limit_means_none(seat: Seat, tmp_path: Path) -> None:
    replies = [{"calls": [bash("true")]}] * 25 + [{"text": ANSWER}]
    attempt, _ = run(seat, tmp_path, replies, replace(LIMITS, max_turns=None))
    assert attempt.stop == "answered"


@pytest.mark.parametrize("reply", [{"calls": [bash("sleep 60")]}, {"text": ANSWER, "sleep_s": 60}])
def test_the_time_limit_ends_a_slow_command_and_a_slow_model(seat: Seat, tmp_path: Path, reply: dict[str, Any]) -> None:
    started = time.monotonic()
    attempt, _ = run(seat, tmp_path, [reply, {"text": ANSWER}], replace(LIMITS, wall_s=1.0))
    assert attempt.stop == "time_limit"
    assert time.monotonic() - started < 6


def test_a_failing_request_is_billed_and_told(seat: Seat, tmp_path: Path) -> None:
    error = {"error": {"message": "overloaded", "kind": "server", "usage": {}}, "usage": {"input_fresh": 50}}
    attempt, _ = run(seat, tmp_path, [{"calls": [bash("true")], "usage": {"output": 3}}, error])
    assert attempt.stop == "model_error"
    assert attempt.error == "server: overloaded"
    assert attempt.usage == Usage(input_fresh=50, output=3, requests=2)


@pytest.mark.parametrize(
    ("reply", "stop"), [({"text": "no", "stop": "refused"}, "refused"), ({"text": "", "stop": "end"}, "answered")]
)
def test_how_a_reply_stopped_decides_how_the_attempt_did(
    seat: Seat, tmp_path: Path, reply: dict[str, Any], stop: str
) -> None:
    assert run(seat, tmp_path, [reply])[0].stop == stop


def test_the_model_sees_cut_and_cleared_results_while_the_record_keeps_all(seat: Seat, tmp_path: Path) -> None:
    command = "for i in 1 2; do head -c 8000 /dev/zero | tr '\\0' x; echo; done"
    _, steps = run(seat, tmp_path, [{"calls": [bash(command)]}] * 16 + [{"text": ANSWER}])
    assert all(len(step.text) == 16_002 for step in steps if step.type == "tool_result")


def test_a_policy_with_an_unknown_tool_is_refused_before_any_model_call() -> None:
    with pytest.raises(SetupError, match="browse"):
        Native(SPEC).check(replace(POLICY, tools=("browse",)))
    Native(SPEC).check(POLICY)
