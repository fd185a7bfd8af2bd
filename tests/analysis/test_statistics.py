"""Intervals and tests are those of the literature, the same in every process and order."""

import itertools
import math
import random
from fractions import Fraction

import numpy as np
import pytest

from dkgi.analysis.statistics import Interval, bootstrap, holm, mcnemar, paired


def test_the_interval_of_a_share_is_that_of_the_binomial_distribution() -> None:
    interval = bootstrap([1.0] * 90 + [0.0] * 210)
    assert interval.mean == 0.3
    # Quantiles of Binomial(300, 0.3) / 300.
    assert interval.low == pytest.approx(0.25, abs=0.004)
    assert interval.high == pytest.approx(0.3533, abs=0.004)


def test_it_agrees_with_resampling_query_by_query() -> None:
    draw = random.Random(7)
    values = [draw.random() ** 3 for _ in range(80)]
    means = sorted(sum(draw.choices(values, k=80)) / 80 for _ in range(4000))
    interval = bootstrap(values)
    assert interval.low == pytest.approx(means[100], abs=0.01)
    assert interval.high == pytest.approx(means[3900], abs=0.01)


def test_it_covers_the_true_mean_about_19_times_in_20() -> None:
    draw = np.random.default_rng(3)
    covered = 0
    for _ in range(200):
        interval = bootstrap(list(map(float, draw.random(60) < 0.4)))
        covered += interval.low <= 0.4 <= interval.high
    assert 180 <= covered <= 198


def test_the_order_of_the_values_does_not_matter_and_the_seed_does() -> None:
    values = [0.0, 0.1, 0.25, 1.0, 0.5, 0.75] * 7
    assert bootstrap(values) == bootstrap(sorted(values)) == bootstrap(values[::-1])
    assert bootstrap(values, seed=1) != bootstrap(values)


@pytest.mark.parametrize("n", [2, 3, 199, 7108])
def test_any_number_of_queries_gives_an_interval_around_the_mean(n: int) -> None:
    interval = bootstrap([i % 2 / 1 for i in range(n)])
    assert 0.0 <= interval.low < interval.mean < interval.high <= 1.0


def test_one_value_and_equal_values_are_their_own_interval() -> None:
    assert bootstrap([0.25]) == Interval(0.25, 0.25, 0.25)
    equal = bootstrap([0.1] * 7)
    assert equal.low == equal.mean == equal.high == pytest.approx(0.1)


def test_no_values_have_no_mean() -> None:
    assert all(map(math.isnan, (bootstrap([]).mean, bootstrap([]).low, bootstrap([]).high)))


def test_p_of_the_bootstrap_is_that_of_all_resamples_there_are() -> None:
    differences = [0.5, 0.25, 0.1, -0.2, 0.3, -0.1]
    means = [sum(draw) for draw in itertools.product(differences, repeat=len(differences))]
    exact = 2 * sum(mean <= 1e-9 for mean in means) / len(means)
    assert paired(differences)[1] == pytest.approx(exact, abs=0.01)


def test_p_and_interval_of_a_difference_agree_on_whether_0_is_possible() -> None:
    draw = np.random.default_rng(5)
    seen = set()
    for shift in np.linspace(0.0, 0.3, 60):
        interval, p = paired(list(map(float, draw.normal(shift, 0.5, 40))))
        if abs(p - 0.05) > 0.003:
            assert (p < 0.05) == (interval.low > 0 or interval.high < 0)
            seen.add(p < 0.05)
    assert seen == {True, False}


def test_the_interval_of_differences_is_that_of_their_bootstrap() -> None:
    differences = [0.1, 0.4, -0.2, 0.3, 0.0] * 9
    assert paired(differences)[0] == bootstrap(differences)


def test_equal_agents_are_told_apart_about_once_in_twenty() -> None:
    draw = np.random.default_rng(11)
    found = sum(paired(list(map(float, draw.integers(-1, 2, 40))))[1] <= 0.05 for _ in range(600))
    assert 15 <= found <= 45


