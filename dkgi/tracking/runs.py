"""Writes the runs of one cell, in an order that a kill at any moment cannot turn into a lie.

    create the run -> metrics -> trajectory.jsonl -> trace -> FINISHED

Only a FINISHED run counts. What a dying process left open is found by its query and replaced when that is logged.
Not covered: what the runs hold (fields.py, spans.py) and the database (database.py).
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dkgi.analysis.summary import measures
from dkgi.tracking import artifacts, fields
from dkgi.tracking.database import connect, folder_name, locked, usable
from dkgi.tracking.fields import CellInfo
from dkgi.tracking.spans import spans
from dkgi.types import QueryResult, Score, Step

ReadSteps = Callable[[], Sequence[Step]]
"""Reads the trajectory of a query's last attempt."""


@dataclass(frozen=True, slots=True)
class _Child:
    """The run of one query. One that was tried again started at another time."""

    run_id: str
    started_ms: int
    finished: bool


class CellRuns:
    """The runs of one cell. It knows the run of each query, so that no query ever has two."""

    def __init__(self, client: Any, experiment: str, parent: str, cell: CellInfo, *, traces: bool) -> None:
        self._client = client
        self._experiment = experiment
        self._parent = parent
        self._cell = cell
        self._traces = traces
        self._children = _children(client, experiment, parent)

    @classmethod
    def open(cls, cell: CellInfo, runs_dir: Path, *, traces: bool, uri: str | None) -> Self:
        """Find or make the cell's run. Raises SetupError where the database or the server cannot be used."""
        client, experiment = connect(runs_dir, uri)
        folder = folder_name(runs_dir, uri)
        with usable(runs_dir, uri), locked(runs_dir):
            parent = _reopen_parent(client, experiment, cell.cell, folder)
            if parent is None:
                parent = _create_parent(client, experiment, cell, folder)
            return cls(client, experiment, parent, cell, traces=traces)

    def has(self, result: QueryResult) -> bool:
        """Whether the one run of this query is whole and of this result."""
        runs = self._children.get((result.number, result.repeat), [])
        return [(run.started_ms, run.finished) for run in runs] == [(milliseconds(result.started), True)]

    def finish(self, metrics: Mapping[str, float], *, complete: bool) -> None:
        """Log the figures of the cell and end its run."""
        self._log_metrics(self._parent, metrics, milliseconds(time.time()))
        self._client.set_terminated(self._parent, "FINISHED" if complete else "KILLED")

    def write(self, result: QueryResult, score: Score, steps_path: Path, steps: ReadSteps) -> None:
        """Log one query in place of what there is of it."""
        key = (result.number, result.repeat)
        for old in self._children.get(key, []):
            discard(self._client, self._experiment, old.run_id)
        started = milliseconds(result.started)
        ended = started + milliseconds(result.wall_s)
        run = self._client.create_run(
            self._experiment,
            started,
            tags=fields.query_tags(self._cell, result, parent=self._parent),
            run_name=fields.query_name(result),
        )
        run_id = run.info.run_id
        self._children[key] = [_Child(run_id, started, finished=False)]
        self._log_metrics(run_id, measures(result, score), ended)
        artifacts.put(self._client, run, "trajectory.jsonl", steps_path)
        if self._traces:
            self._write_trace(run_id, result, steps())
        self._client.set_terminated(run_id, "FINISHED", ended)
        self._children[key] = [_Child(run_id, started, finished=True)]

    def _write_trace(self, run_id: str, result: QueryResult, steps: Sequence[Step]) -> None:
        """Through the store's own client: what the tracing API exports in the background can get lost unseen."""
        from mlflow.entities import Span, TraceInfo, TraceLocation, TraceState
        from mlflow.tracing.client import TracingClient

        name = fields.query_name(result)
        found = spans(steps, trace=run_id, name=name, model=self._cell.axes["model"], prices=self._cell.prices)
        if not found:
            return
        began, ended = found[0]["start_time_unix_nano"], found[0]["end_time_unix_nano"]
        info = TraceInfo(
            trace_id=_trace_id(run_id),
            trace_location=TraceLocation.from_experiment_id(self._experiment),
            request_time=began // 1_000_000,
            execution_duration=(ended - began) // 1_000_000,
            state=TraceState.OK if result.outcome == "scored" else TraceState.ERROR,
            request_preview=fields.preview(result.query),
            response_preview=fields.preview(result.final_answer),
            trace_metadata={"mlflow.sourceRun": run_id},
            tags={"mlflow.traceName": name} | fields.axis_tags(self._cell, kind="query"),
        )
        client = TracingClient(self._client.tracking_uri)
        client.start_trace(info)
        client.log_spans(self._experiment, [Span.from_dict(span) for span in found])

    def _log_metrics(self, run_id: str, values: Mapping[str, float], at_ms: int) -> None:
        """Of two values of a metric, the later one is the run's."""
        from mlflow.entities import Metric

        metrics = [Metric(name, fields.rounded(name, value), at_ms, 0) for name, value in values.items()]
        self._client.log_batch(run_id, metrics=metrics)


