"""The table at the end of a run: readable at 80 columns, plain in a pipe, honest about what is not known."""

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dkgi
from dkgi.analysis import tables
from dkgi.analysis.summary import summarise
from dkgi.types import QueryResult, Score, Usage

Make = Callable[..., tuple[QueryResult, Score]]
LABEL = "hpo · test · native · full_dkgi · heuristic"


def test_one_cell_is_one_row_with_intervals_below(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    scored = [pair(number, float(number % 2)) for number in range(18)]
    tables.show({LABEL: summarise([*scored, pair(18, stop="time_limit"), pair(19, stop="turn_limit")])})
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines() == [
        "",
        "  n        H@1       R@20        MRR       input  output       $     s",
        "──────────────────────────────────────────────────────────────────────",
        " 20       45.0       22.5       45.0       4,000     210  0.0050  95.0",
        "     25.0–65.0  12.5–32.5  25.0–65.0  75% cached                      ",
        "",
        f"{LABEL}: 18 scored, 2 failed (time_limit 1, turn_limit 1), $0.1000 in all",
        tables.LEGEND,
    ]


def test_several_cells_are_named_in_the_table(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show({"first": summarise([pair(1)]), "second": summarise([pair(1), pair(2)])})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:2] for line in lines if line.strip().startswith(("first ", "second "))] == [
        ["first", "1"],
        ["second", "2"],
    ]
    assert lines[1].split()[:2] == ["cell", "n"]
    assert "second: 2 scored, $0.0100 in all" in lines


def test_what_is_not_known_is_a_dash(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show({LABEL: summarise([pair(1, cost_usd=None), pair(2, usage=Usage(complete=False))])})
    shown = capsys.readouterr().out
    assert "0.0000" not in shown
    assert "no price" in shown
    assert "usage incomplete for 1, whose tokens and $ are estimates" in shown
    tables.show({LABEL: summarise([])})
    row = capsys.readouterr().out.splitlines()[3]
    assert row.split() == ["0", "-", "-", "-", "-", "-", "-", "-"]


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_widest_row_is_shown_whole_in_a_terminal(tmp_path: Path, columns: int) -> None:
    """In a real terminal, by `script`, whose output has the width that `stty` gave; one of 40 breaks the lines of 80."""
    program = tmp_path / "program.py"
    program.write_text(f"""
from dkgi.analysis import tables
from dkgi.analysis.statistics import Interval
from dkgi.analysis.summary import Summary
wide = Interval(0.912, 0.884, 1.0)
values = dict(input_tokens=1205346.0, cache_read_tokens=1205346.0, output_tokens=13930.0, wall_s=1725.0, cost_usd=12.4242)
outcomes = dict(scored=7000, time_limit=108)
tables.show({{{LABEL!r}: Summary(7108, wide, wide, wide, outcomes, values, values, 88311.2, 0)}})
""")
    shell = f"stty cols {columns}; {sys.executable} {program}"
    environment = os.environ | {"PYTHONPATH": str(Path(dkgi.__file__).parents[1]), "TERM": "xterm"}
    environment.pop("COLUMNS", None)
    done = subprocess.run(
        ["script", "-qec", shell, "/dev/null"], env=environment, capture_output=True, text=True, timeout=60
    )
    lines = re.sub(r"\x1b\[[0-9;]*m|\r", "", done.stdout).split("\n")
    assert done.returncode == 0, done.stdout
    assert "…" not in done.stdout
    assert max(map(len, lines)) <= max(columns, 80)
    assert any("7,108" in line and "12.4242" in line and "1,725" in line for line in lines)


@pytest.mark.parametrize(
    ("amount", "shown"),
    [
        (None, "-"),
        (0.0, "0.0000"),
        (0.005, "0.0050"),
        (0.0000312, "0.000031"),
        (0.42, "0.4200"),
        (99.99, "99.9900"),
        (1234.5, "1,234.50"),
    ],
)
def test_dollars_show_the_figures_that_matter(amount: float | None, shown: str) -> None:
    assert tables.dollars(amount) == shown
