"""The store survives kills at any byte and tells what was spent."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from dkgi.recording import NAME, Recording
from dkgi.store import Cell, Journal, find_cells, open_cell
from dkgi.types import Attempt, SetupError, Step, Usage
from tests.results import query_result as result

SPENT = Usage(input_fresh=100, output=10, requests=1)
END = Attempt("answered", '{"node_ids": [1]}', SPENT, 1.5, 1, 0, 0)


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return open_cell(tmp_path, "c0ffee", {"cell": "c0ffee"})


def test_a_result_reads_back_equal(cell: Cell) -> None:
    cell.write(result())
    assert cell.result(3, 0) == result()
    assert list(cell.results()) == [result()]


NO_RESULT: dict[str, Callable[[Path], object]] = {
    "a folder": Path.mkdir,
    "a pipe": os.mkfifo,
    "a link": lambda path: path.symlink_to("../../4/0/result.json"),
    "of numbers beyond all figures": lambda path: path.write_text(
        json.dumps(asdict(result(usage=Usage(input_fresh=10**400))))
    ),
    "of another query": lambda path: path.write_bytes(path.parents[2].joinpath("4/0/result.json").read_bytes()),
}


@pytest.mark.parametrize("kind", NO_RESULT)
def test_what_lies_in_the_place_of_a_result_is_named_and_neither_followed_nor_waited_for(kind: str, cell: Cell) -> None:
    cell.write(result(4, 0))
    path = cell.query_folder(3, 0) / "result.json"
    path.parent.mkdir(parents=True)
    NO_RESULT[kind](path)
    with pytest.raises(
        SetupError, match=rf"{path}: not a .*; move .* away and the query runs again|{path}: a link; move"
    ):
        cell.result(3, 0)


def test_a_pipe_in_the_place_of_steps_is_named_and_not_waited_for(cell: Cell) -> None:
    path = cell.query_folder(3, 0) / "steps.jsonl"
    path.parent.mkdir(parents=True)
    os.mkfifo(path)
    with pytest.raises(SetupError, match=rf"{path}: not a plain file; move it away"):
        cell.attempts(3, 0)
    cell.write(result())
    with pytest.raises(SetupError, match=rf"{path}: not a plain file; move it away"):
        cell.spent()


def test_a_pipe_in_the_place_of_recorded_requests_is_named_and_not_waited_for(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
    path = cell.query_folder(3, 0) / NAME
    os.mkfifo(path)
    with pytest.raises(SetupError, match=rf"{path}: not a plain file; move it away"):
        cell.attempts(3, 0)


def test_a_query_without_result_is_not_finished(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
    assert cell.result(3, 0) is None
    assert list(cell.results()) == []


def test_results_come_in_the_order_of_number_and_repeat(cell: Cell) -> None:
    for number, repeat in ((10, 0), (2, 1), (2, 0)):
        cell.write(result(number, repeat))
    assert [(r.number, r.repeat) for r in cell.results()] == [(2, 0), (2, 1), (10, 0)]


def test_an_ended_attempt_counts_what_it_reports(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("assistant", "", usage=SPENT))
        journal.end(1, replace(END, usage=SPENT + SPENT))
    (attempt,) = cell.attempts(3, 0)
    assert attempt.usage == SPENT + SPENT
    assert attempt.end is not None


def test_a_cut_off_attempt_counts_its_replies_and_is_marked_incomplete(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
        journal.step(1, Step("tool_call", "{}", name="bash", call_id="1", usage=SPENT))
        journal.step(1, Step("tool_result", "x", name="bash", call_id="1", is_error=False))
    (attempt,) = cell.attempts(3, 0)
    assert attempt.end is None
    assert attempt.usage == replace(SPENT, complete=False)


def test_a_cut_off_attempt_counts_what_its_requests_were_billed_and_the_bound_of_the_open_one(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("tool_call", "{}", name="bash", call_id="1", usage=SPENT))
        journal.step(2, Step("user", "Which?"))
    billed, bound = Usage(input_fresh=120, output=12, requests=1), Usage(input_fresh=900, output=1000, requests=1)
    recording = Recording(cell.query_folder(3, 0), 1, history="input")
    recording.sent(1, 1, "/v1/responses", {"input": []}, bound)
    recording.got(1, 1, status=200, reply=b"{}", usage=billed, kind="", error="")
    recording.sent(2, 1, "/v1/responses", {"input": []}, bound)
    first, second = cell.attempts(3, 0)
    assert first.usage == billed + replace(bound, complete=False)
    assert second.usage == Usage()


def test_an_attempt_without_an_end_or_put_off_for_want_of_money_is_no_try(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
        journal.end(2, replace(END, stop="budget"))
        journal.end(3, replace(END, stop="model_error"))
    assert [attempt.counts for attempt in cell.attempts(3, 0)] == [False, False, True]


def test_what_was_spent_is_known_of_finished_queries_of_begun_ones_and_of_those_tried_again(cell: Cell) -> None:
    for number in (1, 2, 3):
        with Journal(cell, number, 0) as journal:
            journal.end(1, END)
        if number != 2:
            cell.write(result(number, usage=SPENT, stops=("answered",), interrupted=0))
    with Journal(cell, 3, 0) as journal:
        journal.end(2, END)
    assert cell.spent() == {(1, 0): SPENT, (2, 0): SPENT, (3, 0): SPENT + SPENT}


def test_whatever_byte_a_kill_falls_on_the_lines_before_it_are_kept(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
        journal.step(1, Step("assistant", "so far", usage=SPENT))
    path = cell.query_folder(3, 0) / "steps.jsonl"
    whole = path.read_bytes()
    first_line = whole.index(b"\n") + 1
    for cut in range(first_line, len(whole)):
        path.write_bytes(whole[:cut])
        with Journal(cell, 3, 0) as journal:
            journal.step(2, Step("user", "Which?"))
        assert [(a.number, len(a.steps)) for a in cell.attempts(3, 0)] == [(1, 1), (2, 1)]


def test_the_trajectory_is_the_last_attempt(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "first"))
        journal.end(1, END)
        journal.step(2, Step("user", "second"))
    assert [step.text for step in cell.steps(3, 0)] == ["second"]


def test_cells_are_found_by_the_beginning_of_their_id(cell: Cell, tmp_path: Path) -> None:
    other = open_cell(tmp_path, "c0de00", {"cell": "c0de00"})
    assert find_cells(tmp_path, []) == [other, cell]
    assert find_cells(tmp_path, ["c0f"]) == [cell]
    with pytest.raises(SetupError, match="beef"):
        find_cells(tmp_path, ["beef"])
    with pytest.raises(SetupError, match="an empty text names no cell"):
        find_cells(tmp_path, ["c0f", ""])


def write_grid(runs: Path, name: str, *ids: str) -> None:
    folder = runs / "grids" / name
    folder.mkdir(parents=True)
    cells = [{"id": cell_id, "label": cell_id, "axes": {}, "overrides": [], "shard": [0, 1]} for cell_id in ids]
    (folder / "manifest.json").write_text(json.dumps({"name": name, "cells": cells, "earlier": ["aaaaaa"]}))


def test_the_cells_of_a_grid_are_found_by_its_name_in_its_order_each_once(cell: Cell, tmp_path: Path) -> None:
    other, third = open_cell(tmp_path, "c0de00", {}), open_cell(tmp_path, "aaaaaa", {})
    write_grid(tmp_path, "ablation", "c0ffee", "beef00", "c0de00", "c0ffee")
    assert find_cells(tmp_path, ["ablation"]) == [cell, other]
    assert find_cells(tmp_path, ["aaa", "ablation", "c0d"]) == [third, cell, other]


def test_the_beginning_of_an_id_wins_over_a_grid_that_is_called_so(cell: Cell, tmp_path: Path) -> None:
    other = open_cell(tmp_path, "aaaaaa", {})
    write_grid(tmp_path, "c0", other.id)
    assert find_cells(tmp_path, ["c0"]) == [cell]


@pytest.mark.parametrize("name", ["../grids/ablation", "../secret", ".", "..", "*", "/"])
def test_a_name_of_a_grid_is_no_path(cell: Cell, tmp_path: Path, name: str) -> None:
    write_grid(tmp_path, "ablation", cell.id)
    write_grid(tmp_path / "elsewhere", "secret", cell.id)
    shutil.copytree(tmp_path / "elsewhere" / "grids" / "secret", tmp_path / "secret")
    with pytest.raises(SetupError, match="no grid is called so"):
        find_cells(tmp_path, [name])


def test_a_grid_of_which_nothing_is_begun_is_told_so(cell: Cell, tmp_path: Path) -> None:
    write_grid(tmp_path, "ablation", "beef00")
    with pytest.raises(SetupError, match="ablation: no cell of this grid has been begun"):
        find_cells(tmp_path, ["ablation"])


@pytest.mark.parametrize("content", ["null", "{}", '{"cells": [1]}', "not json"])
def test_a_damaged_grid_is_named(cell: Cell, tmp_path: Path, content: str) -> None:
    write_grid(tmp_path, "ablation", cell.id)
    (tmp_path / "grids" / "ablation" / "manifest.json").write_text(content)
    with pytest.raises(SetupError, match=r"grids/ablation/manifest\.json"):
        find_cells(tmp_path, ["ablation"])


def test_a_damaged_result_is_named_and_not_taken_for_unfinished(cell: Cell) -> None:
    cell.write(result())
    path = cell.query_folder(3, 0) / "result.json"
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(SetupError, match=r"result\.json"):
        cell.result(3, 0)


def test_a_damaged_line_in_the_middle_is_named(cell: Cell) -> None:
    with Journal(cell, 3, 0) as journal:
        journal.step(1, Step("user", "Which?"))
    path = cell.query_folder(3, 0) / "steps.jsonl"
    path.write_bytes(b"{garbage\n" + path.read_bytes())
    with pytest.raises(SetupError, match=r"steps\.jsonl: damaged"):
        cell.attempts(3, 0)


def test_a_damaged_manifest_is_named(cell: Cell) -> None:
    (cell.folder / "manifest.json").write_text("null")
    with pytest.raises(SetupError, match=r"manifest\.json: damaged"):
        _ = cell.manifest
