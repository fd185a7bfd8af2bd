"""How sure a mean or a difference is, and how likely chance alone would make it.

>>> bootstrap([0.0, 1.0, 1.0, 1.0])
Interval(mean=0.75, low=0.25, high=1.0)
>>> mcnemar(1, 9), holm([0.01, 0.04, 0.03, 0.005])
(0.021484375, [0.03, 0.06, 0.06, 0.02])

Not covered: what is compared (comparison.py), and tests of more than two cells at a time.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

RESAMPLES = 10_000
CONFIDENCE = 0.95
LEAST_P = 2 / (1 + RESAMPLES)
"""The smallest two-sided p that so many resamples can tell."""
_CHUNK = 200_000
"""Values drawn at a time: a few MB, however many queries there are."""
_DECIMALS = 12
_ROUNDING = 10**-_DECIMALS
"""A mean nearer to 0 than this is 0: differences of scores are in -1..1, and rounded where these are taken."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95% percentile bootstrap interval, in the unit of the values; NaN where there are none."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean of `values` (one a query) and its interval. The same values in any order give the same result."""
    if not values:
        return Interval(math.nan, math.nan, math.nan)
    return _interval(values, _resampled(values, seed))


def paired(differences: Sequence[float], *, seed: int = 0) -> tuple[Interval, float]:
    """The mean of `differences` (one a question) with its interval, and the two-sided p of a true mean of 0.

    p is twice the smaller share of resampled means at or beyond 0, each share counted as (1 + r) / (1 + R): the level at
    which the percentile interval would begin to hold 0, and never 0 itself (Efron and Tibshirani, An Introduction to
    the Bootstrap, 1993, section 15.4; Davison and Hinkley, Bootstrap Methods and their Application, 1997, section 4.2).
    A bootstrap cannot know how little a few questions say, so p is at least what the sharpest randomisation of signs
    (Fisher, The Design of Experiments, 1935) can reach: 2 ** (1 - m) with m differences that are not 0. With m below 6
    p is so above 0.05, whatever the interval says. The opposite differences give the opposite interval and the same p.
    """
    if not differences:
        return Interval(math.nan, math.nan, math.nan), math.nan
    if math.fsum(differences) < 0:
        opposite, p = paired([-difference for difference in differences], seed=seed)
        return Interval(-opposite.mean, -opposite.high, -opposite.low), p
    means = _resampled(differences, seed)
    beyond = min(int((means <= _ROUNDING).sum()), int((means >= -_ROUNDING).sum()))
    told_apart = sum(abs(difference) > _ROUNDING for difference in differences)
    p = max(LEAST_P * (1 + beyond), 2.0 ** (1 - told_apart))
    return _interval(differences, means), min(1.0, p)


def mcnemar(one_alone: int, other_alone: int) -> float:
    """Exact two-sided p that two agents are right equally often, from the questions that one of them alone has right.

    Twice the smaller tail of Binomial(n, 1/2), at most 1 (McNemar, Psychometrika 12, 1947, in its exact form).
    """
    n = one_alone + other_alone
    tail, term = 0, 1
    for count in range(min(one_alone, other_alone) + 1):
        tail += term
        term = term * (n - count) // (count + 1)
    return min(1.0, 2 * tail / (1 << n))


def holm(ps: Sequence[float]) -> list[float]:
    """Each p adjusted for all of `ps` together: those at most alpha are significant with family-wise error alpha.

    Holm, Scandinavian Journal of Statistics 6, 1979. Valid whatever the dependence between the tests.
    """
    adjusted = [0.0] * len(ps)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(ps)), key=ps.__getitem__)):
        highest = max(highest, min(1.0, (len(ps) - rank) * ps[index]))
        adjusted[index] = highest
    return adjusted


def _interval(values: Sequence[float], means: "NDArray[np.float64]") -> Interval:
    import numpy as np

    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(math.fsum(values) / len(values), float(low), float(high))


def _resampled(values: Sequence[float], seed: int) -> "NDArray[np.float64]":
    """`RESAMPLES` means of as many values, drawn with replacement.

    What is drawn is how often each distinct value comes: scores have few, so 7,108 questions take no longer than 300.
    """
    import numpy as np

    distinct, counts = np.unique(np.round(np.asarray(values, dtype=np.float64), _DECIMALS), return_counts=True)
    n = len(values)
    if distinct.size == 1:
        return np.full(RESAMPLES, math.fsum(values) / n)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // distinct.size)
    sums = [
        rng.multinomial(n, counts / n, size=min(rows, RESAMPLES - start)) @ distinct
        for start in range(0, RESAMPLES, rows)
    ]
    means: NDArray[np.float64] = np.concatenate(sums) / n
    return means
