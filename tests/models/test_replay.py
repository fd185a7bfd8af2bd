"""A recorded cell answers again: the same replies, errors and tokens, request by request."""

from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.models.replay import Replay, ReplaySpec
from dkgi.store import Cell, Journal, open_cell
from dkgi.types import (
    Attempt,
    Item,
    Model,
    ModelError,
    Prices,
    Reply,
    SetupError,
    Step,
    Stop,
    ToolCall,
    ToolResult,
    Usage,
    UserText,
)
from tests.places import free_place

AXES = {"dataset": "hpo", "split": "test", "harness": "native", "tools": "full_dkgi", "prompt": "final"}
SPENT = Usage(input_fresh=100, cache_read=50, output=10, reasoning=4, requests=1)
THOUGHT = [
    Step("reasoning_summary", "Look first.", usage=SPENT),
    Step("assistant", "I look."),
    Step("tool_call", '{"command": "ls"}', name="bash", call_id="c1"),
    Step("tool_call", "{broken", name="bash", call_id="c2"),
]
FOUND = [
    Step("tool_result", "nodes", name="bash", call_id="c1", is_error=False),
    Step("tool_result", "not JSON", name="bash", call_id="c2", is_error=True),
]
SAID = Step("assistant", '{"node_ids": [1]}', usage=SPENT)
LOOK = Reply(
    text="I look.",
    calls=(ToolCall("c1", "bash", '{"command": "ls"}'), ToolCall("c2", "bash", "{broken")),
    usage=SPENT,
    reasoning_summary="Look first.",
)


@pytest.fixture
def cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cell:
    monkeypatch.setenv("DKGI_RUNS", str(tmp_path))
    return open_cell(tmp_path, "c0ffee123456", {"axes": AXES, "config": {"limits": {"attempts": 2}}})


def spec(cell: Cell) -> ReplaySpec:
    return ReplaySpec("replay", "replay", cell.id, None)


def record(cell: Cell, *attempts: tuple[list[Step], Attempt | None]) -> None:
    with Journal(cell, 7, 0) as journal:
        for number, (steps, end) in enumerate(attempts, 1):
            journal.step(number, Step("user", "Which?"))
            for step in steps:
                journal.step(number, step)
            if end:
                journal.end(number, end)


def ended(stop: Stop, usage: Usage = SPENT, error: str = "") -> Attempt:
    return Attempt(stop, "", usage, 1.0, 1, 0, 0, error)


def model(cell: Cell, *, query: int = 7, attempt: int = 1) -> Model:
    return Replay(spec(cell)).model(free_place(query, attempt=attempt))


def ask(model: Model, *history: Item, prompt: str = "Which?") -> Reply:
    return model.reply([UserText(prompt), *history], [])


def failure(model: Model, *history: Item, **options: Any) -> tuple[str, str, Usage]:
    with pytest.raises(ModelError) as caught:
        ask(model, *history, **options)
    return caught.value.kind, str(caught.value), caught.value.usage


def test_the_n_th_request_gets_the_reply_that_was_recorded(cell: Cell) -> None:
    record(cell, ([*THOUGHT, *FOUND, SAID], ended("answered", SPENT + SPENT)))
    replay = model(cell)
    assert ask(replay) == LOOK
    assert ask(replay, LOOK, ToolResult("c1", "bash", "other nodes")) == Reply('{"node_ids": [1]}', usage=SPENT)


def test_a_programs_own_messages_and_summaries_do_not_matter_to_the_n_th_request(cell: Cell) -> None:
    with Journal(cell, 7, 0) as journal:
        for step in [Step("user", "<date>1 May</date>"), Step("user", "Which?"), *THOUGHT, *FOUND, SAID]:
            journal.step(1, step)
        journal.end(1, ended("answered", SPENT + SPENT))
    replay = model(cell)
    today = UserText("<date>2 May</date>")
    assert replay.reply([today, UserText("Which?")], []) == LOOK
    assert replay.reply([today, UserText("Which?"), UserText("So far: nothing.")], []).text == SAID.text


