"""What a run of a cell tells its user around the answers, on standard error: price, failures, what to do next.

    20 queries to answer, about $0.09 ($0.0047 a query); $0.0000 spent so far, limits.usd_run=5
    cell 5d1f0c2ab9e4 is in mlruns/cells/5d1f0c2ab9e4

Not covered: progress (board.py), the table (analysis/tables.py).
"""

from collections import Counter
from collections.abc import Sequence

from dkgi import console
from dkgi.analysis import tables
from dkgi.config import Experiment, MlflowSpec
from dkgi.meter import Ledger
from dkgi.paths import cache_dir, runs_dir
from dkgi.pricing import expected_dollars
from dkgi.store import Cell
from dkgi.types import Query, QueryResult

_LEAST_USD = 1e-9


def _price(experiment: Experiment, queries: int) -> str:
    each = expected_dollars(experiment.tools, experiment.model.prices)
    if each is None:
        return "no price is known for this model"
    return f"about ${each * queries:,.2f} (${each:.4f} a query)"


def say_price(experiment: Experiment, ledger: Ledger, queries: int) -> None:
    """What is to be paid for, before the first request that costs anything."""
    if queries and expected_dollars(experiment.tools, experiment.model.prices):
        cap = experiment.limits.usd_run
        bound = "no cap (limits.usd_run=null)" if cap is None else f"limits.usd_run={cap:g}"
        line = f"{_queries(queries)} to answer, {_price(experiment, queries)}; ${ledger.spent_usd:,.4f} spent so far, {bound}"
        console.stderr().print(line, soft_wrap=True)


def report_dry_run(experiment: Experiment, queries: list[Query], prompt: str, cell: str) -> int:
    """What a run would do: one prompt to read (stdout), then cell, queries and price."""
    done = Cell(runs_dir() / "cells" / cell)
    left = [q for q in queries for repeat in range(experiment.repeats) if done.result(q.number, repeat) is None]
    price = _price(experiment, len(left))
    with console.printing():
        console.stdout().print(prompt, soft_wrap=True)
    console.stderr().print(f"cell {cell}: {_queries(len(left))} to answer, {price}. Nothing was run.", soft_wrap=True)
    return 0


def _queries(number: int) -> str:
    return f"{number:,} query" if number == 1 else f"{number:,} queries"


def say_what_failed(results: Sequence[QueryResult]) -> None:
    """The commonest failure around the agents, which scores do not show."""
    reasons = Counter(f"{r.stops[-1]}: {r.error[:200]}" for r in results if r.outcome == "failed_infra")
    if not reasons:
        return
    (reason, times), *others = reasons.most_common()
    more = f", and {len(others)} other reasons" if others else ""
    console.stderr().print(f"{times} times {reason}{more}; retry=infra tries such queries again", soft_wrap=True)


def say_what_next(cell: Cell, missing: int, experiment: Experiment, ledger: Ledger) -> None:
    err = console.stderr()
    if missing:
        refusals = [f"{reason}; raise it" for reason in ledger.refused.values()]
        waits, are, have, them = ("waits", "is", "has", "it") if missing == 1 else ("wait", "are", "have", "them")
        why = f"{waits} for money ({' and '.join(refusals)})" if refusals else f"{are} not finished"
        finished = sum(result.cost_usd or 0.0 for result in cell.results())
        # A request that was cut off counts at its highest price.
        begun = ledger.spent_usd + ledger.held_usd - finished
        cost = f", which {have} cost ${tables.dollars(begun)} so far" if begun > _LEAST_USD else ""
        err.print(f"{_queries(missing)} {why}{cost}: the same command goes on with {them}", soft_wrap=True)
    err.print(f"cell {cell.id} is in {cell.folder}", soft_wrap=True)
    if experiment.keep_scratch:
        err.print(f"what agents wrote is in {cache_dir() / 'kept'}; commands.jsonl says which folder", soft_wrap=True)
    if isinstance(experiment.tracking, MlflowSpec):
        say_where_to_compare(experiment.tracking)


def say_where_to_compare(spec: MlflowSpec) -> None:
    place = spec.uri or "make ui (or python -m dkgi.ui)"
    console.stderr().print(f"compare cells in the MLflow UI: {place}", soft_wrap=True)