def cell_runs(client: Any, experiment: str, cell: str, folder: str) -> list[Any]:
    """The runs of a cell that this runs folder made, oldest first; more than one only by a fault of a server."""
    query = f"tags.`dkgi.cell` = '{cell}' AND tags.`dkgi.kind` = 'cell'"
    found = search(client, experiment, query, order_by=["attributes.start_time ASC"])
    return [run for run in found if run.data.tags.get(fields.FOLDER, "") == folder]


def _reopen_parent(client: Any, experiment: str, cell: str, folder: str) -> str | None:
    """The id of the cell's run, which is running again; None where there is none."""
    found = cell_runs(client, experiment, cell, folder)
    if not found:
        return None
    run_id: str = found[0].info.run_id
    client.update_run(run_id, status="RUNNING")
    return run_id


def _create_parent(client: Any, experiment: str, cell: CellInfo, folder: str) -> str:
    """A new run for the cell, with its configuration."""
    from mlflow.entities import Param

    run = client.create_run(experiment, tags=fields.cell_tags(cell, folder), run_name=fields.cell_name(cell, folder))
    run_id: str = run.info.run_id
    client.log_batch(run_id, params=[Param(key, value) for key, value in fields.cell_params(cell).items()])
    client.log_dict(run_id, dict(cell.config), "config.yaml")
    return run_id


def discard_cell(client: Any, experiment: str, cell: str, folder: str) -> None:
    """Take all runs of a cell out of every list: those of this folder, and those that shards elsewhere made."""
    for parent in search(client, experiment, f"tags.`dkgi.cell` = '{cell}' AND tags.`dkgi.kind` = 'cell'"):
        if parent.data.tags.get(fields.FOLDER, "") == folder or fields.SHARD in parent.data.tags:
            for run in search(client, experiment, f"tags.`{fields.PARENT}` = '{parent.info.run_id}'"):
                discard(client, experiment, run.info.run_id)
            # Last, since its queries are found by it.
            discard(client, experiment, parent.info.run_id)


def _children(client: Any, experiment: str, parent: str) -> dict[tuple[int, int], list[_Child]]:
    """The query runs of a cell by (number, repeat), those included that a dying process left open."""
    children: dict[tuple[int, int], list[_Child]] = {}
    for run in search(client, experiment, f"tags.`{fields.PARENT}` = '{parent}'"):
        key = (int(run.data.tags["dkgi.query"]), int(run.data.tags["dkgi.repeat"]))
        child = _Child(run.info.run_id, run.info.start_time, run.info.status == "FINISHED")
        children.setdefault(key, []).append(child)
    return children


def search(client: Any, experiment: str, query: str, order_by: Sequence[str] = ()) -> list[Any]:
    """All runs that a filter finds."""
    runs: list[Any] = []
    token = None
    while True:
        page = client.search_runs([experiment], query, max_results=1000, order_by=[*order_by], page_token=token)
        runs.extend(page)
        token = page.token
        if not token:
            return runs


def discard(client: Any, experiment: str, run_id: str) -> None:
    """Take a run out of every list, with its files and its trace."""
    run = client.get_run(run_id)
    if run.info.status == "RUNNING":
        client.set_terminated(run_id, "KILLED")
    client.delete_traces(experiment, trace_ids=[_trace_id(run_id)])
    artifacts.remove(client, run)
    # Last: as long as it is listed, the next process finds it and takes all of this away again.
    client.delete_run(run_id)


def _trace_id(run_id: str) -> str:
    """A run's trace is found without a search, also one that is half written."""
    return f"tr-{run_id}"


def milliseconds(seconds: float) -> int:
    """Seconds as MLflow keeps times."""
    return round(seconds * 1000)
