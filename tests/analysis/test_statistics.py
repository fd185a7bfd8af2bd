"""Intervals are those of a plain percentile bootstrap, the same in every process and order."""

import math
import random

import numpy as np
import pytest

from dkgi.analysis.statistics import Interval, bootstrap


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
