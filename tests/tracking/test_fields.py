"""What MLflow shows is within its limits, rounded, and harmless where an agent wrote it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from dkgi.tracking import fields

if TYPE_CHECKING:
    from tests.tracking.conftest import Log


def test_parameters_stay_within_mlflows_limits_and_letters(log: Log) -> None:
    config = {"a[0]": {"b@c": "x" * 7000}, "none": None, "list": [1, "ä"], "n" * 300: True, **log.cell.config}
    tracker = log.open(cell=replace(log.cell, config=config))
    tracker.finish({}, complete=True)
    (parent,) = log.found("cell")
    params = parent.data.params
    assert params["a_0_.b_c"] == "x" * 5999 + "…"
    assert params["none"] == "null"
    assert params["list"] == '[1, "ä"]'
    assert params["n" * 250] == "true"


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("hit_at_1", 1 / 3, 0.3333),
        ("hpo/recall_at_20", 1.0, 1.0),
        ("cost_usd", 0.00123456789, 0.001235),
        ("cost_usd_total", 123.4567891, 123.456789),
        ("input_tokens", 120346.16667, 120346.2),
        ("input_tokens", 120346.0, 120346.0),
    ],
)
def test_metrics_are_rounded_to_what_people_read(name: str, value: float, shown: float) -> None:
    assert fields.rounded(name, value) == shown


def test_the_description_shows_an_agents_text_and_does_nothing_else(log: Log) -> None:
    hostile = "# Big\n![t](http://x/y.png) <img src=http://x> [a](b) `c` *d*"
    note = fields.query_tags(log.cell, log.result(final_answer=hostile), parent="p")["mlflow.note.content"]
    question, answer = note.split("\n\n")
    assert question == "Which genes?"
    assert answer == r"\# Big \!\[t\]\(http://x/y.png\) &lt;img src=http://x&gt; \[a\]\(b\) \`c\` \*d\*"


def test_what_was_found_about_an_answer_is_a_tag(log: Log) -> None:
    assert "dkgi.flags" not in fields.query_tags(log.cell, log.result(), parent="p")
    flagged = log.result(flags=("usage_mismatch",))
    assert fields.query_tags(log.cell, flagged, parent="p")["dkgi.flags"] == "usage_mismatch"


def test_a_preview_is_one_line_of_bounded_length() -> None:
    assert fields.preview("a\n\n b\tc ") == "a b c"
    assert len(fields.preview("word " * 100_000)) == 1002
    assert fields.preview("x" * 1000) == "x" * 1000


def test_a_cell_without_prices_has_none(log: Log) -> None:
    assert log.cell.prices is not None
    assert log.cell.prices.output == 0.5
    assert replace(log.cell, config={"model": {"prices": None}}).prices is None
