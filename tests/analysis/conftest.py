"""Results with scores, as the analysis reads them."""

from collections.abc import Callable
from typing import Any

import pytest

from dkgi.types import QueryResult, Score, Usage
from tests.results import query_result

Pair = tuple[QueryResult, Score]


@pytest.fixture
def pair() -> Callable[..., Pair]:
    """Makes the result of one query and its score; other fields of the result by name."""

    def make(number: int, hit: float = 0.0, stop: str = "answered", repeat: int = 0, **changes: Any) -> Pair:
        usage = Usage(input_fresh=1000, cache_read=3000, output=200 + number)
        fields: dict[str, Any] = {
            "outcome": "scored" if stop == "answered" else "failed_agent",
            "stops": ("crashed", stop),
            "usage": usage,
            "cost_usd": 0.005,
            "wall_s": 10.0 * number,
        }
        return query_result(number, repeat, **fields | changes), Score(hit, hit, hit / 2, hit, hit, hit)

    return make
