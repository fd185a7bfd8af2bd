"""A cell while this process holds it: what is to do, what was scored, where it is logged.

>>> with HeldCell(plan, cell) as held:
...     for result in answer_queries(cell_run, held.todo, threads=4):
...         held.take(result)
...     held.complete = True

Not covered: who answers (runner.py, worker/).
"""

from typing import Self

from dkgi import tracking
from dkgi.analysis.summary import summarise
from dkgi.collect import Collector
from dkgi.config import Experiment, MlflowSpec
from dkgi.gold import read_canary, read_gold
from dkgi.keys import LEAST_SECRET, read_key
from dkgi.locks import Lock
from dkgi.models.provider import ProviderSpec
from dkgi.paths import cache_dir, runs_dir
from dkgi.plan import Plan
from dkgi.store import Cell
from dkgi.tracking import Tracker
from dkgi.types import Outcome, QueryResult, SafetyStop, Score

GIVE_UP = 5
"""So many queries at the start of a run, if all fail around the agent, end it: the others would fail the same way."""

Scored = tuple[QueryResult, Score]


class HeldCell:
    """Holds the lock of `cell` until it is left. Raises SetupError where another process has it, SafetyStop where the
    cell must not be gone on with.

    todo      the queries to be answered, each with its repeat
    earlier   what was asked for and is finished from before
    gave_up   the first results of this run all failed around the agent, so that no more should be begun
    complete  whether the log may say that the cell's run has ended well
    """

    def __init__(self, plan: Plan, cell: Cell) -> None:
        self.plan, self.cell = plan, cell
        self.complete = self._unsafe = False
        self._lock = Lock(cell, plan.experiment.shard)
        try:
            spec = plan.experiment.dataset
            self._tracker = _open_tracker(plan, cell)
            gold = read_gold(spec.name, spec.base_split, cache_dir())
            self._collector = Collector(
                cell, gold, _secrets(plan.experiment), self._tracker, plan.nodes_of(), plan.experiment.shard
            )
            self.todo = plan.unfinished()
        except BaseException:
            self._lock.close()
            raise
        self._known = {(result.number, result.repeat): result for result, _ in self._collector.scored}
        self._wanted = {(query.number, repeat) for query, repeat in plan.wanted}
        self._asked = {(query.number, repeat) for query, repeat in self.todo}
        self.earlier = [pair for pair in self.scored if (pair[0].number, pair[0].repeat) not in self._asked]
        self._fresh: list[Outcome] = []
        self.gave_up = False

    def take(self, result: QueryResult) -> Score:
        """Score and log a result. Raises SafetyStop where its trajectory shows a secret."""
        try:
            score = self._collector.take(result)
        except SafetyStop:
            self._unsafe = True
            raise
        self._known[result.number, result.repeat] = result
        self._fresh.append(result.outcome)
        self.gave_up = self.gave_up or self._fresh == ["failed_infra"] * GIVE_UP
        return score

    def asked(self, number: int, repeat: int) -> bool:
        """Whether a query is one of those to be answered."""
        return (number, repeat) in self._asked

    def knows(self, result: QueryResult) -> bool:
        """Whether exactly this result is scored."""
        return self._known.get((result.number, result.repeat)) == result

    @property
    def scored(self) -> list[Scored]:
        """All that was asked for and is finished."""
        return [pair for pair in self._collector.scored if (pair[0].number, pair[0].repeat) in self._wanted]

    @property
    def missing(self) -> int:
        """How many of those asked for are not finished."""
        return len(self._wanted) - len(self.scored)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            figures = summarise(self._collector.of_cell()).metrics(self.plan.experiment.axes["dataset"])
            self._tracker.finish({} if self._unsafe else figures, complete=self.complete)
        finally:
            self._lock.close()


def _secrets(experiment: Experiment) -> dict[str, str]:
    """What no agent may get to see, by what it is."""
    secrets = {"the canary that lies beside the labels": read_canary(experiment.dataset.name, cache_dir())}
    variable = experiment.model.key_variable if isinstance(experiment.model, ProviderSpec) else None
    key = read_key(variable) if variable else None
    if key and len(key) >= LEAST_SECRET:
        secrets[f"the value of {variable}"] = key
    return secrets


def _open_tracker(plan: Plan, cell: Cell) -> Tracker:
    spec = plan.experiment.tracking
    if not isinstance(spec, MlflowSpec):
        return tracking.NullTracker()
    manifest = cell.manifest
    part = plan.experiment.shard
    shard = "" if part.whole else f"{part.index} of {part.count}"
    info = tracking.CellInfo(cell.id, manifest["axes"], manifest["config"], manifest["git_commit"], shard)
    return tracking.open(info, runs_dir(), traces=spec.traces, uri=spec.uri)
