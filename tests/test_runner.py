"""Attempts, retries, resume and stopping, with scripted replies in real jails."""

import json
import resource
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dkgi.context import Level3
from dkgi.harness.native import Native, NativeSpec
from dkgi.meter import GridLedger, Ledger
from dkgi.models import open_models
from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.runner import CellRun, Seat, answer_queries
from dkgi.store import Journal, open_cell
from dkgi.types import (
    Attempt,
    Limits,
    Prices,
    Query,
    QueryResult,
    SandboxError,
    SetupError,
    Step,
    ToolPolicy,
    Usage,
    Workspace,
)
from tests.loopback import Loopback, Turn
from tests.models.providers import provider

PRICES = Prices(0, 0, 0, 1_000_000)
POLICY = ToolPolicy("p", True, True, True, ("bash", "read"), "tools_full_dkgi.md", (0, 0, 0))
GOOD: dict[str, Any] = {"text": '{"node_ids": [2, 0]}', "usage": {"output": 1}}
BAD: dict[str, Any] = {"text": "It is film 2.", "usage": {"output": 10}}
REFUSED: dict[str, Any] = {"text": "No.", "stop": "refused", "usage": {"output": 100}}
BROKEN: dict[str, Any] = {"error": {"message": "down", "kind": "server"}, "usage": {"output": 1000}}


@pytest.fixture
def cell_run(tmp_path: Path, seat: Seat, cancel: Callable[[], None]) -> CellRun:
    """A cell on one shared seat; tests fill in the script."""

    @contextmanager
    def open_seat(log: Path) -> Iterator[Seat]:
        yield seat

    return CellRun(
        cell=open_cell(tmp_path, "c0ffee", {}),
        dataset="films",
        harness=Native(NativeSpec("native", "native", Level3())),
        models=script(tmp_path, {"*": [[GOOD]]}),
        policy=POLICY,
        limits=Limits(wall_s=30, max_turns=9, attempts=3, backoff_s=0),
        prices=PRICES,
        ledger=Ledger(cap_usd=None, prices=PRICES),
        answer_key="node_ids",
        prompt=lambda query, _: query.text,
        seat=open_seat,
        cancel=cancel,
    )


def script(tmp_path: Path, replies: dict[str, Any]) -> Scripted:
    path = tmp_path / "replies.json"
    path.write_text(json.dumps(replies))
    return Scripted(ScriptedSpec("scripted", "scripted", path, None))


def query(number: int) -> Query:
    return Query(number, f"question {number}", "test", False)


def answer(run: CellRun, *attempts: list[dict[str, Any]], folder: Path) -> QueryResult:
    run = replace(run, models=script(folder, {"*": list(attempts)}))
    (result,) = answer_queries(run, [(query(1), 0)], threads=1)
    return result


def test_an_answer_is_recorded_with_usage_and_dollars(cell_run: CellRun, tmp_path: Path) -> None:
    result = answer(cell_run, [GOOD], folder=tmp_path)
    assert (result.outcome, result.stops, result.node_ids) == ("scored", ("answered",), (2, 0))
    assert (result.usage, result.cost_usd) == (Usage(output=1, requests=1), 1.0)
    assert cell_run.cell.result(1, 0) == result


def test_a_bad_answer_is_tried_again_and_every_attempt_is_paid(cell_run: CellRun, tmp_path: Path) -> None:
    result = answer(cell_run, [BAD], [BROKEN], [GOOD], folder=tmp_path)
    assert (result.outcome, result.stops) == ("scored", ("bad_answer", "model_error", "answered"))
    assert (result.cost_usd, result.last_usage.output) == (1011.0, 1)


def test_an_empty_list_is_an_answer_and_not_tried_again(cell_run: CellRun, tmp_path: Path) -> None:
    result = answer(cell_run, [{"text": '{"node_ids": []}'}], folder=tmp_path)
    assert (result.outcome, result.stops) == ("scored", ("answered",))


@pytest.mark.parametrize(
    ("reply", "stop", "outcome"),
    [
        (BAD, "bad_answer", "failed_agent"),
        (REFUSED, "refused", "failed_agent"),
        (BROKEN, "model_error", "failed_infra"),
    ],
)
def test_three_failed_attempts_end_a_query(
    cell_run: CellRun, tmp_path: Path, reply: dict[str, Any], stop: str, outcome: str
) -> None:
    result = answer(cell_run, [reply], folder=tmp_path)
    assert (result.outcome, result.stops, result.node_ids) == (outcome, (stop,) * 3, ())


