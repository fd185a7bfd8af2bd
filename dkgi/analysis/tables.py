"""The tables that end a run, a grid and a comparison: scores in percent as the paper prints them.

      n        H@1       R@20        MRR  calls       input  output       $    s
    ────────────────────────────────────────────────────────────────────────────
    full_dkgi: 18 scored, 2 failed (time_limit 2), $0.1000 in all
     20       45.0       52.3       48.1     10     120,346   2,212  0.0050  273
         25.0–65.0  33.1–71.0  29.8–67.2         88% cached

                       H@1                    R@20                     MRR
    ──────────────────────────────────────────────────────────────────────
    no_edges minus full_dkgi, 20 questions
     -45.0 (-65.0 to -25.0)  -40.1 (-60.0 to -22.4)  -42.7 (-61.5 to -24.0)
      p 0.0039, Holm 0.0039   p 0.0039, Holm 0.0039   p 0.0039, Holm 0.0039
              alone 0 and 9

No row is wider than 80 columns, whatever the names of the cells are: these have lines of their own.
Not covered: where the figures come from (summary.py, comparison.py) and Markdown (markdown.py).
"""

import math
from collections.abc import Mapping, Sequence

from dkgi import console
from dkgi.analysis.comparison import Comparison, Pair, Row
from dkgi.analysis.statistics import LEAST_P, Interval
from dkgi.analysis.summary import SCORES, Summary

UNKNOWN = "-"
NAMES = dict(zip(SCORES, ("H@1", "R@20", "MRR"), strict=True))
"""The metrics as tables name them."""
LEGEND = (
    "H@1, R@20, MRR in % with 95% bootstrap intervals; $ is the mean a query; calls, tokens and seconds are medians. "
    "Calls are the agent's own, in brackets those of graph tools."
)
_HEADINGS = ("n", *NAMES.values(), "calls", "input", "output", "$", "s")
_Block = tuple[str, Sequence[Sequence[str]]]
"""A line over the whole width, and rows of as many texts as there are headings."""


@console.printing()
def show(comparison: Comparison) -> None:
    """Print to stdout what each cell came to, and how it differs from the one that it is set against."""
    _show(_HEADINGS, [(f"{row.label}: {told(row)}", _figures(row.summary)) for row in comparison.rows])
    _print(LEGEND)
    if comparison.pairs:
        _show(tuple(NAMES.values()), [(pair_line(label, pair), _differences(pair)) for label, pair in comparison.pairs])
        _print(pairs_legend(comparison))


def told(row: Row) -> str:
    """What became of a cell's queries, and why it is set against none."""
    return "; ".join(filter(None, (outcomes(row.summary) if row.summary.queries else "", row.note)))


def pair_line(label: str, pair: Pair) -> str:
    """`no_edges minus full_dkgi, 300 questions`."""
    return f"{label} minus {pair.against}, {pair.questions:,} question{'s' if pair.questions > 1 else ''}"


def alone(pair: Pair) -> str:
    """`0 and 258`: questions that the cell alone, and the other alone, has right."""
    return " and ".join(f"{count:,}" for count in pair.discordant) if pair.discordant else UNKNOWN


def pairs_legend(comparison: Comparison) -> str:
    """What the differences and their p are, and which tests Holm's adjustment counts."""
    pairs = [pair for _, pair in comparison.pairs]
    exact = sum(pair.discordant is not None for pair in pairs)
    test = f"paired bootstrap ({probability(LEAST_P)} at least)"
    if exact:
        where = "" if exact == len(pairs) else ", where each question has one run,"
        test = f"for {NAMES['hit_at_1']}{where} exact McNemar, else {test}"
    family = (
        f"p adjusted for these {len(pairs)} pairs, in each metric by itself" if len(pairs) > 1 else "p, of one pair"
    )
    alone = " Alone: questions that the cell has right and the other not, and the reverse." if exact else ""
    return (
        "Differences are in percentage points over the questions that both cells have, with 95% paired bootstrap "
        f"intervals. p: two-sided, {test}. Holm: {family}.{alone}"
    )


def _figures(summary: Summary) -> list[list[str]]:
    """Two rows: the figures, and under them intervals, graph calls and the cached part of the input."""
    if not summary.queries:
        return []
    medians, intervals = summary.medians, [getattr(summary, metric) for metric in SCORES]
    # A median of 0 says nothing of graph calls where some queries have them.
    graph = f"({count(medians['graph_calls'])})" if summary.means["graph_calls"] else ""
    figures = [
        f"{summary.queries:,}",
        *(percent(interval.mean) for interval in intervals),
        count(medians["tool_calls"]),
        count(medians["input_tokens"]),
        count(medians["output_tokens"]),
        dollars(summary.means.get("cost_usd")),
        seconds(medians["wall_s"]),
    ]
    return [figures, ["", *map(bounds, intervals), graph, cached(summary), "", "", ""]]


