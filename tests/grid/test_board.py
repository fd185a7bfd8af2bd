"""Progress of a grid: plain lines in a log file, one display that fits in a terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dkgi
from dkgi.grid.board import GridBoard
from dkgi.tally import Tally
from tests.test_board import pair, render


def test_a_log_file_gets_a_line_a_state_and_none_for_what_waits(capsys: pytest.CaptureFixture[str]) -> None:
    tally = Tally(100)
    with GridBoard("g") as board:
        board.show("one", "waiting", tally)
        board.show("one", "running", tally)
        for number in range(100):
            tally.count(*pair(number))
            board.update("one")
        board.show("one", "done", tally)
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert lines[0] == "one: running, 0/100, H@1 -, $ -"
    assert lines[-1] == "one: done, 100/100, H@1 100.0, $25.0000"
    assert 5 <= len(lines) <= 12


def test_a_long_label_is_not_broken_in_a_log_file(capsys: pytest.CaptureFixture[str]) -> None:
    label = "[bold]" + "x" * 300 + "[/nothing] :smile:"
    with GridBoard("g") as board:
        board.show(label, "failed", Tally(1))
    assert capsys.readouterr().err.splitlines() == [f"{label}: failed, 0/1, H@1 -, $ -"]


PROGRAM = """
from test_board import pair
from dkgi.grid.board import GridBoard
from dkgi.tally import Tally
tallies = [Tally(7108) for _ in range(4)]
labels = ["full_dkgi · native · gpt-5.6-luna", "[/x] [red]a[/red] :smile:", "no_edges", "tools=graph_tools_code limits.max_turns=40"]
with GridBoard("quickstart [/x] ablation") as board:
    for label, tally, state in zip(labels, tallies, ("running", "done", "waiting", "at a cap")):
        board.show(label, state, tally)
        if state != "waiting":
            for number in range(120):
                tally.count(*pair(number, stop="time_limit" if number % 9 == 0 else "answered"))
                board.update(label)
"""


@pytest.mark.parametrize("columns", [60, 80, 120])
def test_a_terminal_shows_every_figure_whole(columns: int, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    paths = f"{Path(dkgi.__file__).parents[1]}:{Path(__file__).parent}"
    environment = os.environ | {"TERM": "xterm-256color", "PYTHONPATH": paths}
    environment.pop("NO_COLOR", None)
    environment.pop("COLUMNS", None)
    shell = f"stty cols {columns} rows 50; {sys.executable} {program}"
    done = subprocess.run(["script", "-qec", shell, "/dev/null"], env=environment, capture_output=True, timeout=60)
    screen = render(done.stdout.decode())
    assert done.returncode == 0, screen
    assert max(map(len, screen)) <= columns
    assert screen[0] == "quickstart [/x] ablation"
    assert "…" not in "".join(screen)
    text = "\n".join(screen)
    assert "[/x]" in text
    for figure in ("120/7,108", "30.0000", "running", "waiting", "at a cap"):
        assert figure in text
    # A row a cell, and more only for labels that are too long.
    assert len(screen) <= 2 + 4 + (8 if columns < 120 else 0)