def test_a_seat_that_is_not_safe_is_an_infra_failure_without_a_model_call(cell_run: CellRun, tmp_path: Path) -> None:
    @contextmanager
    def unsafe(log: Path) -> Iterator[Seat]:
        raise SandboxError("no jail")
        yield

    result = answer(replace(cell_run, seat=unsafe), [GOOD], folder=tmp_path)
    assert (result.outcome, result.stops, result.usage.requests, result.error) == (
        "failed_infra",
        ("sandbox_error",) * 3,
        0,
        "no jail",
    )


def test_back_off_doubles_between_attempts_and_is_skipped_after_a_refusal(cell_run: CellRun, tmp_path: Path) -> None:
    slow = replace(cell_run, limits=replace(cell_run.limits, backoff_s=0.4))
    started = time.monotonic()
    answer(slow, [REFUSED], folder=tmp_path)
    refused_s = time.monotonic() - started
    started = time.monotonic()
    (other,) = answer_queries(replace(slow, models=script(tmp_path, {"*": [[BAD]]})), [(query(2), 0)], threads=1)
    assert other.stops == ("bad_answer",) * 3
    assert time.monotonic() - started >= 1.2 > refused_s


def test_a_killed_attempt_is_run_again_and_stays_in_the_totals(cell_run: CellRun, tmp_path: Path) -> None:
    with Journal(cell_run.cell, 1, 0) as journal:
        journal.step(1, Step("assistant", "so far", usage=Usage(output=500, requests=1)))
    result = answer(cell_run, [BAD], [GOOD], folder=tmp_path)
    assert (result.interrupted, result.stops, result.cost_usd, result.usage.complete) == (
        1,
        ("answered",),
        501.0,
        False,
    )
    assert [attempt.number for attempt in cell_run.cell.attempts(1, 0)] == [1, 2]


def test_attempts_that_ended_before_a_kill_count_and_are_not_run_again(cell_run: CellRun, tmp_path: Path) -> None:
    ended = Attempt("bad_answer", "?", Usage(output=7, requests=1), 1.0, 1, 0, 0)
    with Journal(cell_run.cell, 1, 0) as journal:
        journal.end(1, ended)
        journal.end(2, ended)
    result = answer(cell_run, [BAD], folder=tmp_path)
    assert (result.stops, result.cost_usd) == (("bad_answer",) * 3, 24.0)


def test_an_answer_that_was_recorded_before_a_kill_is_not_asked_for_again(cell_run: CellRun, tmp_path: Path) -> None:
    with Journal(cell_run.cell, 1, 0) as journal:
        journal.end(1, Attempt("answered", '{"node_ids": [1]}', Usage(output=7, requests=1), 1.0, 1, 0, 0))
    result = answer(cell_run, [GOOD], folder=tmp_path)
    assert (result.node_ids, result.cost_usd) == ((1,), 7.0)


def test_a_finished_query_that_is_tried_again_has_all_attempts_anew_and_keeps_its_bill(
    cell_run: CellRun, tmp_path: Path
) -> None:
    assert answer(cell_run, [BROKEN], folder=tmp_path).cost_usd == 3000.0
    again = answer(cell_run, [BROKEN], [BROKEN], [BROKEN], [BROKEN], [GOOD], folder=tmp_path)
    assert (again.outcome, again.stops, again.cost_usd) == ("scored", ("model_error",) * 4 + ("answered",), 4001.0)


def test_a_query_over_budget_stays_without_result(cell_run: CellRun, tmp_path: Path) -> None:
    broke = {"error": {"message": "cap reached", "kind": "budget"}}
    run = replace(cell_run, models=script(tmp_path, {"1": [[broke]], "*": [[GOOD]]}))
    assert [result.number for result in answer_queries(run, [(query(1), 0), (query(2), 0)], threads=1)] == [2]


def test_an_attempt_over_budget_is_paid_and_is_none_of_the_tries(cell_run: CellRun, tmp_path: Path) -> None:
    broke = {"error": {"message": "cap reached", "kind": "budget"}, "usage": {"output": 5}}
    run = replace(cell_run, models=script(tmp_path, {"*": [[BAD], [broke], [BAD], [GOOD]]}))
    assert list(answer_queries(run, [(query(1), 0)], threads=1)) == []
    (result,) = answer_queries(run, [(query(1), 0)], threads=1)
    assert (result.stops, result.cost_usd) == (("bad_answer", "bad_answer", "answered"), 26.0)
    assert (result.interrupted, result.usage.complete) == (1, True)


def test_all_queries_come_back_from_many_threads(cell_run: CellRun) -> None:
    todo = [(query(number), repeat) for repeat in range(2) for number in range(20)]
    results = list(answer_queries(cell_run, todo, threads=8))
    assert sorted((result.number, result.repeat) for result in results) == sorted((q.number, r) for q, r in todo)


