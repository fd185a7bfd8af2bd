"""A grid has one run with its comparison, from which its cells are a click away; whatever fails ends no experiment."""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from dkgi import tracking
from dkgi.tracking import GridInfo, run_table
from dkgi.tracking.glance import grid_links

if TYPE_CHECKING:
    from tests.tracking.conftest import Log

CELLS = ("5d1f0c9a7e42", "c0ffee000000", "0ther0000000")
ROWS: list[dict[str, str | float | int | None]] = [{"cell": "one", "H@1": 0.5}, {"cell": "two", "p": 0.01}]


def run_cells(log: Log, *cells: str) -> None:
    for cell in cells:
        log.open(cell=replace(log.cell, cell=cell)).finish({"hit_at_1": 0.5}, complete=True)


def finish(log: Log, name: str = "a_grid", *cells: str, text: str = "| table |", complete: bool = True) -> None:
    tracking.open_grid(GridInfo(name, cells or CELLS), log.runs).finish(text, ROWS, note=text, complete=complete)


def test_the_run_of_a_grid_holds_its_comparison_and_the_ways_to_its_cells(log: Log) -> None:
    run_cells(log, *CELLS)
    tracker = tracking.open_grid(GridInfo("a_grid", CELLS, jail=False), log.runs)
    assert [run.info.status for run in log.found("grid")] == ["RUNNING"]
    pages = {run.data.tags["dkgi.cell"]: f"#/experiments/1/runs/{run.info.run_id}" for run in log.found("cell")}
    assert tracker.links() == pages
    tracker.finish("| table |", ROWS, note="| table |", complete=True)
    (grid,) = log.found("grid")
    assert (grid.info.run_name, grid.info.status) == ("a_grid", "FINISHED")
    folder = Path(urlsplit(grid.info.artifact_uri).path)
    assert (folder / "comparison.md").read_text() == "| table |"
    assert json.loads((folder / "comparison.json").read_text()) == {
        "columns": ["cell", "H@1", "p"],
        "data": [["one", 0.5, None], ["two", None, 0.01]],
    }
    assert json.loads(grid.data.tags["mlflow.loggedArtifacts"]) == [{"path": "comparison.json", "type": "table"}]
    assert grid.data.tags["mlflow.note.content"] == (
        f"[comparison](#/experiments/1/runs/{grid.info.run_id}/artifacts/comparison.md)"
        " · [table of its cells](#/experiments/1/runs?viewStateShareKey=grid-a_grid)"
        " · [charts](#/experiments/1/runs?viewStateShareKey=grid-a_grid&compareRunsMode=CHART)\n\n| table |"
    )
    assert (grid.data.tags["dkgi.jail"], grid.data.tags["dkgi.cells"]) == ("no", "3")


def test_a_grid_that_is_gone_on_with_keeps_its_one_run(log: Log) -> None:
    run_cells(log, CELLS[0])
    finish(log, "a_grid", CELLS[0], text="| one |", complete=False)
    (first,) = log.found("grid")
    assert first.info.status == "KILLED"
    run_cells(log, CELLS[1])
    finish(log, "a_grid", *CELLS[:2], text="| two |")
    (again,) = log.found("grid")
    assert (again.info.run_id, again.info.status) == (first.info.run_id, "FINISHED")
    assert again.data.tags["dkgi.cells"] == "2"
    assert (Path(urlsplit(again.info.artifact_uri).path) / "comparison.md").read_text() == "| two |"


def test_the_cells_of_each_grid_are_found_by_its_view_and_differ_in_colour(log: Log) -> None:
    run_cells(log, *CELLS)
    finish(log, "one grid", *CELLS[:2])
    finish(log, "other's", *CELLS[1:])
    client, experiment = tracking.connect(log.runs)
    views = client.get_experiment(experiment).tags
    for key, cells in (("grid-one_grid", CELLS[:2]), ("grid-other_s", CELLS[1:]), ("dkgi", CELLS)):
        view = json.loads(views[f"mlflow.sharedViewState.{key}"])
        found = client.search_runs([experiment], view["searchFilter"], order_by=["attributes.start_time ASC"])
        assert tuple(run.data.tags["dkgi.cell"] for run in found) == cells
        colours = [run.data.tags["mlflow.runColor"] for run in found if run.data.tags["dkgi.cell"] in CELLS[1:]]
        assert len(set(colours)) == len(colours)
        assert {name: value for name, value in view.items() if name != "searchFilter"} == {
            name: value for name, value in json.loads(run_table.state()).items() if name != "searchFilter"
        }


def test_a_long_comparison_is_a_file_alone(log: Log) -> None:
    finish(log, text="x" * 20_000)
    (grid,) = log.found("grid")
    assert len(grid.data.tags["mlflow.note.content"]) < 500
    assert len((Path(urlsplit(grid.info.artifact_uri).path) / "comparison.md").read_text()) == 20_000


def test_an_unchanged_grid_is_told_without_loading_mlflow_and_a_changed_one_is_written(log: Log) -> None:
    run_cells(log, *CELLS)
    finish(log)
    (before,) = log.found("grid")
    script = """
import pickle, sys
from dkgi import tracking
grid, runs, text, rows = pickle.load(sys.stdin.buffer)
tracker = tracking.open_grid(grid, runs)
tracker.links()
tracker.finish(text, rows, note=text, complete=True)
print("mlflow" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": str(Path(tracking.__file__).parents[2])}
    changes = [("| table |", CELLS), ("| other |", CELLS)]
    said = []
    for text, cells in changes:
        task = pickle.dumps((GridInfo("a_grid", cells), log.runs, text, ROWS))
        done = subprocess.run(
            [sys.executable, "-c", script], input=task, env=environment, capture_output=True, timeout=60
        )
        said.append(done.stdout.decode())
    assert said == ["False\n", "True\n"]
    (after,) = log.found("grid")
    assert after.info.run_id == before.info.run_id
    assert "| other |" in after.data.tags["mlflow.note.content"]


def test_a_cell_that_was_logged_again_is_linked_anew(log: Log) -> None:
    run_cells(log, *CELLS)
    finish(log)
    tracking.forget(CELLS[0], log.runs)
    run_cells(log, CELLS[0])
    finish(log)
    tags = {run.data.tags["dkgi.cell"]: run.data.tags.get("dkgi.grid.a_grid") for run in log.found("cell")}
    assert tags == dict.fromkeys(CELLS, "yes")


def test_a_grid_that_cannot_be_logged_ends_no_experiment(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    (log.runs / "artifacts").write_text("in the way")
    finish(log)
    assert capsys.readouterr().err.count("MLflow: the comparison of a_grid is not up to date") == 1


def test_the_ui_is_told_the_page_of_each_grid_latest_first(log: Log) -> None:
    assert grid_links(log.runs) == {}
    finish(log, "first")
    finish(log, "second")
    runs = {run.info.run_name: run.info.run_id for run in log.found("grid")}
    assert list(grid_links(log.runs).items()) == [
        (name, f"#/experiments/1/runs/{runs[name]}") for name in ("second", "first")
    ]
