"""`python -m dkgi.compare` pairs cells by question."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from dkgi.compare import difference, labels
from dkgi.store import Cell, open_cell
from dkgi.types import QueryResult, Score, SetupError
from tests.results import query_result


def pair(number: int, hit: float, repeat: int = 0, query: str = "Which?") -> tuple[QueryResult, Score]:
    return query_result(number, repeat, query=query), Score(hit, hit, hit, hit, hit, hit)


def write_cell(runs: Path, cell_id: str, tools: str, hits: Sequence[float]) -> Cell:
    cell = open_cell(runs, cell_id, {"cell": cell_id, "axes": {"dataset": "hpo", "tools": tools}})
    with (cell.folder / "scores.jsonl").open("w") as file:
        for number, hit in enumerate(hits):
            result, score = pair(number, hit)
            cell.query_folder(number, 0).mkdir(parents=True)
            cell.write(result)
            file.write(json.dumps({"number": number, "repeat": 0} | dataclasses.asdict(score)) + "\n")
    return cell


def compare(runs: Path, *cells: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "dkgi.compare", *cells]
    environment = {**os.environ, "DKGI_RUNS": str(runs), "COLUMNS": "120"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_a_difference_is_paired_and_not_one_of_independent_means() -> None:
    one = [pair(number, 0.5 + number % 2 / 2) for number in range(40)]
    other = [pair(number, number % 2 / 2) for number in range(40)]
    assert difference(one, other).startswith("40 questions: H@1 +50.0 (50.0 to 50.0)")
    assert difference(other, one).startswith("40 questions: H@1 -50.0 (-50.0 to -50.0)")


def test_questions_that_one_cell_lacks_do_not_count() -> None:
    assert difference([pair(1, 1.0), pair(2, 0.0)], [pair(1, 0.0), pair(3, 1.0)]).startswith("1 questions: H@1 +100.0")


def test_repeats_of_a_question_are_averaged_first() -> None:
    assert "H@1 +50.0 (50.0 to 50.0)" in difference([pair(1, 1.0), pair(1, 0.0, repeat=1)], [pair(1, 0.0)])


def test_the_same_number_is_not_the_same_question_in_another_data_set() -> None:
    with pytest.raises(SetupError, match="no question in common"):
        difference([pair(1, 1.0)], [pair(1, 0.0, query="What?")])


def test_a_cell_without_a_finished_question_is_told_so() -> None:
    with pytest.raises(SetupError, match="no finished question yet"):
        difference([], [pair(1, 1.0)])


def test_cells_are_called_by_what_differs(tmp_path: Path) -> None:
    cells = [write_cell(tmp_path, f"{place}" * 12, tools, [1.0]) for place, tools in enumerate(["all", "none", "none"])]
    assert labels(cells[:2]) == ["all", "none"]
    assert labels(cells) == ["all", "none 111111111111", "none 222222222222"]


def test_the_command_prints_the_table_and_each_difference_to_the_first_cell_named(tmp_path: Path) -> None:
    write_cell(tmp_path, "a" * 12, "all", [1.0, 1.0, 0.0])
    write_cell(tmp_path, "b" * 12, "some", [1.0, 0.0, 0.0])
    write_cell(tmp_path, "c" * 12, "none", [0.0, 0.0, 0.0])
    done = compare(tmp_path, "bb", "a", "c")
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if " minus " in line]
    assert [line.split(" (")[0] for line in lines] == [
        "some minus all, 3 questions: H@1 -33.3",
        "some minus none, 3 questions: H@1 +33.3",
    ]
    assert "66.7" in done.stdout


@pytest.mark.parametrize("cells", [["a"], ["a", "aa"], ["a", "f"]])
def test_what_cannot_be_compared_is_told_in_one_line(cells: list[str], tmp_path: Path) -> None:
    write_cell(tmp_path, "a" * 12, "all", [1.0])
    done = compare(tmp_path, *cells)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1), done.stderr