def test_a_fault_in_a_worker_ends_the_run_loudly(cell_run: CellRun) -> None:
    def fault(query: Query, workspace: Workspace) -> str:
        raise ZeroDivisionError("a bug")

    with pytest.raises(ZeroDivisionError):
        list(answer_queries(replace(cell_run, prompt=fault), [(query(1), 0), (query(2), 0)], threads=2))


def test_closing_the_iterator_ends_commands_and_workers_and_records_no_result_for_what_was_cut_off(
    cell_run: CellRun, tmp_path: Path
) -> None:
    slow = {"calls": [{"name": "bash", "arguments": {"command": "sleep 300"}}]}
    run = replace(cell_run, models=script(tmp_path, {"1": [[GOOD]], "*": [[slow, GOOD]]}))
    todo = [(query(number), 0) for number in range(1, 9)]
    with closing(answer_queries(run, todo, threads=2)) as results:
        assert next(results).number == 1
    assert not any(thread.name.startswith("agent") for thread in threading.enumerate())
    assert [result.number for result in cell_run.cell.results()] == [1]
    cut_off = [step for attempt in cell_run.cell.attempts(2, 0) for step in attempt.steps]
    assert [step.type for step in cut_off] == ["user", "tool_call"]


def test_a_place_that_opens_after_the_end_of_the_run_costs_no_request(cell_run: CellRun, seat: Seat) -> None:
    opening, over = threading.Event(), threading.Event()

    @contextmanager
    def open_seat(log: Path) -> Iterator[Seat]:
        if log.parent == cell_run.cell.query_folder(2, 0):
            opening.wait(10)
            raise RuntimeError("the fault that ends the run")
        opening.set()
        over.wait(10)
        yield seat

    run = replace(cell_run, seat=open_seat, cancel=over.set)
    with pytest.raises(RuntimeError, match="ends the run"):
        list(answer_queries(run, [(query(1), 0), (query(2), 0)], threads=2))
    assert [step for attempt in run.cell.attempts(1, 0) for step in attempt.steps] == []


def test_once_the_grid_has_no_more_for_a_cell_no_other_query_is_begun(cell_run: CellRun) -> None:
    grid = GridLedger(None, 4000)
    ledger = Ledger(cap_usd=None, prices=None, grid=grid)
    with Loopback([Turn(text='{"node_ids": [2]}', input=1000, output=50)]) as server:
        models = open_models(provider("openai_chat", base_url=server.url, max_output_tokens=1000))
        run = replace(cell_run, models=models, ledger=ledger, prices=None)
        results = list(answer_queries(run, [(query(number), 0) for number in range(6)], threads=1))
        answered = len(server.requests)
    assert 0 < answered == len(results) < 5
    assert grid.spent_tokens == 1050 * answered
    # The one that was refused has begun, and waits.
    assert len(list((cell_run.cell.folder / "queries").iterdir())) == answered + 1


@pytest.mark.parametrize(
    "reply",
    [
        {"calls": [{"name": "read", "arguments": '{"path": "\\ud800"}'}], "text": "\ud800"},
        {"calls": [{"name": "bash", "arguments": '{"command": "echo \\ud800"}'}]},
        {"calls": [{"name": "bash", "arguments": "[" * 100_000}]},
        {"text": '{"node_ids": [' + "1" * 30 + ', "\\ud800"]}'},
    ],
)
def test_whatever_a_model_says_can_be_recorded(cell_run: CellRun, tmp_path: Path, reply: dict[str, Any]) -> None:
    result = answer(cell_run, [reply, GOOD], folder=tmp_path)
    assert result.outcome == "scored"
    assert cell_run.cell.result(1, 0) is not None
    assert cell_run.cell.steps(1, 0)


def test_a_file_that_cannot_grow_is_a_fault_that_the_user_can_mend(cell_run: CellRun, tmp_path: Path) -> None:
    with Journal(cell_run.cell, 1, 0) as journal:
        journal.step(1, Step("assistant", "x" * 4000))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4100, hard))
    try:
        with pytest.raises(SetupError, match=r"steps\.jsonl: File too large; make room"):
            list(answer_queries(cell_run, [(query(1), 0)], threads=1))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    (result,) = answer_queries(cell_run, [(query(1), 0)], threads=1)
    assert result.outcome == "scored"


def test_the_cell_knows_nothing_of_gold() -> None:
    import subprocess
    import sys

    program = "import sys, dkgi.runner, dkgi.harness.native; print([m for m in ('dkgi.gold','dkgi.metrics','dkgi.collect','dkgi.tracking','mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "[]"
