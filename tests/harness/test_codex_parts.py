"""Parts of the harness codex that need no run of it: its events, its catalog, what it cannot hold."""

import io
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.harness.codex import Codex, CodexSpec
from dkgi.harness.codex_command import arguments, shape_of
from dkgi.harness.codex_events import END, LONGEST_LINE, Events
from dkgi.harness.codex_program import LAYOUT, find_codex
from dkgi.types import Face, SetupError

FACE = Face("openai_responses", "gpt-6-luna", "high", 272_000, 32_000)


def lines(*events: Any) -> io.BufferedReader:
    text = "".join(
        (event if isinstance(event, str) else json.dumps(event, separators=(",", ":"))) + "\n" for event in events
    )
    return io.BufferedReader(io.BytesIO(text.encode()))


def done(kind: str, **item: Any) -> dict[str, Any]:
    return {"type": "item.completed", "item": {"id": "item_1", "type": kind, **item}}


def test_commands_and_calls_of_tools_are_counted_and_the_last_message_is_the_answer() -> None:
    events = Events()
    command = {"command": "ls", "aggregated_output": "x", "exit_code": 1, "status": "failed"}
    events.read(
        lines(
            {"type": "item.started", "item": {"id": "item_0", "type": "command_execution", "status": "in_progress"}},
            done("command_execution", **command),
            done("mcp_tool_call", server="kg", tool="search", status="completed"),
            done("agent_message", text="first"),
            "no JSON",
            done("agent_message", text="last"),
            {"type": "turn.completed", "usage": {"input_tokens": 3}},
        )
    )
    assert (events.calls, events.errors, events.answer, events.usage) == (2, 1, "last", {"input_tokens": 3})


@pytest.mark.parametrize("size", [0, LONGEST_LINE - 200, LONGEST_LINE, LONGEST_LINE + END, 3 * LONGEST_LINE])
@pytest.mark.parametrize("status", ["completed", "failed"])
def test_a_command_counts_however_much_it_printed(size: int, status: str) -> None:
    events = Events()
    output = {"command": "cat", "aggregated_output": "x" * size, "exit_code": 0, "status": status}
    events.read(lines(done("command_execution", **output), done("agent_message", text="after")))
    assert (events.calls, events.errors, events.answer) == (1, status == "failed", "after")


def test_why_a_run_failed_is_its_last_word() -> None:
    events = Events()
    failed = {"type": "turn.failed", "error": {"message": "it broke"}}
    events.read(lines({"type": "error", "message": "Reconnecting"}, failed))
    assert (events.failure, events.usage) == ("it broke", None)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["tools=shell_only"], "tools=shell_only: harness=codex cannot hold it: its JavaScript tool is a"),
        (["tools=one_program"], "tools=one_program: harness=codex cannot hold it: its JavaScript tool is a"),
        (["model=claude"], "model=claude: harness=codex cannot hold it: it speaks OpenAI's Responses API alone"),
        (["sandbox=nsjail_no_proc"], "sandbox=nsjail_no_proc: harness=codex cannot hold it: its own sandbox needs"),
    ],
)
def test_what_it_cannot_hold_is_told_in_one_line(overrides: list[str], line: str) -> None:
    with pytest.raises(SetupError, match=r"\A[^\n]*\Z") as error:
        load(["harness=codex", *overrides])
    assert str(error.value).startswith(line)


def test_a_policy_is_refused_before_any_run() -> None:
    spec = load(["harness=codex"]).harness
    assert isinstance(spec, CodexSpec)
    with pytest.raises(SetupError, match=r"tools=shell_only: harness=codex cannot hold it"):
        Codex(spec).check(load(["tools=shell_only"]).tools)


def test_another_release_is_not_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_DATA", str(tmp_path))
    with pytest.raises(SetupError, match=r"Codex 9\.9\.9 is needed .*; use 0\.156\.1 or 0\.171\.0") as error:
        find_codex("9.9.9")
    assert "\n" not in str(error.value)
    folder = tmp_path / "tools/codex-9.9.9/node_modules/@openai/codex-linux-x64/vendor/x86_64-unknown-linux-musl"
    folder.mkdir(parents=True)
    (folder / LAYOUT).write_text('{"version": "9.9.9"}')
    assert find_codex("9.9.9").folder == folder


def test_prompts_tell_of_javascript_where_programs_call_the_graph() -> None:
    assert load(["harness=codex", "tools=graph_tools_code"]).told.section == "tools_graph_javascript.md"
    assert load(["tools=graph_tools_code"]).told.section == "tools_graph_code.md"
    assert load(["harness=codex"]).told == load(["harness=codex"]).tools


def test_a_command_line_has_no_key_and_no_path_of_the_host() -> None:
    words = arguments(FACE, shape_of(load(["tools=graph_tools"]).tools), catalog=True)
    assert not any(part in word for word in words for part in (str(Path.home()), "site-packages", "Bearer"))
    assert "-c" in words


def test_effort_is_left_out_where_the_model_has_none() -> None:
    shape = shape_of(load(["tools=full_dkgi"]).tools)
    told = [" ".join(arguments(face, shape, catalog=False)) for face in (FACE, replace(FACE, effort=None))]
    assert ["model_reasoning_effort" in line for line in told] == [True, False]
