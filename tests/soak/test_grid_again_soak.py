"""Grids that are given again: what failed is tried again, repeats are added, and a higher cap goes on."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dkgi.analysis.summary import scored_results
from dkgi.plan import spent
from dkgi.store import cells
from tests.grids import Grids, end, local
from tests.loopback import Loopback, Turn

TWO = "tools=full_dkgi,no_edges"
WRONG = [{"text": "no answer", "usage": {"output": 7}}]
RIGHT = [{"text": '{"node_ids": [1]}', "usage": {"output": 1}}]
DOWN = [{"error": {"message": "down", "kind": "server"}, "usage": {"output": 3}}]


@pytest.fixture
def grids(data: Path, tmp_path: Path) -> Iterator[Grids]:
    grids = Grids(data, tmp_path)
    yield grids
    assert grids.left() == []


def test_retry_failed_tries_again_what_failed_in_any_cell_and_logs_it_in_place_of_what_failed(grids: Grids) -> None:
    grids.scripted("model_1", [WRONG, DOWN, RIGHT])
    arguments = (TWO, "model=model_1", "limit=3", "limits.attempts=1")
    end(grids.start(*arguments))
    first = grids.results()
    assert {result.outcome for result in first.values()} == {"failed_agent"}
    end(grids.start(*arguments, "retry=infra"))
    assert grids.results() == first
    end(grids.start(*arguments, "retry=failed"))
    assert {result.outcome for result in grids.results().values()} == {"failed_infra"}
    end(grids.start(*arguments, "retry=failed"))
    last = grids.results()
    assert [(result.outcome, result.usage.output) for result in last.values()] == [("scored", 11)] * 6
    assert [len(scored_results(cell)) for cell in cells(grids.runs)] == [3, 3]
    assert grids.logged() == {("query", "FINISHED"): 6, ("cell", "FINISHED"): 2, ("grid", "FINISHED"): 1}


def test_repeats_are_added_to_what_is_done_and_compared_as_one(grids: Grids) -> None:
    grids.scripted("model_1", [RIGHT])
    arguments = (TWO, "model=model_1", "limit=3", "tracking=none")
    end(grids.start(*arguments))
    first = grids.results()
    stdout, stderr = end(grids.start(*arguments, "repeats=2"))
    found = grids.results()
    assert {key: found[key] for key in first} == first
    assert sorted((number, repeat) for cell, number, repeat in found if cell == cells(grids.runs)[0].id) == [
        (number, repeat) for number in sorted({key[1] for key in first}) for repeat in (0, 1)
    ]
    assert "6 queries to answer" in stderr
    assert "no_edges minus full_dkgi, 3 questions" in stdout


def test_cells_that_ran_out_of_money_go_on_when_their_cap_is_raised(grids: Grids) -> None:
    answer = Turn(text='{"node_ids": [1]}', input=900, output=100)
    with Loopback([answer]) as server:
        arguments = ("tools=closed_book,no_edges", "limit=6", "threads=1", *local(server))
        _, stderr = end(grids.start(*arguments, "limits.usd_run=0.006"), code=1)
        assert stderr.count("at a cap: limits.usd_run=0.006: ") == 2
        first = grids.results()
        assert 2 <= len(first) < 12
        assert len(server.requests) == len(first)
        assert grids.logged()["grid", "FINISHED"] == 0
        end(grids.start(*arguments, "limits.usd_run=1"))
        found = grids.results()
        assert {key: found[key] for key in first} == first
        assert len(found) == len(server.requests) == 12
    assert spent(cells(grids.runs))[0] == pytest.approx(0.012)
    assert grids.logged() == {("query", "FINISHED"): 12, ("cell", "FINISHED"): 2, ("grid", "FINISHED"): 1}
    (made,) = (grids.runs / "grids").glob("*/manifest.json")
    assert len(json.loads(made.read_text())["cells"]) == 2
