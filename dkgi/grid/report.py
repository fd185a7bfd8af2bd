"""What a grid tells at its start and at its end: what is to be run and paid; the comparison, what failed, what to do next.

    8 cells, 160 queries to answer, about $0.75; limits.usd_grid=25
    ...
    shell_only failed: its worker was ended by SIGKILL; mlruns/cells/84f7.../worker.log
    the comparison is in mlruns/grids/quickstart_ablation/comparison.md

Not covered: progress (board.py), tests and tables (analysis/).
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from dkgi import console, notices, tracking
from dkgi.analysis import tables
from dkgi.analysis.comparison import Comparison, compare
from dkgi.analysis.labels import label_cells
from dkgi.analysis.markdown import markdown
from dkgi.config import MlflowSpec
from dkgi.files import write_atomically
from dkgi.grid.cells import Grid, price
from dkgi.grid.log import log_grid
from dkgi.held import Scored

_LEAST_USD = 1e-9

if TYPE_CHECKING:
    from dkgi.grid.running import RunningCell


def say_plan(grid: Grid) -> None:
    """How much there is to do and what it may cost, before anything is begun."""
    todo = sum(len(cell.plan.unfinished()) for cell in grid.cells)
    expected = price(grid)
    cost = "no price is known for a model of it" if expected is None else f"about ${expected:,.2f}"
    caps = [f"limits.{key}={value:g}" for key, value in _caps(grid).items() if value is not None]
    bound = " and ".join(caps) or "no cap (limits.usd_grid=null)"
    cells = "1 cell" if len(grid.cells) == 1 else f"{len(grid.cells):,} cells"
    line = f"grid {grid.name}: {cells}, {todo:,} queries to answer, {cost}; {bound}"
    console.stderr().print(line, soft_wrap=True)
    if left := grid.left_out():
        line = f"{left:,} of this grid's cells are others than last time: an option, a text or the data has changed"
        console.stderr().print(f"{line}; what they came to is kept", soft_wrap=True)


def report_dry_run(grid: Grid) -> None:
    """What each cell would do, and nothing more."""
    say_plan(grid)
    with console.printing():
        for cell in grid.cells:
            line = f"{cell.plan.id}  {len(cell.plan.unfinished()):>5} of {len(cell.plan.wanted):<5} to answer  {cell.label}"
            console.stdout().print(line, soft_wrap=True)
    console.stderr().print("Nothing was run.", soft_wrap=True)


def _caps(grid: Grid) -> dict[str, float | None]:
    limits = grid.experiment.limits
    return {"usd_grid": limits.usd_grid, "tokens_grid": limits.tokens_grid}


def report(grid: Grid, cells: "Sequence[RunningCell]", *, jail: bool, complete: bool) -> None:
    """Compare what there is, and say what is missing and why."""
    scored: dict[str, list[Scored]] = {one: [] for one in grid.ids}
    for cell in cells:
        scored[cell.plan.id] += cell.scored
    comparison = _comparison(grid, scored)
    tables.show(comparison)
    err = console.stderr()
    for cell in cells:
        if cell.error:
            err.print(f"{cell.label} {cell.state}: {cell.error}; {cell.log}", soft_wrap=True)
        elif cell.state != "done":
            reasons = cell.ledger.refused.values() if cell.ledger else ()
            err.print(
                f"{cell.label} {cell.state}{_begun(cell)}{': ' if reasons else ''}{' and '.join(reasons)}",
                soft_wrap=True,
            )
    notices.say_what_failed([result for pairs in scored.values() for result, _ in pairs])
    if not complete:
        err.print("the same command goes on with what is missing", soft_wrap=True)
    _record(grid, comparison, jail=jail, complete=complete)


def _begun(cell: "RunningCell") -> str:
    """What the queries have cost that are begun and not finished, which no table shows."""
    if cell.ledger is None:
        return ""
    finished = sum(result.cost_usd or 0.0 for result in cell.plan.cell.results())
    cost = cell.ledger.spent_usd + cell.ledger.held_usd - finished
    return f", ${tables.dollars(cost)} spent on what is not finished" if cost > _LEAST_USD else ""


def _comparison(grid: Grid, scored: dict[str, list[Scored]]) -> Comparison:
    plans = {cell.plan.id: cell.plan for cell in grid.cells}
    axes, configs = [plan.experiment.axes for plan in plans.values()], [plan.config for plan in plans.values()]
    return compare(label_cells(axes, configs, list(plans)), [scored[one] for one in plans])


def _record(grid: Grid, comparison: Comparison, *, jail: bool, complete: bool) -> None:
    """Keep the comparison beside the manifest and in MLflow."""
    path = grid.folder / "comparison.md"
    write_atomically(path, markdown(comparison).encode())
    console.stderr().print(f"the comparison is in {path}", soft_wrap=True)
    spec = grid.experiment.tracking
    if isinstance(spec, MlflowSpec):
        log_grid(tracking.GridInfo(grid.name, grid.ids, jail), comparison, uri=spec.uri, complete=complete)
        notices.say_where_to_compare(spec)