@pytest.mark.parametrize(("questions", "least"), [(1, 1.0), (2, 0.5), (3, 0.25), (5, 0.0625), (6, 0.03125)])
def test_a_few_questions_cannot_show_more_than_a_test_of_signs_could(questions: int, least: float) -> None:
    assert paired([1.0] * questions)[1] == least
    assert paired([1.0] * questions + [0.0] * 50)[1] >= least


def test_p_is_never_0_and_1_where_nothing_differs() -> None:
    assert paired([1.0] * 500)[1] == pytest.approx(2 / 10_001)
    assert paired([0.0] * 500) == (Interval(0.0, 0.0, 0.0), 1.0)


def test_rounding_does_not_count_as_a_difference() -> None:
    rounded = 0.1 + 0.2 - 0.3
    assert rounded > 0
    assert paired([rounded] * 30)[1] == 1.0
    assert paired([1.0] * 3 + [rounded] * 50)[1] == 0.25


def test_the_opposite_differences_have_the_opposite_interval_and_the_same_p() -> None:
    differences = [0.1, 0.4, -0.2, 0.3, 0.0] * 3
    interval, p = paired(differences)
    assert paired([-each for each in differences]) == (Interval(-interval.mean, -interval.high, -interval.low), p)


def test_no_differences_have_no_p() -> None:
    assert math.isnan(paired([])[1])


@pytest.mark.parametrize(
    ("one", "other", "p"),
    [(0, 0, 1.0), (0, 1, 1.0), (0, 5, 0.0625), (0, 6, 0.03125), (1, 9, 11 / 512), (5, 5, 1.0), (2, 8, 0.109375)],
)
def test_mcnemar_gives_the_values_of_binomial_tables(one: int, other: int, p: float) -> None:
    assert mcnemar(one, other) == mcnemar(other, one) == p


@pytest.mark.parametrize("n", [1, 4, 7, 12])
def test_mcnemar_counts_all_ways_in_which_the_questions_could_have_fallen(n: int) -> None:
    """By brute force: the part of all outcomes of n fair coins that are as uneven as the one seen."""
    outcomes = [sum(coins) for coins in itertools.product((0, 1), repeat=n)]
    for one in range(n + 1):
        uneven = sum(abs(2 * heads - n) >= abs(2 * one - n) for heads in outcomes)
        assert mcnemar(one, n - one) == pytest.approx(float(Fraction(uneven, 2**n)))


def test_mcnemar_gives_what_is_published_of_the_ratings_of_a_prime_minister() -> None:
    """Agresti, Categorical Data Analysis, 1990, section 10.1: 150 and 86 changed their minds; R's exact2x2 tells this p."""
    assert mcnemar(150, 86) == pytest.approx(3.716e-05, abs=5e-9)


def test_mcnemar_of_thousands_of_questions_is_exact_and_no_overflow() -> None:
    assert mcnemar(3500, 3608) == pytest.approx(math.erfc(107 / math.sqrt(7108) / math.sqrt(2)), rel=0.001)
    assert mcnemar(0, 7108) == 0.0


def test_holm_gives_the_adjusted_values_of_the_known_examples() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    # The example of R's p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05), "holm").
    assert holm([0.01, 0.02, 0.03, 0.04, 0.05]) == pytest.approx([0.05, 0.08, 0.09, 0.09, 0.09])
    assert holm([0.04]) == [0.04]
    assert holm([0.9, 0.8]) == [1.0, 1.0]
    assert holm([]) == []


def test_holm_rejects_what_the_step_down_procedure_rejects() -> None:
    draw = random.Random(3)
    for _ in range(200):
        ps = [draw.random() ** 4 for _ in range(6)]
        rejected = set()
        for rank, index in enumerate(sorted(range(6), key=ps.__getitem__)):
            if ps[index] > 0.05 / (6 - rank):
                break
            rejected.add(index)
        assert {index for index, p in enumerate(holm(ps)) if p <= 0.05} == rejected
