"""Compare finished cells question by question: `python -m dkgi.compare CELL CELL [CELL ...]`.

    $ python -m dkgi.compare 84f7 120f
    ...
    full_dkgi minus no_edges, 100 questions: H@1 +83.0 (75.0 to 90.0), R@20 +64.2 (54.8 to 73.2), MRR +77.2 (70.0 to 83.7)

CELL is the beginning of a cell's id. The table of all is followed by a line for each further cell: the first cell minus
it, in percentage points with a 95% paired bootstrap interval over the questions that both have.
Not covered: many comparisons at a time, for which these intervals are too narrow.
"""

import argparse
from collections.abc import Iterable
from statistics import fmean

from dkgi import console
from dkgi.analysis import tables
from dkgi.analysis.statistics import bootstrap
from dkgi.analysis.summary import SCORES, scored_results, summarise
from dkgi.paths import runs_dir
from dkgi.store import Cell, find_cells
from dkgi.types import QueryResult, Score, SetupError

Scored = list[tuple[QueryResult, Score]]
NAMES = dict(zip(SCORES, ("H@1", "R@20", "MRR"), strict=True))


def difference(one: Scored, other: Scored) -> str:
    """`100 questions: H@1 +83.0 (75.0 to 90.0), ...`: `one` minus `other`; SetupError where they share no question."""
    mine, theirs = _by_question(one), _by_question(other)
    shared = sorted(mine.keys() & theirs.keys())
    if not mine or not theirs:
        raise SetupError("one of these cells has no finished question yet: the command that made it goes on with it")
    if not shared:
        raise SetupError("these cells have no question in common: compare cells of one data set and split")
    parts = []
    for metric, name in NAMES.items():
        interval = bootstrap([_mean(mine[key], metric) - _mean(theirs[key], metric) for key in shared])
        low, high = (f"{100 * bound:.1f}" for bound in (interval.low, interval.high))
        parts.append(f"{name} {100 * interval.mean:+.1f} ({low} to {high})")
    return f"{len(shared):,} questions: {', '.join(parts)}"


def _by_question(scored: Scored) -> dict[tuple[str, int, str], list[Score]]:
    """Scores of all repeats; a question is told by its text as well, since numbers are those of one data set."""
    found: dict[tuple[str, int, str], list[Score]] = {}
    for result, score in scored:
        found.setdefault((result.dataset, result.number, result.query), []).append(score)
    return found


def _mean(scores: Iterable[Score], metric: str) -> float:
    return fmean(getattr(score, metric) for score in scores)


def labels(cells: list[Cell]) -> list[str]:
    """The names of what is not the same in all cells; the id where these do not tell them apart."""
    axes = [cell.manifest["axes"] for cell in cells]
    differing = [axis for axis in axes[0] if len({each.get(axis) for each in axes}) > 1]
    found = [" · ".join(str(each.get(axis)) for axis in differing) for each in axes]
    return [
        label if label and found.count(label) == 1 else f"{label} {cell.id}".strip()
        for label, cell in zip(found, cells, strict=True)
    ]


def main() -> None:
    """Run the command line of this process."""
    parser = argparse.ArgumentParser(prog="python -m dkgi.compare", description="Compare cells question by question.")
    parser.add_argument(
        "cells", nargs="+", metavar="CELL", help="the beginning of a cell's id; the first is compared with each"
    )
    arguments = parser.parse_args()
    try:
        cells = [find_cells(runs_dir(), [prefix])[0] for prefix in arguments.cells]
        if len({cell.id for cell in cells}) < max(2, len(cells)):
            raise SetupError("CELL: name two or more different cells")
        names = labels(cells)
        scored = [scored_results(cell) for cell in cells]
        lines = [
            f"{names[0]} minus {name}, {difference(scored[0], other)}"
            for name, other in zip(names[1:], scored[1:], strict=True)
        ]
    except SetupError as error:
        console.fail(error)
    tables.show({name: summarise(results) for name, results in zip(names, scored, strict=True)})
    with console.printing():
        for line in lines:
            console.stdout().print(line, soft_wrap=True)


if __name__ == "__main__":
    main()