def test_each_attempt_has_its_own_replies_and_those_cut_off_or_without_money_none(cell: Cell) -> None:
    broke = ended("budget", Usage(), "budget: no money")
    record(cell, (THOUGHT, None), (THOUGHT, broke), (THOUGHT, ended("bad_answer")), ([SAID], ended("answered")))
    assert ask(model(cell, attempt=1)) == LOOK
    assert ask(model(cell, attempt=2)).text == SAID.text


def test_of_a_query_tried_again_the_last_round_is_replayed(cell: Cell) -> None:
    failed: tuple[list[Step], Attempt] = ([], ended("model_error", error="server: down"))
    record(cell, failed, failed, ([SAID], ended("answered")))
    assert ask(model(cell)).text == SAID.text


def test_a_replay_that_was_killed_and_counts_higher_gets_the_last_attempt(cell: Cell) -> None:
    record(cell, ([SAID], ended("answered")))
    assert ask(model(cell, attempt=3)).text == SAID.text


def test_an_error_comes_again_with_what_it_cost(cell: Cell) -> None:
    lost = Usage(input_fresh=900, output=32_000, requests=2, complete=False)
    record(cell, ([*THOUGHT, *FOUND], ended("model_error", SPENT + lost, "server: 503: busy")))
    assert failure(model(cell), LOOK) == ("server", "503: busy", lost)


def test_a_refusal_in_words_and_one_by_the_provider_are_refusals_again(cell: Cell) -> None:
    record(
        cell,
        ([Step("assistant", "No.", usage=SPENT)], ended("refused")),
        ([], ended("refused", error="refused: filtered")),
    )
    assert ask(model(cell)).stop == "refused"
    assert failure(model(cell, attempt=2)) == ("refused", "filtered", SPENT)


def test_an_attempt_that_ran_out_of_time_ends_so_without_waiting(cell: Cell) -> None:
    record(
        cell,
        ([*THOUGHT, *FOUND], ended("time_limit")),
        ([SAID], ended("time_limit")),
    )
    assert ask(model(cell)) == LOOK
    assert failure(model(cell), LOOK) == ("time_limit", "", Usage())
    assert failure(model(cell, attempt=2)) == ("time_limit", "", SPENT)


def test_what_was_not_recorded_is_said_in_one_line(cell: Cell) -> None:
    record(cell, ([*THOUGHT, *FOUND], ended("turn_limit")))
    assert failure(model(cell), LOOK)[:2] == ("no_record", "the recorded attempt ended after 1 replies: turn_limit")


def test_a_query_that_was_never_asked_ends_the_run_instead_of_counting_as_failed(cell: Cell) -> None:
    record(cell, ([SAID], ended("answered")))
    with pytest.raises(SetupError, match=r"^model\.cell: c0ffee123456 has no record of query 8, repeat 0; set limit"):
        model(cell, query=8)


def test_replies_to_another_prompt_are_not_given(cell: Cell) -> None:
    record(cell, ([SAID], ended("answered")))
    kind, message, _ = failure(model(cell), prompt="Who?")
    assert (kind, message) == ("no_record", "the recorded prompt differs from this one")


def test_the_beginning_of_an_id_names_one_cell_and_the_whole_id_is_what_counts(cell: Cell, tmp_path: Path) -> None:
    open_cell(tmp_path, "c0de00000000", {"axes": AXES})
    assert load(["model=replay", "model.cell=c0f"]).model == ReplaySpec("replay", "replay", cell.id, Prices(0, 0, 0, 0))
    for prefix, told in (("c0", "2 cells in .* begins with 'c0'"), ("beef", "0 cells in"), ("12", "needs quotes")):
        with pytest.raises(SetupError, match=rf"model\.cell: .*{told}"):
            load(["model=replay", f"model.cell={prefix}"])


@pytest.mark.parametrize("axis", AXES)
def test_a_cell_that_was_composed_otherwise_is_refused(cell: Cell, axis: str) -> None:
    spec(cell).check(AXES)
    with pytest.raises(ValueError, match=f"recorded with {axis}={AXES[axis]}, not other"):
        spec(cell).check({**AXES, axis: "other"})
