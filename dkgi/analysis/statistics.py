"""How sure a mean is: percentile bootstrap over queries.

>>> bootstrap([0.0, 1.0, 1.0, 1.0])
Interval(mean=0.75, low=0.25, high=1.0)

Not covered: what is compared (dkgi/compare.py).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

RESAMPLES = 10_000
CONFIDENCE = 0.95
_CHUNK = 200_000
"""Values drawn at a time: a few MB, however many queries there are."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean and its 95% percentile bootstrap interval, in the unit of the values; NaN where there are none."""

    mean: float
    low: float
    high: float


def bootstrap(values: Sequence[float], *, seed: int = 0) -> Interval:
    """The mean of `values` (one a query) and its interval. The same values in any order give the same result."""
    import numpy as np

    if not values:
        return Interval(math.nan, math.nan, math.nan)
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    n = ordered.size
    mean = math.fsum(values) / n
    if ordered[0] == ordered[-1]:
        return Interval(mean, mean, mean)
    rng = np.random.default_rng(seed)
    rows = max(1, _CHUNK // n)
    means = np.concatenate(
        [
            ordered.take(rng.integers(0, n, (min(rows, RESAMPLES - start), n), dtype=np.int32)).mean(axis=1)
            for start in range(0, RESAMPLES, rows)
        ]
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(means, [tail, 1 - tail])
    return Interval(mean, float(low), float(high))
