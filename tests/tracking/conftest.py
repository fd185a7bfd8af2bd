"""A real MLflow store for each test: its tables are a copy."""

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from dkgi import tracking
from dkgi.tracking import CellInfo, Tracker
from dkgi.types import QueryResult, Score, Step, Usage
from tests.results import query_result

CELL = CellInfo(
    cell="5d1f0c9a7e42",
    axes={
        "dataset": "hpo",
        "split": "test",
        "harness": "native",
        "tools": "full_dkgi",
        "model": "luna",
        "prompt": "final",
        "sandbox": "nsjail",
    },
    config={
        "limits": {"attempts": 3, "wall_s": 1800.0},
        "tools": {"name": "full_dkgi", "tools": ["bash", "read"]},
        "model": {"name": "luna", "prices": {"input": 0.1, "cached_input": 0.01, "cache_write": 0.1, "output": 0.5}},
    },
    git_commit="0123456789abcdef",
)
STEPS = (
    Step("user", "Which genes?", time=100.0),
    Step("tool_call", '{"command": "ls"}', name="bash", call_id="a", time=102.0, usage=Usage(1000, 200, 0, 50, 10, 1)),
    Step("tool_result", "nodes\nedges\n", name="bash", call_id="a", is_error=False, time=103.0),
    Step("assistant", '{"node_ids": [1]}', time=105.0, usage=Usage(500, 700, 0, 20, 0, 1)),
)
SCORE = Score(hit_at_1=1.0, hit_at_5=1.0, recall_at_20=2 / 3, mrr=0.5, ndcg_at_20=0.8, map_at_20=0.7)


class Log:
    """The log of one cell: things to write into it, and what a reader finds there."""

    cell = CELL
    score = SCORE

    def __init__(self, runs: Path, steps_path: Path, uri: str | None = None) -> None:
        self.runs = runs
        self.steps_path = steps_path
        self.uri = uri

    def open(self, *, traces: bool = False, cell: CellInfo = CELL) -> Tracker:
        return tracking.open(cell, self.runs, traces=traces, uri=self.uri)

    def result(self, number: int = 17, repeat: int = 0, **changes: Any) -> QueryResult:
        usage = Usage(input_fresh=1500, cache_read=900, output=70, reasoning=10, requests=2)
        fields: dict[str, Any] = {
            "cell": CELL.cell,
            "in_test_subset": True,
            "query": "Which genes?",
            "stops": ("time_limit", "answered"),
            "interrupted": 0,
            "final_answer": '{"node_ids": [1]}',
            "node_ids": (1,),
            "usage": usage,
            "last_usage": usage,
            "cost_usd": 0.000194,
            "wall_s": 5.25,
            "started": 100.0,
        }
        return query_result(number, repeat, **fields | changes)

    def steps(self) -> Sequence[Step]:
        return STEPS

    def write(self, tracker: Tracker, *results: QueryResult) -> None:
        for result in results:
            tracker.log(result, SCORE, self.steps_path, self.steps)

    def found(self, kind: str = "query") -> list[Any]:
        """The runs of a kind that the UI would list, by number and repeat."""
        client, experiment = tracking.connect(self.runs, self.uri)
        runs = client.search_runs([experiment], f"tags.`dkgi.kind` = '{kind}'", max_results=1000)
        return sorted(runs, key=lambda run: (int(run.data.tags.get("dkgi.query", 0)), run.data.tags.get("dkgi.repeat")))

    def traces(self) -> list[Any]:
        client, experiment = tracking.connect(self.runs, self.uri)
        return list(client.search_traces(locations=[experiment]))


@pytest.fixture(scope="session")
def make_log(mlflow_tables: Path) -> Callable[[Path], Log]:
    """Makes a log in an empty folder."""

    def make(folder: Path) -> Log:
        (folder / "runs").mkdir()
        shutil.copyfile(mlflow_tables, folder / "runs" / "mlflow.db")
        steps = folder / "steps.jsonl"
        steps.write_text("".join(json.dumps({"attempt": 2, "step": asdict(step)}) + "\n" for step in STEPS))
        return Log(folder / "runs", steps)

    return make


@pytest.fixture
def log(tmp_path: Path, make_log: Callable[[Path], Log]) -> Log:
    return make_log(tmp_path)
