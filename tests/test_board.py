"""Progress: right figures, quiet in a log file, alive in a terminal, never on stdout."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import dkgi
from dkgi.board import Board
from dkgi.types import QueryResult, Score
from tests.results import query_result


def pair(number: int, hit: float = 1.0, stop: Any = "answered", cost: float | None = 0.25) -> tuple[QueryResult, Score]:
    outcome = "scored" if stop == "answered" else "failed_agent"
    result = query_result(number, outcome=outcome, stops=(stop,), cost_usd=cost)
    return result, Score(hit, hit, hit, hit, hit, hit)


def test_a_line_shows_done_hits_dollars_and_failures_by_class(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("hpo · native", total=4) as board:
        board.update(*pair(1))
        board.update(*pair(2, 0.0, "time_limit"))
        board.update(*pair(3, 0.0, "crashed"))
        board.update(*pair(4, 0.0, "time_limit"))
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "hpo · native: 0/4, H@1 -, $ -"
    assert lines[1] == "hpo · native: 1/4, ETA 0:00:00, H@1 100.0, $0.2500"
    assert lines[-1] == "hpo · native: 4/4, H@1 25.0, $1.0000, 3 failed (time_limit 2, crashed 1)"


def test_earlier_results_count_but_not_for_the_pace(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("hpo", 3, [pair(1), pair(2, 0.0)]) as board:
        assert board.done == 2
        board.update(*pair(3))
    lines = capsys.readouterr().err.splitlines()
    assert lines == ["hpo: 2/3, H@1 50.0, $0.5000", "hpo: 3/3, H@1 66.7, $0.7500"]


def test_money_that_is_not_known_is_a_dash(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("hpo", 1) as board:
        board.update(*pair(1, cost=None))
    assert capsys.readouterr().err.splitlines()[-1] == "hpo: 1/1, H@1 100.0, $ -"


def test_a_long_run_prints_few_lines_and_its_last_state_once(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("hpo", 7108) as board:
        for number in range(7100):
            board.update(*pair(number))
    lines = capsys.readouterr().err.splitlines()
    assert 20 <= len(lines) <= 23
    assert lines[-1].startswith("hpo: 7,100/7,108")


def test_a_long_line_is_not_broken_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("x" * 300, 1):
        pass
    assert capsys.readouterr().err.splitlines() == ["x" * 300 + ": 0/1, H@1 -, $ -"]


def test_a_run_of_no_queries_is_shown_too(capsys: pytest.CaptureFixture[str]) -> None:
    with Board("hpo", 0):
        pass
    assert capsys.readouterr().err == "hpo: 0/0, H@1 -, $ -\n"


def test_a_terminal_shows_one_display_with_notices_above_it(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("""
import logging
from test_board import pair
from dkgi import console
from dkgi.board import Board
logging.getLogger().addHandler(console.LogHandler())
with Board("hpo · native", 3) as board:
    board.update(*pair(1))
    logging.warning("a notice [bold] of a [/tag]")
    board.update(*pair(2, 0.0))
""")
    paths = f"{Path(dkgi.__file__).parents[1]}:{Path(__file__).parent}"
    environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": paths}
    environment.pop("NO_COLOR", None)
    shell = f"stty cols 80; {sys.executable} {program}"
    done = subprocess.run(["script", "-qec", shell, "/dev/null"], env=environment, capture_output=True, timeout=60)
    screen = render(done.stdout.decode())
    assert done.returncode == 0, screen
    assert screen[0] == "a notice [bold] of a [/tag]"
    assert screen[1] == "hpo · native"
    assert screen[2].endswith("2/3, ETA 0:00:00")
    assert screen[3:] == ["H@1 50.0   $0.5000"]


def render(written: str) -> list[str]:
    """What stands on the screen after `written`: carriage return, line feed, cursor up and erase line are obeyed."""
    lines, row = [""], 0
    position = 0
    while position < len(written):
        char = written[position]
        position += 1
        if char == "\x1b":
            end = position + 1
            while not written[end].isalpha():
                end += 1
            code, arguments = written[end], written[position + 1 : end]
            position = end + 1
            if code == "A":
                row -= int(arguments or 1)
            elif code == "K":
                lines[row] = ""
        elif char == "\n":
            row += 1
            lines.extend([""] * (row + 1 - len(lines)))
        elif char != "\r":
            lines[row] += char
    return [line.rstrip() for line in lines if line.strip()]
