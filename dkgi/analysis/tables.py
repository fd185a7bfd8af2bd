"""The table that ends a run: one row a cell, scores in percent as the paper prints them.

      n        H@1       R@20        MRR       input  output       $    s
   ─────────────────────────────────────────────────────────────────────
     20       45.0       52.3       48.1     120,346   2,212  0.0050  273
         25.0–65.0  33.1–71.0  29.8–67.2  88% cached

    hpo · test · native · full_dkgi · luna: 18 scored, 2 failed (time_limit 2), $0.1000 in all

Not covered: where the figures come from (summary.py) and files for papers.
"""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from dkgi import console
from dkgi.analysis.statistics import Interval
from dkgi.analysis.summary import Summary

if TYPE_CHECKING:
    from rich.table import Table

UNKNOWN = "-"
LEGEND = "H@1, R@20, MRR in % with 95% bootstrap intervals; $ is the mean a query, tokens and seconds are medians."


@console.printing()
def show(cells: Mapping[str, Summary]) -> None:
    """Print the table of `cells` (label -> figures) to stdout, and under it what became of the queries."""
    out = console.stdout()
    out.print()
    out.print(_table(cells))
    out.print()
    for label, summary in cells.items():
        out.print(f"{label}: {outcomes(summary)}", soft_wrap=not out.is_terminal)
    out.print(LEGEND, soft_wrap=not out.is_terminal)


def _table(cells: Mapping[str, Summary]) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
    if len(cells) > 1:
        table.add_column("cell", justify="left", overflow="fold")
    for heading in ("n", "H@1", "R@20", "MRR", "input", "output", "$", "s"):
        table.add_column(heading, justify="right", no_wrap=True)
    for label, summary in cells.items():
        row = _row(summary)
        table.add_row(*([label, *row] if len(cells) > 1 else row))
    return table


def _row(summary: Summary) -> list[str]:
    medians = summary.medians
    return [
        f"{summary.queries:,}",
        *(_score(interval) for interval in (summary.hit_at_1, summary.recall_at_20, summary.mrr)),
        f"{_count(medians.get('input_tokens'))}\n{_cached(summary)}",
        _count(medians.get("output_tokens")),
        dollars(summary.means.get("cost_usd")),
        _seconds(medians.get("wall_s")),
    ]


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


def _score(interval: Interval) -> str:
    if math.isnan(interval.mean):
        return UNKNOWN
    return f"{percent(interval.mean)}\n{percent(interval.low)}–{percent(interval.high)}"


def _count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def _seconds(seconds: float | None) -> str:
    return UNKNOWN if seconds is None else f"{seconds:,.{0 if seconds >= 100 else 1}f}"


def _cached(summary: Summary) -> str:
    whole = summary.means.get("input_tokens", 0.0)
    return f"{summary.means['cache_read_tokens'] / whole:.0%} cached" if whole else ""
