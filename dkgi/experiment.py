"""One cell from its checked configuration to its table: what `python -m dkgi` does.

>>> run(load(["limit=5"]))
0

    data set -> queries that are not finished -> agents (runner.py) -> results -> scores (collect.py) -> table

Not covered: many cells at once (grid/).
"""

from contextlib import AbstractContextManager, ExitStack, closing
from pathlib import Path

from dkgi import console, notices, signals
from dkgi.analysis import tables
from dkgi.analysis.comparison import compare
from dkgi.board import Board
from dkgi.config import Experiment
from dkgi.files import as_setup_error
from dkgi.harness import open_harness
from dkgi.held import GIVE_UP, HeldCell
from dkgi.jail.bare import BareSpec
from dkgi.meter import Ledger
from dkgi.models import open_models
from dkgi.paths import runs_dir
from dkgi.plan import make_plan, spent_usd
from dkgi.runner import CellRun, answer_queries
from dkgi.types import Gateway, RunStop, SafetyStop


def run(experiment: Experiment) -> int:
    """Run one cell, or only check and price it (`dry_run`). Returns the exit code; raises SetupError."""
    try:
        return _run(experiment)
    except SafetyStop as error:
        console.stderr().print(f"dkgi: {error}", soft_wrap=True)
        return 3
    except OSError as error:
        raise as_setup_error(error, runs_dir()) from error


def _run(experiment: Experiment) -> int:
    plan = make_plan(experiment)
    with plan.open_seats() as seats, ExitStack() as stack:
        if experiment.dry_run:
            # A small shard can be empty; its split is not.
            first = plan.dataset.queries(experiment.dataset.split)[0]
            example = experiment.prompt_for(first, seats.example)
            return notices.report_dry_run(experiment, list(plan.queries), example, plan.id)
        models = open_models(experiment.model)
        gateway = stack.enter_context(_gateway(seats.folder)) if experiment.harness.external else None
        cell = plan.open_cell(seats.programs)
        ledger = Ledger(
            cap_usd=experiment.limits.usd_run, prices=experiment.model.prices, spent_usd=spent_usd(experiment, cell)
        )
        cell_run = CellRun(
            cell=cell,
            dataset=experiment.dataset.name,
            harness=open_harness(experiment.harness),
            models=models,
            policy=experiment.tools,
            limits=experiment.limits,
            prices=experiment.model.prices,
            ledger=ledger,
            answer_key=experiment.prompt.answer_key,
            prompt=experiment.prompt_for,
            seat=seats.open,
            cancel=seats.cancel,
            engine=plan.engine,
            sandboxed=not isinstance(experiment.sandbox, BareSpec),
            gateway=gateway,
        )
        with HeldCell(plan, cell) as held:
            return _answer(held, cell_run, ledger)


def _gateway(folder: Path) -> AbstractContextManager[Gateway]:
    """The door of external programs to the model, for as long as the run lasts."""
    # Here, since only such harnesses need a server.
    from dkgi.gateway import ModelGateway

    return ModelGateway(folder)


def _answer(held: HeldCell, cell_run: CellRun, ledger: Ledger) -> int:
    """Answer what is not finished, and show what the cell came to."""
    plan, experiment = held.plan, held.plan.experiment
    label = plan.label if cell_run.sandboxed else f"{plan.label} · NO SANDBOX"
    notices.say_price(experiment, ledger, len(held.todo))
    code = 0
    try:
        with (
            Board(label, len(plan.wanted), held.earlier) as board,
            closing(answer_queries(cell_run, held.todo, threads=experiment.threads)) as results,
        ):
            for result in results:
                board.update(result, held.take(result))
                if held.gave_up:
                    break
    except signals.Stopped as stop:
        code = stop.exit_code
    except RunStop as stop:
        console.stderr().print(f"dkgi: {stop}", soft_wrap=True)
        code = 3
    held.complete = code == 0
    scored = held.scored
    if scored:
        tables.show(compare([label], [scored]))
    notices.say_what_failed([result for result, _ in scored])
    if held.gave_up:
        console.stderr().print(f"the first {GIVE_UP} queries all failed so, and no more were begun", soft_wrap=True)
    notices.say_what_next(held.cell, held.missing, experiment, ledger)
    return code or int(held.missing > 0)
