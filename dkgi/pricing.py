"""Dollars from disjoint token buckets.

>>> from dkgi.types import Prices, Usage
>>> dollars(Usage(input_fresh=1_000_000, output=100_000), Prices(input=0.1, cached_input=0.01, cache_write=0.1, output=0.5))
0.15

Reasoning tokens lie inside `output` and cost what output costs.
Not covered: where prices come from (conf/model), caps and reservations.
"""

from dkgi.types import Prices, ToolPolicy, Usage


def dollars(usage: Usage, prices: Prices | None) -> float | None:
    """US dollars for `usage`, or None where the model has no price: unknown is not free."""
    if prices is None:
        return None
    return (
        usage.input_fresh * prices.input
        + usage.cache_read * prices.cached_input
        + usage.cache_write * prices.cache_write
        + usage.output * prices.output
    ) / 1_000_000


def expected_dollars(policy: ToolPolicy, prices: Prices | None) -> float | None:
    """US dollars that one query is expected to cost under a policy, from its expected tokens."""
    total, cached, output = policy.expected
    return dollars(Usage(input_fresh=total - cached, cache_read=cached, output=output), prices)
