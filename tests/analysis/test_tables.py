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
from dkgi.analysis.comparison import compare
from dkgi.analysis.statistics import Interval
from dkgi.types import QueryResult, Score, Usage

Make = Callable[..., tuple[QueryResult, Score]]
LABEL = "hpo · test · native · full_dkgi · heuristic"


def test_one_cell_is_one_row_with_its_outcomes_above_and_intervals_below(
    pair: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    scored = [pair(number, float(number % 2)) for number in range(18)]
    tables.show(compare([LABEL], [[*scored, pair(18, stop="time_limit"), pair(19, stop="turn_limit")]]))
    shown = capsys.readouterr()
    assert shown.err == ""
    assert shown.out.splitlines() == [
        "",
        "  n        H@1       R@20        MRR  calls       input  output       $     s",
        "─────────────────────────────────────────────────────────────────────────────",
        f"{LABEL}: 18 scored, 2 failed (time_limit 1, turn_limit 1), $0.1000 in all",
        " 20       45.0       22.5       45.0      1       4,000     210  0.0050  95.0",
        "     25.0–65.0  12.5–32.5  25.0–65.0         75% cached",
        "",
        tables.LEGEND,
    ]


def test_cells_are_in_one_table_and_differences_in_another(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    first = [pair(number, 1.0) for number in range(12)]
    second = [pair(number, float(number < 3), graph_calls=30) for number in range(10)]
    tables.show(compare(["full_dkgi", "no_edges", "other"], [first, second, []]))
    lines = capsys.readouterr().out.splitlines()
    assert [line for line in lines if line[:1] not in ("", " ", "─")] == [
        "full_dkgi: 12 scored, $0.0600 in all",
        "no_edges: 10 scored, $0.0500 in all",
        "other: no finished question yet",
        tables.LEGEND,
        "no_edges minus full_dkgi, 10 questions",
        tables.pairs_legend(compare(["a", "b"], [first, second])),
    ]
    start = lines.index("no_edges minus full_dkgi, 10 questions")
    assert lines[start - 2].split() == ["H@1", "R@20", "MRR"]
    assert lines[start + 1].strip().startswith("-70.0 (-100.0 to -40.0)  ")
    assert lines[start + 2].strip().startswith("p 0.0156, Holm 0.0156  ")
    assert lines[start + 3].strip() == "alone 0 and 7"
    assert "(30)" in next(line for line in lines if "75% cached" in line and "(" in line)


def test_the_legend_says_which_tests_were_made_and_what_holm_counts(pair: Make) -> None:
    cells = [[pair(number, float(number < right)) for number in range(9)] for right in (9, 5, 1)]
    repeated = [pair(number, 0.0, repeat=repeat) for number in range(9) for repeat in range(2)]
    one, two = compare(["a", "b"], cells[:2]), compare(["a", "b", "c"], cells)
    assert (
        "for H@1 exact McNemar, else paired bootstrap (0.0002 at least). Holm: p, of one pair."
        in tables.pairs_legend(one)
    )
    assert "Holm: p adjusted for these 2 pairs, in each metric by itself." in tables.pairs_legend(two)
    mixed = tables.pairs_legend(compare(["a", "b", "c"], [*cells[:2], repeated]))
    assert "for H@1, where each question has one run, exact McNemar, else" in mixed
    none = tables.pairs_legend(compare(["a", "b"], [cells[0], repeated]))
    assert "McNemar" not in none
    assert "Alone" not in none


def test_what_is_not_known_is_a_dash(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(compare([LABEL], [[pair(1, cost_usd=None), pair(2, usage=Usage(complete=False))]]))
    shown = capsys.readouterr().out
    assert "0.0000" not in shown
    assert "no price" in shown
    assert "usage incomplete for 1, whose tokens and $ are estimates" in shown


def test_names_cannot_move_the_cursor_or_break_a_line(pair: Make, capsys: pytest.CaptureFixture[str]) -> None:
    tables.show(compare(["a\x1b[31m\nb\r", "c"], [[pair(1)], [pair(1)]]))
    shown = capsys.readouterr().out
    assert "\x1b" not in shown
    assert "\na?[31m?b?: 1 scored" in shown
    assert "\nc minus a?[31m?b?, 1 question\n" in shown


def test_calls_of_graph_tools_are_shown_where_only_some_questions_have_them(
    pair: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    tables.show(compare([LABEL], [[pair(1), pair(2), pair(3, graph_calls=6)]]))
    assert " (0) " in capsys.readouterr().out


@pytest.mark.parametrize("columns", [40, 80, 120])
def test_the_widest_rows_are_shown_whole_in_a_terminal(tmp_path: Path, columns: int) -> None:
    """In a real terminal, by `script`, whose output has the width that `stty` gave; one of 40 breaks the lines of 80."""
    program = tmp_path / "program.py"
    program.write_text(f"""
from dkgi.analysis import tables
from dkgi.analysis.comparison import Comparison, Difference, Pair, Row
from dkgi.analysis.statistics import Interval
from dkgi.analysis.summary import SCORES, Summary
wide = Interval(0.912, 0.884, 1.0)
values = dict(input_tokens=1205346.0, cache_read_tokens=1205346.0, output_tokens=13930.0, wall_s=1725.0, cost_usd=12.4242)
values |= dict(tool_calls=300.0, graph_calls=1250.5)
outcomes = dict(scored=7000, time_limit=108)
differences = dict.fromkeys(SCORES, Difference(Interval(-1.0, -1.0, -0.995), 1e-9, 1e-9))
pair = Pair({LABEL!r}, 7108, (3554, 3554), differences)
row = Row({LABEL!r}, Summary(7108, wide, wide, wide, outcomes, values, values, 88311.2, 0), pair)
tables.show(Comparison((row, row)))
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
    assert any(line.count("-100.0 (-100.0 to -99.5)") == 3 for line in lines)


@pytest.mark.parametrize(
    ("interval", "shown"),
    [
        (Interval(0.123, -0.001, 0.25), "+12.3 (-0.1 to 25.0)"),
        (Interval(-0.0004, -0.0004, 0.0), "0.0 (0.0 to 0.0)"),
        (Interval(-1.0, -1.0, -0.9), "-100.0 (-100.0 to -90.0)"),
    ],
)
def test_differences_have_a_sign_unless_they_are_0_as_shown(interval: Interval, shown: str) -> None:
    assert tables.points(interval) == shown


@pytest.mark.parametrize(("p", "shown"), [(1.0, "1.0000"), (0.04999, "0.0500"), (0.0001, "0.0001"), (0.0, "<0.0001")])
def test_p_is_never_shown_as_0(p: float, shown: str) -> None:
    assert tables.probability(p) == shown


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
