"""Scoring of finished queries, against gold that agents never see."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from dkgi.collect import Collector
from dkgi.store import Cell, Journal, open_cell
from dkgi.tracking import NullTracker
from dkgi.types import QueryResult, SafetyStop, Step
from tests.results import query_result as result

GOLD = {3: {1, 2}, 4: {9}}
CANARY, KEY = "canary-5b1f", "not-a-real-key-81c2"
SECRETS = {"the canary that lies beside the labels": CANARY, "the value of SOME_KEY": KEY}


@dataclass
class Memory(NullTracker):
    """A tracker that remembers what it was given; its log is empty at the start."""

    logged: list[tuple[int, float]] = field(default_factory=list)

    def has(self, result: QueryResult) -> bool:
        return False

    def log(self, result: QueryResult, score: object, steps_path: Path, steps: object) -> None:
        self.logged.append((result.number, score.hit_at_1))  # type: ignore[attr-defined]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return open_cell(tmp_path, "c0ffee", {})


def finish(cell: Cell, one: QueryResult, said: str = "text") -> QueryResult:
    with Journal(cell, one.number, one.repeat) as journal:
        journal.step(1, Step("assistant", said))
    cell.write(one)
    return one


def scores(cell: Cell) -> list[Mapping[str, float]]:
    return [json.loads(line) for line in (cell.folder / "scores.jsonl").read_text().splitlines()]


def test_a_finished_query_is_scored_recorded_and_logged(cell: Cell) -> None:
    tracker = Memory()
    score = Collector(cell, GOLD, SECRETS, tracker).take(finish(cell, result(3)))
    assert score.hit_at_1 == 1
    assert [(line["number"], line["hit_at_1"], line["recall_at_20"]) for line in scores(cell)] == [(3, 1.0, 0.5)]
    assert tracker.logged == [(3, 1.0)]


def test_a_failed_query_scores_zero_whatever_it_said(cell: Cell) -> None:
    failed = replace(result(3), outcome="failed_agent")
    assert Collector(cell, GOLD, SECRETS, NullTracker()).take(finish(cell, failed)).mrr == 0


def test_results_of_earlier_sessions_are_scored_again_and_logged_where_the_log_lacks_them(cell: Cell) -> None:
    finish(cell, result(3))
    finish(cell, replace(result(4), node_ids=(7,)))
    tracker = Memory()
    collector = Collector(cell, GOLD, SECRETS, tracker)
    assert [(r.number, s.hit_at_1) for r, s in collector.scored] == [(3, 1.0), (4, 0.0)]
    assert tracker.logged == [(3, 1.0), (4, 0.0)]
    assert [line["number"] for line in scores(cell)] == [3, 4]


def test_a_query_that_is_tried_again_counts_once(cell: Cell) -> None:
    finish(cell, replace(result(3), outcome="failed_infra"))
    collector = Collector(cell, GOLD, SECRETS, NullTracker())
    collector.take(finish(cell, result(3)))
    assert [(r.number, s.hit_at_1) for r, s in collector.scored] == [(3, 1.0)]
    assert [line["hit_at_1"] for line in scores(cell)] == [1.0]


def test_a_canary_in_a_trajectory_stops_the_run_before_the_score_counts(cell: Cell) -> None:
    collector = Collector(cell, GOLD, SECRETS, NullTracker())
    with pytest.raises(SafetyStop, match="canary"):
        collector.take(finish(cell, result(3), said=f"I found {CANARY} in a file"))
    assert collector.scored == []
    assert scores(cell) == []


def test_a_key_in_a_trajectory_stops_the_run_and_is_not_shown(cell: Cell) -> None:
    with pytest.raises(SafetyStop, match="the value of SOME_KEY") as caught:
        Collector(cell, GOLD, SECRETS, NullTracker()).take(finish(cell, result(3), said=f"env: {KEY}"))
    assert KEY not in str(caught.value)


def test_a_cell_that_saw_a_canary_is_never_gone_on_with(cell: Cell) -> None:
    with pytest.raises(SafetyStop):
        Collector(cell, GOLD, SECRETS, NullTracker()).take(finish(cell, result(3), said=CANARY))
    with pytest.raises(SafetyStop, match="canary"):
        Collector(cell, GOLD, SECRETS, NullTracker())


def test_a_query_without_gold_is_a_fault_and_not_a_zero(cell: Cell) -> None:
    with pytest.raises(KeyError):
        Collector(cell, {}, SECRETS, NullTracker()).take(finish(cell, result(3)))
