"""One query of a composed cell over the films, with everything real but the model: jails, servers, programs of npm.

>>> with films_cell(["harness=native", "tools=graph_tools"], films, tmp_path) as cell:
...     told = cell.ask("Which films were directed by Dario Vint?")
>>> told.result.node_ids
(3, 0)

Not covered: scores and logs, which the whole command adds (test_experiment.py).
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dkgi.config import Experiment
from dkgi.gateway import ModelGateway
from dkgi.harness import open_harness
from dkgi.kg.index import open_index
from dkgi.kg.text import IndexSpec
from dkgi.kg.tools import graph_tools
from dkgi.meter import Ledger
from dkgi.models import open_models
from dkgi.prompt import render_prompt
from dkgi.runner import CellRun, answer_queries
from dkgi.seats import Seats
from dkgi.store import open_cell
from dkgi.tools import GRAPH_TOOLS
from dkgi.types import Query, QueryResult, Step, Tool, Workspace
from tests.composed import composed
from tests.models.films import write_films

ENGINE = '{"engine": "csr"}'


@dataclass(frozen=True, slots=True)
class Films:
    """The export, and the graph tools over it. All that is made lies in `cache`."""

    cache: Path
    export: Path
    tools: dict[str, Tool]


def write_all(cache: Path) -> Films:
    """Export and index, in a folder whose path tells nothing of what is tested."""
    export = cache / "graphs" / "films-1"
    export.parent.mkdir(parents=True)
    write_films(export)
    index = open_index(export, IndexSpec(names=("title", "name"), summary=("plot",)), cache)
    return Films(cache, export, graph_tools(index))


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a question."""

    result: QueryResult
    steps: Sequence[Step]
    folder: Path


class FilmsCell:
    """An open cell. Each question is a query of its own, numbered from 1; `asked` is the last one."""

    def __init__(self, run: CellRun) -> None:
        self.run = run
        self.asked = 0

    def ask(self, question: str, **limits: Any) -> Told | None:
        """Ask under other limits, where some are given. None where the query is put off."""
        self.asked += 1
        query = Query(self.asked, question, "test", False)
        run = replace(self.run, limits=replace(self.run.limits, **limits))
        results = list(answer_queries(run, [(query, 0)], threads=1))
        if not results:
            return None
        (result,) = results
        folder = self.run.cell.query_folder(query.number, 0)
        return Told(result, self.run.cell.steps(query.number, 0), folder)


@contextmanager
def films_cell(options: Sequence[str], films: Films, folder: Path) -> Iterator[FilmsCell]:
    """Compose, check and open a cell as the whole command does. Raises SetupError where that does."""
    experiment = composed(*options, "tracking=none", "limits.backoff_s=0")
    harness = open_harness(experiment.harness)
    harness.check(experiment.tools)
    has_graph_tools = {*experiment.tools.tools, *experiment.tools.client} & set(GRAPH_TOOLS)
    tools = films.tools if has_graph_tools else {}
    with (
        Seats(experiment, films.export, films.cache, tools, ENGINE) as seats,
        ModelGateway(seats.folder) if experiment.harness.external else nullcontext() as gateway,
    ):
        yield FilmsCell(
            CellRun(
                cell=open_cell(folder, "c0ffee", {}),
                dataset="films",
                harness=harness,
                models=open_models(experiment.model),
                policy=experiment.tools,
                limits=experiment.limits,
                prices=experiment.model.prices,
                ledger=Ledger(cap_usd=experiment.limits.usd_run, prices=experiment.model.prices),
                answer_key=experiment.prompt.answer_key,
                prompt=lambda query, workspace: _prompt(experiment, query, workspace),
                seat=seats.open,
                cancel=seats.cancel,
                engine=ENGINE,
                gateway=gateway,
            )
        )


def _prompt(experiment: Experiment, query: Query, workspace: Workspace) -> str:
    return render_prompt(
        experiment.prompt,
        experiment.told,
        query=query.text,
        corpus=workspace.graph_at,
        scratch=workspace.scratch_at,
    )
