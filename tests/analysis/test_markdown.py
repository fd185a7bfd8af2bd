"""Markdown of a comparison is a table of GitHub's form in which names show as they are."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dkgi.analysis.comparison import compare
from dkgi.analysis.markdown import brief, escaped, markdown
from dkgi.types import QueryResult, Score
from tests.results import query_result

Make = Callable[..., tuple[QueryResult, Score]]
HOSTILE = [
    "a | b",
    "a \\| b \\",
    "<script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](http://h/x.png)",
    "a] [b",
    "`code` **bold** _it_ ~~no~~",
    "two\nlines | more",
    "http://example.com www.example.com me@example.com @someone",
    "&lt;b&gt; &copy; $x$",
    "# no heading",
]


def cells_of(text: str) -> list[list[list[str]]]:
    """The texts of each table's cells, as a reader sees them. Fails where one holds more than text and links."""
    tables: list[list[list[str]]] = []
    for token in MarkdownIt("commonmark").enable("table").parse(text):
        if token.type == "table_open":
            tables.append([])
        elif token.type == "tr_open":
            tables[-1].append([])
        elif token.type == "inline" and tables and token.level == 4:
            inner = token.children or []
            assert {each.type for each in inner} <= {"text", "text_special", "link_open", "link_close"}, token.content
            tables[-1][-1].append("".join(each.content for each in inner))
    return tables


def one(number: int, hit: float) -> tuple[QueryResult, Score]:
    return query_result(number), Score(hit, hit, hit, hit, hit, hit)


@pytest.mark.parametrize("label", HOSTILE)
def test_names_show_as_they_are_and_are_never_markdown(label: str) -> None:
    text = markdown(compare([label, "other"], [[one(1, 1.0)], [one(1, 0.0)]]), {label: "http://127.0.0.1:5000/#/x"})
    cells, differences = cells_of(text)
    shown = " ".join(label.split())
    assert cells[1][0] == shown
    assert differences[1][0] == f"other minus {shown}"
    assert {len(row) for row in cells} == {14}
    assert {len(row) for row in differences} == {12}


@given(st.text())
def test_any_text_shows_as_it_is_but_for_its_blanks(text: str) -> None:
    (((_,), (shown,)),) = cells_of(f"| a |\n| --- |\n| {escaped(text)} |\n")
    assert shown == " ".join(text.split()).replace("\0", "\ufffd")


@pytest.mark.parametrize("sign", list("http://w.w.w|@$&<"))
def test_signs_from_which_github_and_mlflow_make_links_and_formulas_do_not_stand_bare(sign: str) -> None:
    assert sign.isalnum() or sign == "/" or f"a{sign}b" not in escaped(f"a{sign}b")


@pytest.mark.parametrize("address", ["http://h/a b|c)d(e>f", 'http://h/"x"&copy=1#/runs?a=[1]', "http://h/\n\n# x"])
def test_an_address_stays_in_its_link(address: str) -> None:
    text = markdown(compare(["a", "b"], [[one(1, 1.0)], [one(1, 0.0)]]), {"a": address})
    row = next(line for line in text.splitlines() if line.startswith("| ["))
    (token,) = [
        token for token in MarkdownIt("commonmark").enable("table").parse(text) if token.content.startswith("[a](")
    ]
    assert [each.type for each in token.children or []] == ["link_open", "text", "link_close"]
    assert row.count(" | ") == 13


def test_cells_have_links_where_there_are_any(pair: Make) -> None:
    comparison = compare(["full_dkgi", "no_edges"], [[pair(1, 1.0)], [pair(1, 0.0)]])
    assert "| [full\\_dkgi](http://127.0.0.1:5000/#/experiments/1/runs/0f?a=b&amp;c=d) | 1 |" in markdown(
        comparison, {"full_dkgi": "http://127.0.0.1:5000/#/experiments/1/runs/0f?a=b&c=d"}
    )
    assert "](" not in markdown(comparison)


def test_all_figures_of_cells_and_pairs_are_in_the_tables(pair: Make) -> None:
    first = [pair(number, 1.0, tool_calls=9, graph_calls=45) for number in range(10)]
    second = [pair(number, float(number < 2), stop="answered" if number else "time_limit") for number in range(10)]
    cells, differences = cells_of(markdown(compare(["a", "b", "empty"], [first, second, []])))
    assert cells[1] == [
        *["a", "10", "100.0 (100.0–100.0)", "50.0 (50.0–50.0)", "100.0 (100.0–100.0)", "9", "45"],
        *["4,000", "75%", "204", "0.0050", "0.0500", "45.0", "10 scored, $0.0500 in all"],
    ]
    assert cells[2][-1] == "9 scored, 1 failed (time_limit 1), $0.0500 in all"
    assert cells[3] == ["empty", "0", *["-"] * 11, "no finished question yet"]
    assert differences[1:] == [
        [
            *["b minus a", "10", "-80.0 (-100.0 to -50.0)", "0.0078", "0.0078", "-40.0 (-50.0 to -25.0)"],
            *["0.0078", "0.0078", "-80.0 (-100.0 to -50.0)", "0.0078", "0.0078", "0 and 8"],
        ]
    ]


def test_a_comparison_without_pairs_has_one_table(pair: Make) -> None:
    assert len(cells_of(markdown(compare(["a"], [[pair(1, 1.0)]])))) == 1


@pytest.mark.parametrize("label", HOSTILE)
def test_the_short_table_links_each_cell_and_shows_how_sure_a_difference_is(label: str) -> None:
    scored = [[one(number, 1.0) for number in range(20)], [one(number, 0.0) for number in range(20)]]
    text = brief(compare(["first", label], scored), {label: "http://127.0.0.1:5000/#/x"})
    (rows,) = cells_of(text)
    assert rows[0] == ["cell", "n", "H@1", "R@20", "MRR", "$ in all", "p"]
    assert [row[0] for row in rows[1:]] == ["first", " ".join(label.split())]
    assert rows[1][2:5] == ["100.0"] * 3
    assert (rows[1][6], rows[2][6]) == ("-", "<0.0001")
    assert text.count("http://127.0.0.1:5000/#/x") == 1
