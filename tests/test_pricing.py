"""Dollars, exact to 1e-9, from the paper's prices."""

import pytest

from dkgi.pricing import dollars, expected_dollars
from dkgi.types import Prices, ToolPolicy, Usage

LUNA = Prices(input=0.10, cached_input=0.01, cache_write=0.10, output=0.50)


def test_each_bucket_has_its_own_price() -> None:
    usage = Usage(input_fresh=30_000, cache_read=90_000, cache_write=1_000, output=2_000)
    assert dollars(usage, LUNA) == pytest.approx(0.003 + 0.0009 + 0.0001 + 0.001, abs=1e-9)


def test_reasoning_is_part_of_output_and_not_paid_twice() -> None:
    assert dollars(Usage(output=2_000, reasoning=1_500), LUNA) == dollars(Usage(output=2_000), LUNA)


def test_an_unknown_price_is_unknown_and_not_free() -> None:
    assert dollars(Usage(output=1), None) is None
    assert dollars(Usage(output=1), Prices(0, 0, 0, 0)) == 0


def test_the_expected_cost_of_a_policy_prices_its_cached_part_as_cached() -> None:
    policy = ToolPolicy("p", True, True, True, ("bash",), "x.md", expected=(120_000, 90_000, 2_000))
    assert expected_dollars(policy, LUNA) == pytest.approx(0.003 + 0.0009 + 0.001, abs=1e-9)


def test_usage_adds_up_bucket_by_bucket_and_stays_incomplete() -> None:
    total = Usage(1, 2, 3, 4, 1, 1) + Usage(10, 20, 30, 40, 10, 1, complete=False)
    assert total == Usage(11, 22, 33, 44, 11, 2, complete=False)
    assert total.input_tokens == 66
