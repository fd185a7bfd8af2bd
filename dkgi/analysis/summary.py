"""From the queries of one cell to its figures: the same ones for MLflow, the board and every table.

>>> summary = summarise([(result, score), ...])
>>> summary.hit_at_1, summary.outcomes
(Interval(mean=0.45, low=0.25, high=0.65), {'scored': 18, 'time_limit': 2})

Not covered: how scores come about (collect.py) and how figures are shown (tables.py).
"""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from dkgi.analysis.statistics import Interval, bootstrap
from dkgi.shards import Shard
from dkgi.store import Cell
from dkgi.types import QueryResult, Score, SetupError

SCORES = ("hit_at_1", "recall_at_20", "mrr")
"""The paper's metrics, in its order (paper, section 6)."""

ScoreKey = tuple[int, int, float | None]
"""Number, repeat and `started` of the result that was scored; None in lines of older versions."""


def measures(result: QueryResult, score: Score) -> dict[str, float]:
    """What is measured of one query, by its MLflow name: scores in 0..1, tokens, US dollars, seconds, counts.

    `cost_usd` is missing where the price is not known: unknown is not free.
    """
    usage = result.usage
    values = {name: float(getattr(score, name)) for name in SCORES} | {
        "input_tokens": float(usage.input_tokens),
        "cache_read_tokens": float(usage.cache_read),
        "cache_write_tokens": float(usage.cache_write),
        "output_tokens": float(usage.output),
        "reasoning_tokens": float(usage.reasoning),
        "wall_s": result.wall_s,
        "turns": float(result.turns),
        "tool_calls": float(result.tool_calls),
        "tool_errors": float(result.tool_errors),
        "graph_calls": float(result.graph_calls),
        "attempts": float(len(result.stops)),
    }
    if result.cost_usd is not None:
        values["cost_usd"] = result.cost_usd
    return values


def outcome_class(result: QueryResult) -> str:
    """`scored`, or why the last attempt ended: the finest class that tells failures apart."""
    return result.outcome if result.outcome == "scored" or not result.stops else result.stops[-1]


@dataclass(frozen=True, slots=True)
class Summary:
    """One cell in figures.

    queries     results, repeats counted; the intervals resample questions, whose repeats are averaged first
    outcomes    results by `outcome_class`, most frequent first
    means       mean of each measure; `cost_usd` only where every result has a price
    medians     median of each measure, for tokens and seconds as the paper gives them (section 12)
    incomplete  results with a request whose usage nobody reported: it counts at the bound that was held for it, or not
                at all where the model is none of a provider's
    """

    queries: int
    hit_at_1: Interval
    recall_at_20: Interval
    mrr: Interval
    outcomes: Mapping[str, int]
    means: Mapping[str, float]
    medians: Mapping[str, float]
    cost_usd_total: float | None
    incomplete: int

    def metrics(self, dataset: str) -> dict[str, float]:
        """What the cell's MLflow run holds: means, totals and the scores once more under the data set's name."""
        values = dict(self.means)
        values |= {f"{dataset}/{name}": self.means[name] for name in SCORES if name in self.means}
        values |= {
            "n_queries": float(self.queries),
            "n_failed": float(self.queries - self.outcomes.get("scored", 0)),
            "n_incomplete": float(self.incomplete),
        }
        if self.cost_usd_total is not None:
            values["cost_usd_total"] = self.cost_usd_total
        return values


def summarise(scored: Iterable[tuple[QueryResult, Score]]) -> Summary:
    """The figures of one cell. Every result counts in every mean, the failed ones with the zeros of their score."""
    columns: dict[str, list[float]] = {}
    by_question: dict[int, list[Score]] = {}
    outcomes: Counter[str] = Counter()
    incomplete = 0
    for result, score in scored:
        for name, value in measures(result, score).items():
            columns.setdefault(name, []).append(value)
        by_question.setdefault(result.number, []).append(score)
        outcomes[outcome_class(result)] += 1
        incomplete += not result.usage.complete
    queries = outcomes.total()
    costs = columns.get("cost_usd", [])
    if len(costs) < queries:
        columns.pop("cost_usd", None)
    intervals = {
        name: bootstrap([statistics.fmean(getattr(s, name) for s in repeats) for repeats in by_question.values()])
        for name in SCORES
    }
    return Summary(
        queries=queries,
        outcomes=dict(outcomes.most_common()),
        means={name: statistics.fmean(values) for name, values in columns.items()}
        | {name: interval.mean for name, interval in intervals.items() if queries},
        medians={name: statistics.median(values) for name, values in columns.items()},
        cost_usd_total=math.fsum(costs) if queries and len(costs) == queries else None,
        incomplete=incomplete,
        **intervals,
    )


def scored_results(cell: Cell) -> list[tuple[QueryResult, Score]]:
    """The finished queries of a cell with their scores, by number and repeat; those not scored yet are left out.

    Needs no gold. A query is finished but not scored for the moment in between; the next run of the cell scores it.
    """
    scores = read_scores(cell)
    return [(result, score) for result in cell.results() if (score := score_of(result, scores))]


def scores_path(cell: Cell, shard: Shard) -> Path:
    """Where a run of the whole cell, or of a shard of it, keeps its scores."""
    return cell.folder / ("scores.jsonl" if shard.whole else f"scores.{shard.tag}.jsonl")


def score_line(result: QueryResult, score: Score) -> bytes:
    """A line of such a file. `started` says which result of the query was scored, should it be tried again."""
    values = {"number": result.number, "repeat": result.repeat, "started": result.started} | asdict(score)
    return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


def read_scores(cell: Cell) -> dict[ScoreKey, Score]:
    """All scores of a cell, its shards' included."""
    scores: dict[ScoreKey, Score] = {}
    for path in sorted(cell.folder.glob("scores*.jsonl")):
        scores |= parse_scores(path.read_bytes(), path)
    return scores


def parse_scores(content: bytes, path: Path) -> dict[ScoreKey, Score]:
    """The scores in the content of one file, `path`. Raises SetupError where it holds something else."""
    scores = {}
    # Whatever follows the last newline was cut off in writing.
    for line in content.split(b"\n")[:-1]:
        try:
            values = orjson.loads(line)
            key = values.pop("number"), values.pop("repeat"), values.pop("started", None)
            scores[key] = Score(**values)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise SetupError(f"{path}: damaged; remove it and the next run of this cell writes it again") from None
    return scores


def score_of(result: QueryResult, scores: Mapping[ScoreKey, Score]) -> Score | None:
    """The score of this result, and of no earlier one of its query, which another shard's file may still hold."""
    for started in (result.started, None):
        if score := scores.get((result.number, result.repeat, started)):
            return score
    return None
