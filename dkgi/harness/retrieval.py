"""Harnesses without a model: rank the text of all candidates against the question, in one step.

>>> harness = RetrievalHarness("bm25", build)
>>> harness.run(task).final_answer
'{"node_ids": [1250, 88, ...]}'

A ranking is built once a process from the node files of the attempt's graph, and shared by all threads.
Not covered: how texts are ranked (bm25.py, dense.py, hybrid.py); relations, which no document holds.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from dkgi.answer import MAX_ENTRIES
from dkgi.graph.read import read_nodes
from dkgi.types import Attempt, SetupError, Step, Task, ToolPolicy, Usage


class Ranking(Protocol):
    def best(self, query: str, k: int) -> list[int]:
        """Places of the k documents that fit best, best first; fewer where there are not so many. Thread-safe."""


Build = Callable[[Sequence[str]], Ranking]
"""Makes a ranking of documents. Raises SetupError where a package is missing."""


class RetrievalHarness:
    def __init__(self, name: str, build: Build) -> None:
        self._name, self._build = name, build
        self._lock = threading.Lock()
        self._made: tuple[list[int], Ranking] | None = None

    def check(self, policy: ToolPolicy) -> None:
        if not policy.graph:
            raise SetupError(f"tools={policy.name}: harness {self._name} reads the node files; use tools=no_edges")

    def run(self, task: Task) -> Attempt:
        nodes, ranking = self._ranking(task.workspace.graph_dir)
        started = time.monotonic()
        task.on_step(Step("user", task.query.text))
        answer = json.dumps({"node_ids": [nodes[place] for place in ranking.best(task.query.text, MAX_ENTRIES)]})
        task.on_step(Step("assistant", answer, usage=Usage()))
        return Attempt("answered", answer, Usage(), time.monotonic() - started, 1, 0, 0)

    def _ranking(self, graph: Path) -> tuple[list[int], Ranking]:
        with self._lock:
            if self._made is None:
                candidates = [node for node in read_nodes(graph) if node.is_candidate]
                texts = [" ".join(_texts(node.attributes)) for node in candidates]
                self._made = [node.node_id for node in candidates], self._build(texts)
            return self._made


def _texts(value: Any) -> Iterator[str]:
    """Every string and number within a node's attributes."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _texts(part)
    elif value is not None:
        yield str(value)
