"""The agents' side of a cell: worker threads that take queries, try each up to three times, and record what came.

>>> for result in answer_queries(cell_run, todo, threads=4):
...     print(result.number, result.outcome, result.node_ids[:3])

Knows harnesses and models by their protocols, and neither gold, scores nor logs. Whatever is recorded of a query is
on disk before the next request is sent, and result.json is the last word.
Not covered: what to run (experiment.py), scores (collect.py).
"""

import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from queue import Empty, SimpleQueue
from time import monotonic, time
from typing import Protocol

from dkgi.answer import parse_answer
from dkgi.pricing import dollars
from dkgi.store import Cell, Journal, RecordedAttempt
from dkgi.types import (
    Account,
    AnswerError,
    Attempt,
    CommandRunner,
    Gateway,
    Harness,
    Limits,
    ModelSource,
    Outcome,
    Place,
    Prices,
    ProgramStarter,
    Query,
    QueryResult,
    SandboxError,
    Step,
    Task,
    Tool,
    ToolPolicy,
    ToolSocket,
    Usage,
    Workspace,
)

_PATIENCE_S = 10.0
_AGENT_STOPS = {"bad_answer", "time_limit", "turn_limit", "refused"}


@dataclass(frozen=True, slots=True)
class Seat:
    """Where one attempt works: its folders, the commands of its jail, and the graph tools that its model is offered.

    `graph_calls` says how many calls of graph tools there were so far, those of programs included. `calls` is where an
    external program calls tools, and `programs` starts it; None where the harness has none.
    """

    workspace: Workspace
    commands: CommandRunner
    graph_tools: Mapping[str, Tool] = field(default_factory=dict)
    graph_calls: Callable[[], int] = lambda: 0
    calls: ToolSocket | None = None
    programs: ProgramStarter | None = None


class Money(Protocol):
    """The money of a run."""

    @property
    def exhausted(self) -> bool:
        """A cap of the run, or of all runs together, has refused a request: no other query is begun."""

    def account(self, *, cap_usd: float | None, spent_usd: float = 0.0) -> Account:
        """The account of one query, which has spent `spent_usd` in earlier attempts."""


@dataclass(frozen=True, slots=True)
class CellRun:
    """What all agents of one cell share.

    `seat` opens a checked place for one attempt and takes it away again; it gets the file that records the commands
    and raises SandboxError where the place is not safe. `prompt` renders the message for a query. `cancel` ends the
    commands of all seats. `ledger` holds the money of the run; `engine` is what graph tools search with, if there are any.
    `sandboxed` is told of every result. `gateway` is open where the harness has an external program.
    """

    cell: Cell
    dataset: str
    harness: Harness
    models: ModelSource
    policy: ToolPolicy
    limits: Limits
    prices: Prices | None
    ledger: Money
    answer_key: str
    prompt: Callable[[Query, Workspace], str]
    seat: Callable[[Path], AbstractContextManager[Seat]]
    cancel: Callable[[], None]
    engine: str = ""
    sandboxed: bool = True
    gateway: Gateway | None = None


def answer_queries(run: CellRun, todo: Sequence[tuple[Query, int]], *, threads: int) -> Generator[QueryResult]:
    """Answer each (query, repeat) and yield its result as it comes. Closing the iterator ends all work.

    A query that has no money left is put off, and once the run has none no other is begun. Raises what a worker raised:
    a fault in the program, a SetupError such as a full disk, or a RunStop of the provider.
    """
    waiting: SimpleQueue[tuple[Query, int]] = SimpleQueue()
    for entry in todo:
        waiting.put(entry)
    finished: SimpleQueue[QueryResult | BaseException | None] = SimpleQueue()
    stop = threading.Event()

    def work() -> None:
        try:
            while not stop.is_set() and not run.ledger.exhausted:
                query, repeat = waiting.get_nowait()
                if result := _Work(run, query, repeat, stop).answer():
                    finished.put(result)
        except Empty:
            pass
        except BaseException as error:
            finished.put(error)
        finally:
            finished.put(None)

    workers: list[threading.Thread] = []
    try:
        for _ in range(min(threads, len(todo))):
            # A daemon, since a thread that waits for a provider must not hold up the end of the process.
            worker = threading.Thread(target=work, name="agent", daemon=True)
            worker.start()
            workers.append(worker)
        running = len(workers)
        while running:
            item = finished.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                running -= 1
            else:
                yield item
    finally:
        stop.set()
        run.cancel()
        # Workers that run a command end now; one that waits for a provider is left behind.
        deadline = monotonic() + _PATIENCE_S
        for worker in workers:
            worker.join(timeout=max(0.0, deadline - monotonic()))


