"""`python -m dkgi.compare` pairs cells by question."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dkgi.compare import labels
from dkgi.store import Cell, open_cell
from dkgi.types import Score
from tests.results import query_result


def write_cell(runs: Path, cell_id: str, tools: str, hits: Sequence[float], **limits: float) -> Cell:
    axes = {"dataset": "hpo", "tools": tools}
    cell = open_cell(runs, cell_id, {"cell": cell_id, "axes": axes, "config": {"threads": 4, "limits": limits}})
    with (cell.folder / "scores.jsonl").open("w") as file:
        for number, hit in enumerate(hits):
            score = Score(hit, hit, hit, hit, hit, hit)
            cell.query_folder(number, 0).mkdir(parents=True)
            cell.write(query_result(number))
            file.write(json.dumps({"number": number, "repeat": 0} | dataclasses.asdict(score)) + "\n")
    return cell


def compare(runs: Path, *cells: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dkgi.compare", *cells]
    environment = {**os.environ, "DKGI_RUNS": str(runs), "COLUMNS": "120"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_cells_are_called_by_what_differs(tmp_path: Path) -> None:
    cells = [write_cell(tmp_path, f"{place}" * 12, tools, [1.0]) for place, tools in enumerate(["all", "none", "none"])]
    assert labels(cells[:2]) == ["all", "none"]
    assert labels(cells) == ["all", "none 111111111111", "none 222222222222"]


def test_cells_of_the_same_axes_are_called_by_the_few_settings_that_differ(tmp_path: Path) -> None:
    settings = [{"wall_s": 60, "attempts": 1}, {"wall_s": 60, "attempts": 3}, {"wall_s": 60}]
    cells = [write_cell(tmp_path, f"{place}" * 12, "all", [1.0], **each) for place, each in enumerate(settings)]
    assert labels(cells[:2]) == ["limits.attempts=1", "limits.attempts=3"]
    assert labels(cells)[2] == "222222222222"
    other = write_cell(tmp_path, "3" * 12, "none", [1.0], wall_s=9)
    assert labels([*cells[:2], other]) == ["all · limits.attempts=1", "all · limits.attempts=3", "none"]
    many = [write_cell(tmp_path, f"{place}" * 12, "all", [1.0], a=place, b=place, c=place, d=place) for place in (4, 5)]
    assert labels(many) == ["444444444444", "555555555555"]


def test_the_command_prints_the_table_and_each_difference_to_the_first_cell_named(tmp_path: Path) -> None:
    write_cell(tmp_path, "a" * 12, "all", [1.0, 1.0, 0.0])
    write_cell(tmp_path, "b" * 12, "some", [1.0, 0.0, 0.0])
    write_cell(tmp_path, "c" * 12, "none", [0.0, 0.0, 0.0])
    done = compare(tmp_path, "bb", "a", "c")
    assert done.returncode == 0, done.stderr
    lines = [line.strip() for line in done.stdout.splitlines()]
    differences = {line: lines[place + 1].split(" (")[0] for place, line in enumerate(lines) if " minus " in line}
    assert differences == {"all minus some, 3 questions": "+33.3", "none minus some, 3 questions": "-33.3"}
    assert "66.7" in done.stdout


def test_a_cell_that_cannot_be_compared_is_shown_as_such_and_the_others_are_compared(tmp_path: Path) -> None:
    for cell_id, tools, hits in (("a", "all", [1.0, 1.0]), ("b", "some", []), ("c", "none", [0.0])):
        write_cell(tmp_path, cell_id * 12, tools, hits)
    done = compare(tmp_path, "a", "b", "c")
    assert (done.returncode, done.stderr) == (0, "")
    assert "\nsome: no finished question yet\n" in done.stdout
    assert "none minus all, 1 question\n" in done.stdout


@pytest.mark.parametrize("cells", [["a"], ["a", "aa"], ["a", "f"], ["a", "b"]])
def test_what_cannot_be_compared_is_told_in_one_line(cells: list[str], tmp_path: Path) -> None:
    for cell_id in ("a" * 12, "b0" * 6, "b1" * 6):
        write_cell(tmp_path, cell_id, "all", [1.0])
    done = compare(tmp_path, *cells)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr


def test_markdown_goes_to_a_file_beside_the_table_or_alone_to_standard_output(tmp_path: Path) -> None:
    write_cell(tmp_path, "a" * 12, "all", [1.0, 1.0])
    write_cell(tmp_path, "b" * 12, "some", [1.0, 0.0])
    file = tmp_path / "new" / "table.md"
    beside, alone = compare(tmp_path, "a", "b", "--markdown", str(file)), compare(tmp_path, "a", "b", "--markdown", "-")
    assert (beside.returncode, alone.returncode) == (0, 0), beside.stderr + alone.stderr
    assert "some minus all, 2 questions\n" in beside.stdout
    assert file.read_text() == alone.stdout
    assert alone.stdout.startswith("| cell | n | H@1 |")
    assert "| some minus all | 2 |" in alone.stdout


@pytest.mark.parametrize("place", ["", "/", "/proc/nowhere/table.md"])
def test_a_file_that_cannot_be_written_is_told_in_one_line(place: str, tmp_path: Path) -> None:
    write_cell(tmp_path, "a" * 12, "all", [1.0])
    write_cell(tmp_path, "b" * 12, "some", [1.0])
    done = compare(tmp_path, "a", "b", "--markdown", place)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
    assert "--markdown" in done.stderr


def test_a_grids_cells_are_compared_in_its_order_or_with_a_cell_that_is_named_before_it(tmp_path: Path) -> None:
    for cell_id, tools, hits in (
        ("a", "all", [1.0]),
        ("b", "some", [0.0]),
        ("c", "none", [0.0]),
        ("d", "other", [1.0]),
    ):
        write_cell(tmp_path, cell_id * 12, tools, hits)
    (tmp_path / "grids" / "ablation").mkdir(parents=True)
    cells = [{"id": cell_id * 12} for cell_id in "cabb"]
    (tmp_path / "grids" / "ablation" / "manifest.json").write_text(json.dumps({"name": "ablation", "cells": cells}))
    for named, minus in {
        ("ablation",): ["all minus none", "some minus none"],
        ("bb", "ablation"): ["none minus some", "all minus some"],
        ("d", "ablation"): ["none minus other", "all minus other", "some minus other"],
    }.items():
        done = compare(tmp_path, *named)
        assert done.returncode == 0, done.stderr
        assert [line.split(",")[0] for line in done.stdout.splitlines() if " minus " in line] == minus
