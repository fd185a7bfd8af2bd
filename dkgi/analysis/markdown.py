"""A comparison as Markdown, for MLflow's description of a grid and for GitHub.

>>> print(markdown(compare(["full_dkgi", "no_edges"], scored), {"full_dkgi": "http://127.0.0.1:5000/#/..."}))
| cell | n | H@1 | R@20 | MRR | calls | graph calls | ...
| --- | ---: | ---: | ...
| [full\\_dkgi](http://127.0.0.1:5000/#/...) | 300 | 93.3 (90.3–96.0) | ...

Names come from configurations and other people's folders: they are shown as they are and never taken for Markdown.
Not covered: what is compared (comparison.py) and the terminal (tables.py).
"""

from collections.abc import Mapping, Sequence
from urllib.parse import quote

from dkgi.analysis import tables
from dkgi.analysis.comparison import Comparison, Pair, Row
from dkgi.analysis.statistics import Interval
from dkgi.analysis.summary import SCORES

_METRICS = tuple(tables.NAMES.values())
_FIGURES = (*_METRICS, "calls", "graph calls", "input", "cached", "output", "$ a query", "$ in all", "s")
_LEGEND = (
    "H@1, R@20, MRR in % with 95% bootstrap intervals; calls (the agent's own), graph calls, tokens and seconds are "
    "medians, $ a query is a mean."
)
# Entities where readers of Markdown differ in what a backslash may stand before: a table's bars, HTML, dollars.
_ESCAPES = {ord(sign): f"\\{sign}" for sign in "`*_{}[]()#+!~=:."} | {
    ord(sign): f"&#{ord(sign)};" for sign in "&<>|\\\"'$@"
}


def markdown(comparison: Comparison, links: Mapping[str, str] | None = None) -> str:
    """Tables in GitHub's form: one of the cells, one of the differences. `links` has addresses of cells, by label."""
    links = links or {}
    parts = [
        _table(("cell", "n", *_FIGURES, "outcomes"), [_cell(row, links) for row in comparison.rows]),
        _LEGEND,
    ]
    if comparison.pairs:
        headings = (
            "difference",
            "questions",
            *(f"{name}{what}" for name in _METRICS for what in ("", ", p", ", Holm")),
        )
        rows = [_difference(label, pair) for label, pair in comparison.pairs]
        parts += [_table((*headings, f"{_METRICS[0]} alone"), rows), tables.pairs_legend(comparison)]
    return "\n\n".join(parts) + "\n"


def brief(comparison: Comparison, links: Mapping[str, str]) -> str:
    """One narrow table: what each cell scored and cost, and how sure its difference in Hit@1 is."""
    pairs = dict(comparison.pairs)
    rows = []
    for row in comparison.rows:
        summary, pair = row.summary, pairs.get(row.label)
        scores = [getattr(summary, metric) for metric in SCORES]
        p_holm = pair.differences[SCORES[0]].p_holm if pair else None
        rows.append(
            [
                _linked(row.label, links),
                f"{summary.queries:,}",
                *(tables.percent(score.mean) for score in scores),
                tables.dollars(summary.cost_usd_total),
                tables.UNKNOWN if p_holm is None else tables.probability(p_holm).replace("<", "&lt;"),
            ]
        )
    legend = f"p: of the difference in {_METRICS[0]} to the first cell, Holm-adjusted; all else is in the comparison."
    return f"{_table(('cell', 'n', *_METRICS, '$ in all', 'p'), rows)}\n\n{legend}\n"


def escaped(text: str) -> str:
    """`text` in one line that shows as it is, in a table and elsewhere."""
    return " ".join(text.split()).translate(_ESCAPES)


def _table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first and last column have names and texts, the others figures. Cells of `rows` are Markdown already."""
    rules = ["---", *["---:"] * (len(headings) - 2), "---"]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (headings, rules, *rows))


def _cell(row: Row, links: Mapping[str, str]) -> list[str]:
    summary, label = row.summary, _linked(row.label, links)
    if not summary.queries:
        return [label, "0", *[tables.UNKNOWN] * len(_FIGURES), escaped(tables.told(row))]
    medians = summary.medians
    return [
        label,
        f"{summary.queries:,}",
        *(_score(getattr(summary, metric)) for metric in SCORES),
        tables.count(medians["tool_calls"]),
        tables.count(medians["graph_calls"]),
        tables.count(medians["input_tokens"]),
        tables.cached(summary).removesuffix(" cached") or tables.UNKNOWN,
        tables.count(medians["output_tokens"]),
        tables.dollars(summary.means.get("cost_usd")),
        tables.dollars(summary.cost_usd_total),
        tables.seconds(medians["wall_s"]),
        escaped(tables.told(row)),
    ]


def _linked(label: str, links: Mapping[str, str]) -> str:
    if label not in links:
        return escaped(label)
    # Brackets, blanks and bars would end the address or the table's cell.
    return f"[{escaped(label)}]({quote(links[label], safe=':/?#&=%+,;-._~').replace('&', '&amp;')})"


def _score(interval: Interval) -> str:
    return f"{tables.percent(interval.mean)} ({tables.bounds(interval)})"


def _difference(label: str, pair: Pair) -> list[str]:
    cells = []
    for metric in SCORES:
        found = pair.differences[metric]
        ps = (tables.probability(p).replace("<", "&lt;") for p in (found.p, found.p_holm))
        cells += [tables.points(found.interval), *ps]
    return [f"{escaped(label)} minus {escaped(pair.against)}", f"{pair.questions:,}", *cells, tables.alone(pair)]
