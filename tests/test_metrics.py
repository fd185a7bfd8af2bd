"""Scores of ranked lists, worked out by hand."""

import math
from dataclasses import astuple

import pytest

from dkgi.metrics import score


def test_a_perfect_list_scores_one_everywhere() -> None:
    result = score((1, 2, 3), gold={1, 2, 3})
    assert (result.hit_at_1, result.hit_at_5, result.recall_at_20, result.mrr) == (1, 1, 1, 1)
    assert result.ndcg_at_20 == pytest.approx(1)
    assert result.map_at_20 == pytest.approx(1)


def test_an_empty_list_scores_zero_everywhere() -> None:
    assert set(astuple(score((), gold={1}))) == {0.0}


def test_values_worked_out_by_hand() -> None:
    result = score((9, 1, 8, 2), gold={1, 2, 3})
    assert result.hit_at_1 == 0
    assert result.hit_at_5 == 1
    assert result.recall_at_20 == pytest.approx(2 / 3)
    assert result.mrr == 1 / 2
    gain = 1 / math.log2(3) + 1 / math.log2(5)
    assert result.ndcg_at_20 == pytest.approx(gain / (1 + 1 / math.log2(3) + 1 / math.log2(4)))
    assert result.map_at_20 == pytest.approx((1 / 2 + 2 / 4) / 3)


@pytest.mark.parametrize("entry", ["1", 1.0, True, None, [1], {"id": 1}])
def test_an_entry_that_is_no_integer_holds_its_rank_as_a_miss(entry: object) -> None:
    result = score((entry, 1), gold={1})
    assert result.hit_at_1 == 0
    assert result.mrr == 1 / 2


def test_a_repeat_holds_its_rank_and_counts_once() -> None:
    result = score((1, 1, 1, 2), gold={1, 2, 3, 4})
    assert result.recall_at_20 == pytest.approx(2 / 4)
    assert result.map_at_20 == pytest.approx((1 + 2 / 4) / 4)


def test_recall_counts_twenty_places_and_mrr_one_hundred() -> None:
    fillers = tuple(range(1000, 1020))
    late = score((*fillers, 1), gold={1})
    assert late.recall_at_20 == 0
    assert late.mrr == 1 / 21
    assert score((*range(1000, 1100), 1), gold={1}).mrr == 0


def test_recall_divides_by_all_gold_also_when_there_is_more_than_fits() -> None:
    assert score(tuple(range(20)), gold=set(range(40))).recall_at_20 == 0.5
    assert score(tuple(range(20)), gold=set(range(40))).ndcg_at_20 == pytest.approx(1)


def test_a_query_without_gold_is_a_bug_not_a_zero() -> None:
    with pytest.raises(ValueError, match="gold"):
        score((1,), gold=set())
