"""Results with scores, as the analysis reads them."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from dkgi.types import QueryResult, Score, Usage

Pair = tuple[QueryResult, Score]


@pytest.fixture
def pair() -> Callable[..., Pair]:
    """Makes the result of one query and its score; other fields of the result by name."""

    def make(number: int, hit: float = 0.0, stop: str = "answered", repeat: int = 0, **changes: Any) -> Pair:
        usage = Usage(input_fresh=1000, cache_read=3000, output=200 + number)
        result = QueryResult(
            cell="5d1f0c9a7e42",
            number=number,
            repeat=repeat,
            dataset="hpo",
            split="test",
            in_test_subset=False,
            query="Which?",
            outcome="scored" if stop == "answered" else "failed_agent",
            stops=("crashed", stop),  # type: ignore[arg-type]
            interrupted=0,
            final_answer="",
            node_ids=(),
            usage=usage,
            last_usage=usage,
            cost_usd=0.005,
            wall_s=10.0 * number,
            turns=3,
            tool_calls=2,
            tool_errors=1,
            started=0.0,
        )
        return replace(result, **changes), Score(hit, hit, hit / 2, hit, hit, hit)

    return make
