"""The result of one query, for tests of what is made of it.

>>> query_result(7, outcome="failed_agent", stops=("time_limit",)).stops
('time_limit',)
"""

from dataclasses import replace
from typing import Any

from dkgi.types import QueryResult, Usage

_SPENT = Usage(input_fresh=100, output=10, requests=1)
_RESULT = QueryResult(
    cell="c0ffee",
    number=3,
    repeat=0,
    dataset="hpo",
    split="test",
    in_test_subset=False,
    query="Which?",
    outcome="scored",
    stops=("bad_answer", "answered"),
    interrupted=1,
    final_answer='{"node_ids": [1, "x", null]}',
    node_ids=(1, "x", None),
    usage=_SPENT + _SPENT,
    last_usage=_SPENT,
    cost_usd=None,
    wall_s=3.25,
    turns=2,
    tool_calls=1,
    tool_errors=0,
    started=1.0,
)


def query_result(number: int = 3, repeat: int = 0, **changes: Any) -> QueryResult:
    """A query that was answered in its second attempt; `changes` replace fields."""
    return replace(_RESULT, number=number, repeat=repeat, **changes)
