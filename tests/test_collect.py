"""Scoring of finished queries, against gold that agents never see."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from dkgi.analysis.summary import scored_results
from dkgi.collect import Collector
from dkgi.shards import Shard
from dkgi.store import Cell, Journal, open_cell
from dkgi.tracking import NullTracker
from dkgi.types import QueryResult, SafetyStop, SetupError, Step
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


def test_a_shard_scores_and_knows_its_own_queries_alone(cell: Cell) -> None:
    shards = [Shard(2, index) for index in range(2)]
    gold = {number: {1} for number in range(8)}
    for number in range(8):
        finish(cell, result(number))
    collectors = [Collector(cell, gold, SECRETS, NullTracker(), shard=shard) for shard in shards]
    for shard, collector in zip(shards, collectors, strict=True):
        own = [number for number in range(8) if shard.holds("hpo", number)]
        assert [r.number for r, _ in collector.scored] == own
        lines = (cell.folder / f"scores.{shard.index}-2.jsonl").read_text().splitlines()
        assert [json.loads(line)["number"] for line in lines] == own
        assert [r.number for r, _ in collector.of_cell()] == list(range(8))
    assert not (cell.folder / "scores.jsonl").exists()
    assert scored_results(cell) == Collector(cell, gold, SECRETS, NullTracker()).scored


def test_a_score_of_an_earlier_result_in_the_file_of_another_run_does_not_count(cell: Cell) -> None:
    shard = next(shard for shard in (Shard(2, 0), Shard(2, 1)) if shard.holds("hpo", 3))
    finish(cell, replace(result(3), outcome="failed_infra", started=1.0))
    Collector(cell, GOLD, SECRETS, NullTracker())
    Collector(cell, GOLD, SECRETS, NullTracker(), shard=shard).take(finish(cell, replace(result(3), started=2.0)))
    assert [score.hit_at_1 for _, score in scored_results(cell)] == [1.0]
    again = finish(cell, replace(result(3), outcome="failed_infra", started=3.0))
    assert scored_results(cell) == []
    Collector(cell, GOLD, SECRETS, NullTracker())
    assert [(r, score.hit_at_1) for r, score in scored_results(cell)] == [(again, 0.0)]


def test_scores_of_an_earlier_version_count_and_damaged_ones_are_named(cell: Cell) -> None:
    finish(cell, result(3))
    Collector(cell, GOLD, SECRETS, NullTracker())
    path = cell.folder / "scores.jsonl"
    line = json.loads(path.read_text())
    del line["started"]
    path.write_text(json.dumps(line) + "\n")
    assert [score.hit_at_1 for _, score in scored_results(cell)] == [1.0]
    path.write_text("[]\n")
    with pytest.raises(SetupError, match=r"scores\.jsonl: damaged"):
        scored_results(cell)


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