class _Work:
    """One query in progress."""

    def __init__(self, run: CellRun, query: Query, repeat: int, stop: threading.Event) -> None:
        self.run = run
        self.query = query
        self.repeat = repeat
        self.stop = stop
        self.started = time()

    def answer(self) -> QueryResult | None:
        """The result, already in the store; None where the work was stopped or is put off."""
        cell, key = self.run.cell, (self.query.number, self.repeat)
        earlier = cell.attempts(*key)
        # A query that is finished and tried again gets all its attempts anew; what it spent stays counted.
        tried = 0 if cell.result(*key) else sum(attempt.counts for attempt in earlier)
        spent = sum((attempt.usage for attempt in earlier), Usage())
        account = self.run.ledger.account(
            cap_usd=self.run.limits.usd_query, spent_usd=dollars(spent, self.run.prices) or 0.0
        )
        ends: list[Attempt] = []
        with Journal(cell, *key) as journal:
            number = earlier[-1].number if earlier else 0
            last = next((a.end for a in reversed(earlier) if a.counts), None) if tried else None
            while not (last and last.stop == "answered") and tried < self.run.limits.attempts:
                if not self._back_off(tried, last):
                    return None
                number += 1
                tried += 1
                last = self._attempt(number, account, journal)
                if self.stop.is_set():
                    return None
                journal.end(number, last)
                if last.stop == "budget":
                    return None
                ends.append(last)
        result = self._result(earlier, ends)
        cell.write(result)
        return result

    def _back_off(self, tried: int, last: Attempt | None) -> bool:
        """Wait before another attempt, longer each time; False where the work was stopped meanwhile."""
        if last is None or last.stop == "refused":
            return not self.stop.is_set()
        return not self.stop.wait(self.run.limits.backoff_s * 2 ** (tried - 1))

    def _attempt(self, number: int, account: Account, journal: Journal) -> Attempt:
        run, query = self.run, self.query

        def record(step: Step) -> None:
            journal.step(number, step)

        folder = run.cell.query_folder(query.number, self.repeat)
        try:
            with run.seat(folder / "commands.jsonl") as seat:
                if self.stop.is_set():
                    raise SandboxError("the run ended while the place was opened")
                deadline = monotonic() + run.limits.wall_s
                model = run.models.model(Place(query.number, self.repeat, number, deadline, folder, account))
                prompt = run.prompt(query, seat.workspace)
                task = Task(
                    query,
                    prompt,
                    run.policy,
                    run.limits,
                    seat.workspace,
                    model,
                    seat.commands,
                    record,
                    seat.graph_tools,
                    run.gateway,
                    seat.calls,
                    self.stop.is_set,
                    seat.programs,
                )
                return replace(self._judged(run.harness.run(task)), graph_calls=seat.graph_calls())
        except SandboxError as error:
            return Attempt("sandbox_error", "", Usage(), 0.0, 0, 0, 0, error=str(error))

    def _judged(self, attempt: Attempt) -> Attempt:
        """The attempt, failed where its final message is not the answer that was asked for."""
        if attempt.stop != "answered":
            return attempt
        try:
            parse_answer(attempt.final_answer, key=self.run.answer_key)
        except AnswerError as error:
            return replace(attempt, stop="bad_answer", error=str(error))
        return attempt

    def _result(self, earlier: Sequence[RecordedAttempt], ends: Sequence[Attempt]) -> QueryResult:
        run, query = self.run, self.query
        past = [attempt.end for attempt in earlier if attempt.end and attempt.counts]
        last = [*past, *ends][-1]
        usage = sum((a.usage for a in earlier), Usage()) + sum((a.usage for a in ends), Usage())
        answered = last.stop == "answered"
        return QueryResult(
            cell=run.cell.id,
            number=query.number,
            repeat=self.repeat,
            dataset=run.dataset,
            split=query.split,
            in_test_subset=query.in_test_subset,
            query=query.text,
            outcome=_outcome(last),
            stops=tuple(end.stop for end in [*past, *ends]),
            interrupted=sum(not attempt.counts for attempt in earlier),
            final_answer=last.final_answer,
            node_ids=parse_answer(last.final_answer, key=run.answer_key).entries if answered else (),
            usage=usage,
            last_usage=last.usage,
            cost_usd=dollars(usage, run.prices),
            wall_s=sum(a.wall_s for a in earlier) + sum(a.wall_s for a in ends),
            turns=last.turns,
            tool_calls=last.tool_calls,
            tool_errors=last.tool_errors,
            started=self.started,
            error=last.error,
            graph_calls=last.graph_calls,
            engine=run.engine,
            sandboxed=run.sandboxed,
            flags=last.flags,
        )


def _outcome(last: Attempt) -> Outcome:
    if last.stop == "answered":
        return "scored"
    return "failed_agent" if last.stop in _AGENT_STOPS else "failed_infra"
