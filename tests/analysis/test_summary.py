"""The figures of a cell: every result counts, unknown money is not free, repeats are of one question."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from dkgi.analysis.summary import measures, summarise
from dkgi.types import QueryResult, Score, Usage

Make = Callable[..., tuple[QueryResult, Score]]


def test_failed_queries_count_with_zeros_and_by_the_stop_of_their_last_attempt(pair: Make) -> None:
    summary = summarise([pair(1, 1.0), pair(2, 1.0), pair(3, stop="time_limit"), pair(4, stop="crashed")])
    assert summary.queries == 4
    assert summary.hit_at_1.mean == 0.5
    assert summary.recall_at_20.mean == 0.25
    assert summary.outcomes == {"scored": 2, "time_limit": 1, "crashed": 1}


def test_a_failure_without_any_attempt_goes_by_its_outcome(pair: Make) -> None:
    summary = summarise([pair(1, stop="crashed", stops=(), outcome="failed_infra")])
    assert summary.outcomes == {"failed_infra": 1}


def test_means_and_medians_are_over_all_results(pair: Make) -> None:
    summary = summarise([pair(number) for number in (1, 2, 6)])
    assert summary.means["wall_s"] == 30.0
    assert summary.medians["wall_s"] == 20.0
    assert summary.means["input_tokens"] == 4000.0
    assert summary.means["cache_read_tokens"] == 3000.0
    assert summary.medians["output_tokens"] == 202.0
    assert summary.means["attempts"] == 2.0


def test_money_of_all_results_is_summed_and_is_unknown_if_one_is(pair: Make) -> None:
    known = [pair(1), pair(2, stop="crashed")]
    assert summarise(known).cost_usd_total == pytest.approx(0.01)
    assert summarise(known).means["cost_usd"] == pytest.approx(0.005)
    unknown = summarise([*known, pair(3, cost_usd=None)])
    assert unknown.cost_usd_total is None
    assert "cost_usd" not in unknown.means
    assert summarise([pair(1, cost_usd=0.0)]).cost_usd_total == 0.0


def test_repeats_of_a_question_do_not_make_its_interval_narrower(pair: Make) -> None:
    once = [pair(number, float(number % 2)) for number in range(20)]
    repeated = [pair(number, float(number % 2), repeat=repeat) for number in range(20) for repeat in range(5)]
    assert summarise(repeated).queries == 100
    assert summarise(repeated).hit_at_1 == summarise(once).hit_at_1


def test_results_with_unreported_usage_are_counted(pair: Make) -> None:
    summary = summarise([pair(1), pair(2, usage=Usage(output=1, complete=False))])
    assert summary.incomplete == summary.metrics("hpo")["n_incomplete"] == 1


def test_mlflow_gets_means_totals_and_the_scores_by_data_set(pair: Make) -> None:
    metrics = summarise([pair(1, 1.0), pair(2, stop="time_limit")]).metrics("hpo")
    assert metrics["hit_at_1"] == metrics["hpo/hit_at_1"] == 0.5
    assert metrics["hpo/recall_at_20"] == 0.25
    assert metrics["hpo/mrr"] == 0.5
    assert (metrics["n_queries"], metrics["n_failed"]) == (2.0, 1.0)
    assert metrics["cost_usd_total"] == 0.01
    assert {"input_tokens", "cache_read_tokens", "wall_s", "turns", "tool_calls", "tool_errors"} <= metrics.keys()


def test_a_cell_without_results_has_counts_only(pair: Make) -> None:
    assert summarise([]).metrics("hpo") == {"n_queries": 0.0, "n_failed": 0.0, "n_incomplete": 0.0}


def test_input_tokens_include_the_cached_ones(pair: Make) -> None:
    result, score = pair(1)
    assert measures(replace(result, usage=Usage(1, 20, 300, 4, 2)), score)["input_tokens"] == 321.0
