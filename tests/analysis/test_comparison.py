"""Cells are paired by question; what cannot be paired is told, and stops nothing else."""

import json
from collections.abc import Callable

import pytest

from dkgi.analysis.comparison import Comparison, Pair, compare
from dkgi.analysis.statistics import holm, mcnemar, paired
from dkgi.types import QueryResult, Score

Make = Callable[..., tuple[QueryResult, Score]]


def pair_of(comparison: Comparison, label: str) -> Pair:
    return dict(comparison.pairs)[label]


def test_a_difference_is_paired_and_not_one_of_independent_means(pair: Make) -> None:
    good = [pair(number, 1.0 if number % 2 else 0.5) for number in range(40)]
    poor = [pair(number, 0.5 if number % 2 else 0.0) for number in range(40)]
    interval = pair_of(compare(["poor", "good"], [poor, good]), "good").differences["hit_at_1"].interval
    assert (interval.mean, interval.low, interval.high) == (0.5, 0.5, 0.5)
    interval = pair_of(compare(["good", "poor"], [good, poor]), "poor").differences["hit_at_1"].interval
    assert (interval.mean, interval.low, interval.high) == (-0.5, -0.5, -0.5)


def test_questions_that_one_cell_lacks_do_not_count(pair: Make) -> None:
    found = pair_of(compare(["a", "b"], [[pair(1, 1.0), pair(2, 0.0)], [pair(1, 0.0), pair(3, 1.0)]]), "b")
    assert (found.questions, found.differences["hit_at_1"].interval.mean) == (1, -1.0)


def test_hit_at_1_alone_is_tested_by_mcnemar_on_the_questions_that_one_has_right_alone(pair: Make) -> None:
    first = [pair(number, float(number < 12)) for number in range(20)]
    second = [pair(number, float(number < 4 or number == 19)) for number in range(20)]
    found = pair_of(compare(["first", "second"], [first, second]), "second")
    assert found.discordant == (1, 8)
    assert found.differences["hit_at_1"].p == mcnemar(1, 8)
    assert found.differences["mrr"].p == paired([1.0] + [-1.0] * 8 + [0.0] * 11)[1] != mcnemar(1, 8)


def test_repeats_of_a_question_are_averaged_and_leave_mcnemar_out(pair: Make) -> None:
    once = [pair(number, 0.0) for number in range(30)]
    twice = [pair(number, float(repeat), repeat=repeat) for number in range(30) for repeat in range(2)]
    found = pair_of(compare(["once", "twice"], [once, twice]), "twice")
    assert found.discordant is None
    difference = found.differences["hit_at_1"]
    assert (difference.interval.mean, difference.interval.low, difference.interval.high) == (0.5, 0.5, 0.5)
    assert difference.p == pytest.approx(2 / 10_001)


def test_the_same_number_is_not_the_same_question_where_data_set_or_text_differ(pair: Make) -> None:
    cells = [[pair(1, 1.0)], [pair(1, 0.0, query="What?")], [pair(1, 0.0, dataset="amazon")]]
    comparison = compare(["a", "b", "c"], cells)
    assert comparison.pairs == []
    assert [row.note for row in comparison.rows] == ["", *["no question in common with a cell above"] * 2]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_cell_without_results_stops_no_other(place: int, pair: Make) -> None:
    cells = [[pair(number, float(number % 3 < limit)) for number in range(9)] for limit in (1, 2)]
    cells.insert(place, [])
    labels = ["one", "two"]
    labels.insert(place, "empty")
    comparison = compare(labels, cells)
    assert [(label, found.against, found.questions) for label, found in comparison.pairs] == [("two", "one", 9)]
    assert {row.label: row.note for row in comparison.rows} == {
        "one": "",
        "two": "",
        "empty": "no finished question yet",
    }
    assert all(record["queries"] in (0, 9) for record in comparison.records())


def test_cells_of_several_data_sets_are_set_against_the_first_of_their_own(pair: Make) -> None:
    cells = [[pair(number, 1.0, dataset=name) for number in range(3)] for name in ("hpo", "mag", "hpo", "mag")]
    comparison = compare(["full hpo", "full mag", "less hpo", "less mag"], cells)
    assert [(label, found.against) for label, found in comparison.pairs] == [
        ("less hpo", "full hpo"),
        ("less mag", "full mag"),
    ]


def test_p_is_adjusted_for_all_pairs_in_each_metric_by_itself(pair: Make) -> None:
    first = [pair(number, 1.0) for number in range(30)]
    others = [[pair(number, float(number >= wrong)) for number in range(30)] for wrong in (10, 0, 7, 8)]
    comparison = compare(["first", "a", "b", "c", "d"], [first, *others])
    for metric in ("hit_at_1", "recall_at_20", "mrr"):
        found = [each.differences[metric] for _, each in comparison.pairs]
        assert [each.p_holm for each in found] == holm([each.p for each in found])
    assert pair_of(comparison, "c").differences["hit_at_1"].p_holm == pytest.approx(2 * mcnemar(7, 0) * 1)


def test_records_are_json_with_every_figure_of_rows_and_pairs(pair: Make) -> None:
    comparison = compare(["a", "b", "c"], [[pair(n, 1.0) for n in range(8)], [pair(n, 0.0) for n in range(8)], []])
    first, second, empty = json.loads(json.dumps(comparison.records(), allow_nan=False))
    assert first.keys() == second.keys() == empty.keys()
    assert (first["cell"], first["hit_at_1"], first["against"], first["hit_at_1_p"]) == ("a", 1.0, None, None)
    assert (second["against"], second["shared"], second["hit_at_1_difference"]) == ("a", 8, -1.0)
    assert second["hit_at_1_p"] == second["hit_at_1_p_holm"] == 2 / 2**8
    assert second["discordant"] == [0, 8]
    assert (empty["queries"], empty["hit_at_1"], empty["note"]) == (0, None, "no finished question yet")
