"""Cells against each other, question by question.

>>> comparison = compare(["full_dkgi", "no_edges"], [scored_results(one), scored_results(other)])
>>> pair = comparison.rows[1].pair
>>> pair.against, pair.questions, pair.discordant
('full_dkgi', 300, (0, 258))
>>> pair.differences["hit_at_1"]
Difference(interval=Interval(mean=-0.86, low=-0.9, high=-0.82), p=4.3e-78, p_holm=3e-77)

Each cell is set against the first one above it that has a question in common with it: the first cell of all where all
answer the same questions, and the first of its data set where a grid has several.
Not covered: how it is shown (tables.py, markdown.py); differences between cells further down.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any

from dkgi.analysis.statistics import Interval, holm, mcnemar, paired
from dkgi.analysis.summary import SCORES, Summary, summarise
from dkgi.types import QueryResult, Score

Scored = Sequence[tuple[QueryResult, Score]]
_Question = tuple[str, int, str]
"""Data set, number and text: numbers are those of one data set, and of one making of its questions."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A cell minus the one that it is set against, in the unit of the scores.

    `p` is two-sided: exact McNemar where the pair has discordant counts and the metric is Hit@1, else that of the paired
    bootstrap. `p_holm` is adjusted for all pairs of the comparison in this metric; not for there being several metrics.
    """

    interval: Interval
    p: float
    p_holm: float


@dataclass(frozen=True, slots=True)
class Pair:
    """Two cells over the questions that both have; repeats of a question are averaged first.

    `discordant`: how many questions the cell alone, and the other alone, has right (Hit@1); None where one of
    the questions has several runs, which exact McNemar does not cover.
    """

    against: str
    questions: int
    discordant: tuple[int, int] | None
    differences: Mapping[str, Difference]


@dataclass(frozen=True, slots=True)
class Row:
    """One cell. Without a pair it is one that others are set against, or `note` says why it is set against none."""

    label: str
    summary: Summary
    pair: Pair | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class Comparison:
    """All cells, in the order given."""

    rows: tuple[Row, ...]

    @property
    def pairs(self) -> list[tuple[str, Pair]]:
        """The label of each cell that is set against another, with its pair: the family of Holm's adjustment."""
        return [(row.label, row.pair) for row in self.rows if row.pair]

    def records(self) -> list[dict[str, Any]]:
        """One flat mapping a cell, for JSON and tables; what is not known is None."""
        return [_record(row) for row in self.rows]


def compare(labels: Sequence[str], scored: Sequence[Scored]) -> Comparison:
    """Set cells against each other. A cell without results, or without a question in common, stops no other."""
    questions = [_by_question(results) for results in scored]
    rows = [
        _row(index, labels, questions, summarise(results))
        for index, (_, results) in enumerate(zip(labels, scored, strict=True))
    ]
    return Comparison(tuple(_adjusted(rows)))


def _by_question(scored: Scored) -> dict[_Question, list[Score]]:
    found: dict[_Question, list[Score]] = {}
    for result, score in scored:
        found.setdefault((result.dataset, result.number, result.query), []).append(score)
    return found


def _row(
    index: int, labels: Sequence[str], questions: Sequence[Mapping[_Question, list[Score]]], summary: Summary
) -> Row:
    mine, above = questions[index], questions[:index]
    if not mine:
        return Row(labels[index], summary, note="no finished question yet")
    other = next((place for place, theirs in enumerate(above) if mine.keys() & theirs.keys()), None)
    if other is not None:
        return Row(labels[index], summary, _pair(mine, questions[other], labels[other]))
    return Row(labels[index], summary, note="no question in common with a cell above" if any(above) else "")


def _pair(mine: Mapping[_Question, list[Score]], theirs: Mapping[_Question, list[Score]], against: str) -> Pair:
    shared = [(mine[question], theirs[question]) for question in sorted(mine.keys() & theirs.keys())]
    discordant = None
    if all(len(one) == len(other) == 1 for one, other in shared):
        hits = [one[0].hit_at_1 - other[0].hit_at_1 for one, other in shared]
        discordant = (sum(hit > 0 for hit in hits), sum(hit < 0 for hit in hits))
    differences = {}
    for metric in SCORES:
        interval, p = paired([_mean(one, metric) - _mean(other, metric) for one, other in shared])
        if metric == "hit_at_1" and discordant:
            p = mcnemar(*discordant)
        differences[metric] = Difference(interval, p, p)
    return Pair(against, len(shared), discordant, differences)


def _mean(scores: Iterable[Score], metric: str) -> float:
    return fmean(getattr(score, metric) for score in scores)


def _adjusted(rows: Sequence[Row]) -> Iterable[Row]:
    """The rows with Holm's p, for which all pairs must be known."""
    pairs = [row.pair for row in rows if row.pair]
    adjusted = {metric: iter(holm([pair.differences[metric].p for pair in pairs])) for metric in SCORES}
    for row in rows:
        if row.pair:
            differences = {
                metric: replace(difference, p_holm=next(adjusted[metric]))
                for metric, difference in row.pair.differences.items()
            }
            yield replace(row, pair=replace(row.pair, differences=differences))
        else:
            yield row


def _record(row: Row) -> dict[str, Any]:
    summary = row.summary
    values: dict[str, Any] = {"cell": row.label, "queries": summary.queries, "note": row.note}
    for metric in SCORES:
        interval: Interval = getattr(summary, metric)
        known = summary.queries > 0
        values |= {metric: interval.mean if known else None}
        values |= {f"{metric}_low": interval.low if known else None, f"{metric}_high": interval.high if known else None}
    values |= {"cost_usd": summary.means.get("cost_usd"), "cost_usd_total": summary.cost_usd_total}
    for measure in ("tool_calls", "graph_calls", "input_tokens", "output_tokens", "wall_s"):
        values[f"{measure}_median"] = summary.medians.get(measure)
    values |= {"outcomes": dict(summary.outcomes), "incomplete": summary.incomplete}
    pair = row.pair
    values |= {"against": pair.against if pair else None, "shared": pair.questions if pair else None}
    for metric in SCORES:
        found = pair.differences[metric] if pair else None
        values |= {
            f"{metric}_difference": found.interval.mean if found else None,
            f"{metric}_difference_low": found.interval.low if found else None,
            f"{metric}_difference_high": found.interval.high if found else None,
            f"{metric}_p": found.p if found else None,
            f"{metric}_p_holm": found.p_holm if found else None,
        }
    values["discordant"] = list(pair.discordant) if pair and pair.discordant else None
    return values
