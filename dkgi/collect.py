"""The side of a cell that knows the answers: takes finished queries, reads gold, scores, and passes the score on.

>>> secrets = {"the canary that lies beside the labels": canary}
>>> collector = Collector(cell, read_gold("hpo", "test", cache_dir()), secrets, tracker)
>>> for result in answer_queries(...):
...     score = collector.take(result)

The only reader of gold besides the analysis. Agents' side (runner.py) hands over results and hears nothing back.
Not covered: figures of the whole cell (analysis/summary.py).
"""

from collections.abc import Mapping, Set
from functools import partial

from dkgi.analysis.summary import score_line, scored_results, scores_path
from dkgi.files import open_to_append, read_plain, write_atomically
from dkgi.metrics import NO_ANSWER, NodesOf, node_of, score
from dkgi.shards import WHOLE, Shard
from dkgi.store import Cell
from dkgi.tracking import Tracker
from dkgi.types import QueryResult, SafetyStop, Score, SetupError


class Collector:
    """Scores of one cell, or of a shard of it; those of earlier sessions are in `scored` from the start. For one thread.

    `secrets` are texts that no trajectory may show, by what they are; `nodes_of` says what an entry of an answer stands
    for. The scores of a shard are in a file of its own, since another process may work on the next one. Raises
    SafetyStop where an earlier session saw a secret: such a cell is never gone on with.
    """

    def __init__(
        self,
        cell: Cell,
        gold: Mapping[int, Set[int]],
        secrets: Mapping[str, str],
        tracker: Tracker,
        nodes_of: NodesOf = node_of,
        shard: Shard = WHOLE,
    ) -> None:
        self._nodes_of = nodes_of
        self._cell = cell
        self._gold = gold
        self._secrets = {what: secret.encode() for what, secret in secrets.items()}
        self._tracker = tracker
        self._shard = shard
        self._path = scores_path(cell, shard)
        self._unsafe = cell.folder / "unsafe.txt"
        if self._unsafe.exists():
            raise SafetyStop(self._unsafe.read_text())
        self.scored = [(r, self._score(r)) for r in cell.results() if shard.holds(r.dataset, r.number)]
        write_atomically(self._path, b"".join(score_line(*pair) for pair in self.scored))
        for pair in self.scored:
            if not tracker.has(pair[0]):
                self._log(*pair)

    def take(self, result: QueryResult) -> Score:
        """Score a finished query and log it. Raises SafetyStop where its trajectory shows a secret, SetupError
        where that cannot be read.
        """
        steps = self._cell.query_folder(result.number, result.repeat) / "steps.jsonl"
        try:
            content = read_plain(steps)
        except FileNotFoundError:
            raise SetupError(f"{steps}: absent; move result.json away and the query runs again") from None
        for what, secret in self._secrets.items():
            if secret in content:
                message = f"{steps}: holds {what}; a jail leaks, nothing of this cell counts"
                write_atomically(self._unsafe, message.encode())
                raise SafetyStop(message)
        earned = self._score(result)
        self._forget(result.number, result.repeat)
        self.scored.append((result, earned))
        with open_to_append(self._path) as file:
            file.write(score_line(result, earned))
        self._log(result, earned)
        return earned

    def of_cell(self) -> list[tuple[QueryResult, Score]]:
        """The scores of the whole cell: those of other shards as their files have them by now."""
        return self.scored if self._shard.whole else scored_results(self._cell)

    def _score(self, result: QueryResult) -> Score:
        if result.outcome != "scored":
            return NO_ANSWER
        return score(result.node_ids, gold=self._gold[result.number], nodes_of=self._nodes_of)

    def _forget(self, number: int, repeat: int) -> None:
        """Drop an earlier result of a query that was tried again."""
        earlier = len(self.scored)
        self.scored = [pair for pair in self.scored if (pair[0].number, pair[0].repeat) != (number, repeat)]
        if len(self.scored) < earlier:
            write_atomically(self._path, b"".join(score_line(*pair) for pair in self.scored))

    def _log(self, result: QueryResult, earned: Score) -> None:
        folder = self._cell.query_folder(result.number, result.repeat)
        self._tracker.log(
            result, earned, folder / "steps.jsonl", partial(self._cell.steps, result.number, result.repeat)
        )