def _differences(pair: Pair) -> list[list[str]]:
    found = [pair.differences[metric] for metric in SCORES]
    rows = [
        [points(each.interval) for each in found],
        [f"p {probability(each.p)}, Holm {probability(each.p_holm)}" for each in found],
    ]
    return [*rows, [f"alone {alone(pair)}", "", ""]] if pair.discordant else rows


def _show(headings: Sequence[str], blocks: Sequence[_Block]) -> None:
    """Print blocks under one heading, in columns as wide as their widest text."""
    rows = [headings, *(row for _, rows in blocks for row in rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(headings))]
    gap = "  " if sum(widths) + 2 * len(widths) < console.TABLE_WIDTH else " "
    out = console.stdout()

    def line(row: Sequence[str]) -> str:
        return " " + gap.join(text.rjust(width) for text, width in zip(row, widths, strict=True)).rstrip()

    out.print(f"\n{line(headings)}\n{'─' * len(line(headings))}", soft_wrap=True)
    for title, figures in blocks:
        _print(title, style="bold")
        for row in figures:
            out.print(line(row), soft_wrap=True)
    out.print()


def _print(text: str, style: str | None = None) -> None:
    """A text of any length: broken between words in a terminal, whole in a pipe.

    Names come from other people's folders as well: what would move the cursor or colour the screen is a question mark.
    """
    out = console.stdout()
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    out.print(text, style=style, soft_wrap=not out.is_terminal)


def outcomes(summary: Summary) -> str:
    """One line: `18 scored, 2 failed (time_limit 1, crashed 1), $0.0100 in all`."""
    scored = summary.outcomes.get("scored", 0)
    parts = [f"{scored:,} scored"]
    if classes := failures(summary.outcomes):
        parts.append(f"{summary.queries - scored:,} failed ({classes})")
    parts.append(f"${dollars(summary.cost_usd_total)} in all" if summary.cost_usd_total is not None else "no price")
    if summary.incomplete:
        parts.append(f"usage incomplete for {summary.incomplete:,}, whose tokens and $ are estimates")
    return ", ".join(parts)


def failures(classes: Mapping[str, int]) -> str:
    """`time_limit 2, crashed 1`: what is not scored, most frequent first; empty where all is."""
    failed = sorted(
        ((name, n) for name, n in classes.items() if name != "scored"), key=lambda item: (-item[1], item[0])
    )
    return ", ".join(f"{name} {n:,}" for name, n in failed)


def percent(share: float) -> str:
    """`45.0` for 0.45: one decimal, as the paper prints scores."""
    return UNKNOWN if math.isnan(share) else f"{100 * share:.1f}"


def dollars(amount: float | None) -> str:
    """`0.0050`, `123.45`, `0.000031`; `-` where the price is not known, never 0."""
    if amount is None:
        return UNKNOWN
    decimals = 2 if amount >= 100 else 6 if 0 < amount < 0.001 else 4
    return f"{amount:,.{decimals}f}"


def probability(p: float) -> str:
    """`0.0412`, `<0.0001`."""
    return "<0.0001" if p < 0.0001 else f"{p:.4f}"


def points(interval: Interval) -> str:
    """`-86.0 (-90.0 to -82.0)`: a difference in percentage points with its interval; without a sign where it is 0."""
    mean, low, high = (_rounded(value) for value in (interval.mean, interval.low, interval.high))
    return f"{f'{mean:+.1f}' if mean else '0.0'} ({low:.1f} to {high:.1f})"


def bounds(interval: Interval) -> str:
    """`25.0–65.0`, in percent; empty where there is none."""
    return "" if math.isnan(interval.mean) else f"{percent(interval.low)}–{percent(interval.high)}"


def count(number: float) -> str:
    """`120,346`, and `16.5` for a median between two."""
    return f"{number:,.0f}" if number >= 100 or number == int(number) else f"{number:,.1f}"


def seconds(duration: float) -> str:
    """`5.6`, `1,725`."""
    return f"{duration:,.{0 if duration >= 100 else 1}f}"


def cached(summary: Summary) -> str:
    """`88% cached`: the part of all input tokens that the provider had in its cache; empty where there was no input."""
    whole = summary.means["input_tokens"]
    return f"{summary.means['cache_read_tokens'] / whole:.0%} cached" if whole else ""


def _rounded(share: float) -> float:
    """A share as it is printed in percentage points; what rounds to 0 has no sign."""
    return round(100 * share, 1) + 0.0
