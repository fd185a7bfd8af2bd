"""One cell from its checked configuration to its table: what `python -m dkgi` does.

>>> run(load(["limit=5"]))
0

    data set -> queries that are not finished -> agents (runner.py) -> results -> scores (collect.py) -> table

Not covered: many cells at once.
"""

import errno
import hashlib
import json
import os
import platform
import subprocess
from collections.abc import Mapping
from contextlib import AbstractContextManager, ExitStack, closing
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

from dkgi import __version__, console, notices, signals, tracking
from dkgi.analysis import tables
from dkgi.analysis.summary import summarise
from dkgi.board import Board
from dkgi.collect import Collector
from dkgi.config import RUN_KEYS, USD_CAPS, Experiment, MlflowSpec, cell_id
from dkgi.dataset import Dataset, prepare
from dkgi.files import cannot_write
from dkgi.gold import read_canary, read_gold
from dkgi.harness import open_harness
from dkgi.jail.bare import BareSpec
from dkgi.keys import LEAST_SECRET, read_key
from dkgi.kg.bm25 import PARAMETERS
from dkgi.kg.index import Index, open_index
from dkgi.kg.tools import graph_tools
from dkgi.meter import Ledger
from dkgi.metrics import NodesOf, node_of
from dkgi.models import open_models
from dkgi.models.provider import ProviderSpec
from dkgi.names import read_names
from dkgi.paths import cache_dir, runs_dir
from dkgi.pricing import dollars
from dkgi.prompt import check_prompt, prompt_digest, render_prompt
from dkgi.runner import CellRun, answer_queries
from dkgi.seats import Seats, telling_names
from dkgi.store import Cell, Lock, open_cell
from dkgi.tools import GRAPH_TOOLS
from dkgi.tracking import Tracker
from dkgi.types import Gateway, Query, QueryResult, RunStop, SafetyStop, SetupError, Workspace

GIVE_UP = 5
"""So many queries at the start of a run, if all fail around the agent, end it: the others would fail the same way."""
_FULL_OR_READ_ONLY = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM}


def run(experiment: Experiment) -> int:
    """Run one cell, or only check and price it (`dry_run`). Returns the exit code; raises SetupError."""
    try:
        return _run(experiment)
    except SafetyStop as error:
        console.stderr().print(f"dkgi: {error}", soft_wrap=True)
        return 3
    except OSError as error:
        if error.errno not in _FULL_OR_READ_ONLY:
            raise
        raise cannot_write(error, runs_dir()) from error


def _run(experiment: Experiment) -> int:
    harness = open_harness(experiment.harness)
    harness.check(experiment.tools)
    check_prompt(experiment.prompt, experiment.told, telling_names(experiment))
    dataset = prepare(experiment.dataset, cache_dir())
    queries = _select(experiment, dataset)
    digests = {
        "export": dataset.export_digest,
        "queries": dataset.queries_digest,
        "labels": dataset.labels_digest,
        "prompts": prompt_digest(experiment.prompt, experiment.told),
    }
    prompt = partial(_prompt, experiment)
    nodes_of = read_names(dataset.export, experiment.dataset.index.names) if experiment.prompt.names else node_of
    index = _index(experiment, dataset)
    engine = json.dumps({key: index.manifest[key] for key in ("engine", *PARAMETERS)}) if index else ""
    if index:
        digests["index"] = hashlib.sha256(json.dumps(index.manifest, sort_keys=True).encode()).hexdigest()
    offered = graph_tools(index) if index else {}
    with Seats(experiment, dataset.export, cache_dir(), offered, engine) as seats, ExitStack() as stack:
        if experiment.dry_run:
            example = prompt(queries[0], seats.example)
            return notices.report_dry_run(experiment, queries, example, cell_id(experiment, digests))
        models = open_models(experiment.model)
        gateway = stack.enter_context(_gateway(seats.folder)) if experiment.harness.external else None
        facts = {"agent_programs": seats.programs, "index": dict(index.manifest) if index else None}
        cell = open_cell(runs_dir(), cell_id(experiment, digests), _manifest(experiment, digests, facts))
        _warn_of_other_code(cell)
        cell_run = CellRun(
            cell=cell,
            dataset=experiment.dataset.name,
            harness=harness,
            models=models,
            policy=experiment.tools,
            limits=experiment.limits,
            prices=experiment.model.prices,
            ledger=Ledger(
                cap_usd=experiment.limits.usd_run, prices=experiment.model.prices, spent_usd=_spent(experiment, cell)
            ),
            answer_key=experiment.prompt.answer_key,
            prompt=prompt,
            seat=seats.open,
            cancel=seats.cancel,
            engine=engine,
            sandboxed=not isinstance(experiment.sandbox, BareSpec),
            gateway=gateway,
        )
        with Lock(cell):
            return _answer(experiment, cell_run, queries, nodes_of)


def _gateway(folder: Path) -> AbstractContextManager[Gateway]:
    """The door of external programs to the model, for as long as the run lasts."""
    # Here, since only such harnesses need a server.
    from dkgi.gateway import ModelGateway

    return ModelGateway(folder)


def _index(experiment: Experiment, dataset: Dataset) -> Index | None:
    """What the graph tools of the policy look into; None where it has none of them."""
    policy = experiment.tools
    if not policy.client and not set(policy.tools) & set(GRAPH_TOOLS):
        return None
    return open_index(dataset.export, experiment.dataset.index, cache_dir())


def _answer(experiment: Experiment, cell_run: CellRun, queries: list[Query], nodes_of: NodesOf) -> int:
    """Answer what is not finished, and show what the cell came to."""
    cell, spec = cell_run.cell, experiment.dataset
    tracker = _open_tracker(experiment, cell)
    gold = read_gold(spec.name, spec.base_split, cache_dir())
    collector = Collector(cell, gold, _secrets(experiment), tracker, nodes_of)
    wanted = {(query.number, repeat) for query in queries for repeat in range(experiment.repeats)}
    todo = _unfinished(experiment, cell, queries)
    label = " · ".join(experiment.axes[axis] for axis in ("dataset", "split", "harness", "tools", "model"))
    if not cell_run.sandboxed:
        label += " · NO SANDBOX"
    earlier = [pair for pair in collector.scored if (pair[0].number, pair[0].repeat) in wanted]
    redo = {(query.number, repeat) for query, repeat in todo}
    notices.say_price(experiment, cell_run.ledger, len(todo))
    code, fresh, gave_up = 0, list[QueryResult](), False
    try:
        with (
            Board(
                label, len(wanted), [pair for pair in earlier if (pair[0].number, pair[0].repeat) not in redo]
            ) as board,
            closing(answer_queries(cell_run, todo, threads=experiment.threads)) as results,
        ):
            for result in results:
                board.update(result, collector.take(result))
                fresh.append(result)
                gave_up = len(fresh) == GIVE_UP and all(result.outcome == "failed_infra" for result in fresh)
                if gave_up:
                    break
    except KeyboardInterrupt as stop:
        code = signals.exit_code(stop)
    except RunStop as stop:
        console.stderr().print(f"dkgi: {stop}", soft_wrap=True)
        code = 3
    except (SafetyStop, SetupError):
        tracker.finish({}, complete=False)
        raise
    scored = [pair for pair in collector.scored if (pair[0].number, pair[0].repeat) in wanted]
    tracker.finish(summarise(collector.scored).metrics(experiment.axes["dataset"]), complete=code == 0)
    if scored:
        tables.show({label: summarise(scored)})
    missing = len(wanted) - len(scored)
    notices.say_what_failed([result for result, _ in scored])
    if gave_up:
        console.stderr().print(f"the first {GIVE_UP} queries all failed so, and no more were begun", soft_wrap=True)
    notices.say_what_next(cell, missing, experiment, cell_run.ledger)
    return code or int(missing > 0)


def _secrets(experiment: Experiment) -> dict[str, str]:
    """What no agent may get to see, by what it is."""
    secrets = {"the canary that lies beside the labels": read_canary(experiment.dataset.name, cache_dir())}
    variable = experiment.model.key_variable if isinstance(experiment.model, ProviderSpec) else None
    key = read_key(variable) if variable else None
    if key and len(key) >= LEAST_SECRET:
        secrets[f"the value of {variable}"] = key
    return secrets


def _select(experiment: Experiment, dataset: Dataset) -> list[Query]:
    queries = dataset.queries(experiment.dataset.split)
    return queries[: experiment.limit]


def _unfinished(experiment: Experiment, cell: Cell, queries: list[Query]) -> list[tuple[Query, int]]:
    """What is still to do: first what was begun, then repeat by repeat, so that an early end leaves whole repeats."""
    again = {"none": (), "infra": ("failed_infra",), "failed": ("failed_infra", "failed_agent")}[experiment.retry]
    todo = []
    for repeat in range(experiment.repeats):
        for query in queries:
            result = cell.result(query.number, repeat)
            if result is None or result.outcome in again:
                todo.append((query, repeat))
    return sorted(todo, key=lambda entry: not cell.query_folder(entry[0].number, entry[1]).exists())


def _prompt(experiment: Experiment, query: Query, workspace: Workspace) -> str:
    return render_prompt(
        experiment.prompt,
        experiment.told,
        query=query.text,
        corpus=workspace.graph_at,
        scratch=workspace.scratch_at,
        knowledge_base=experiment.dataset.knowledge_base,
        answer_kinds=experiment.dataset.answer_kinds,
    )


def _open_tracker(experiment: Experiment, cell: Cell) -> Tracker:
    if not isinstance(experiment.tracking, MlflowSpec):
        return tracking.NullTracker()
    manifest = cell.manifest
    info = tracking.CellInfo(cell.id, manifest["axes"], manifest["config"], manifest["git_commit"])
    return tracking.open(info, runs_dir(), traces=experiment.tracking.traces)


def _manifest(experiment: Experiment, digests: Mapping[str, str], facts: Mapping[str, Any]) -> dict[str, Any]:
    """What a cell is and where it was made; written once, at its first run. `facts` are those found at the start."""
    return {
        **facts,
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "dkgi_version": __version__,
        "git_commit": _git_commit(),
        "config": experiment.model_dump(mode="json", exclude={**dict.fromkeys(RUN_KEYS, True), "limits": USD_CAPS}),
        "axes": experiment.axes,
        "digests": dict(digests),
        "python": platform.python_version(),
        "machine": {"system": platform.platform(), "processor": platform.machine()},
    }


def _git_commit() -> str:
    """Commit of the checkout that this code runs from, or an empty string."""
    root = Path(__file__).resolve().parent.parent
    if not (root / ".git").exists():
        return ""
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    # Not the whole environment, which holds the key.
    environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True, env=environment)
        return done.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def _warn_of_other_code(cell: Cell) -> None:
    """Code is not part of a cell's identity; say so where a cell goes on under another version of it."""
    made_with = (cell.manifest["dkgi_version"], cell.manifest["git_commit"])
    if made_with != (__version__, _git_commit()):
        made = made_with[1][:12] or made_with[0]
        console.stderr().print(f"cell {cell.id} was begun with another version of dkgi ({made})", soft_wrap=True)


def _spent(experiment: Experiment, cell: Cell) -> float:
    """Dollars that all earlier runs of the cell have cost; also those whose queries are not finished."""
    return sum(dollars(usage, experiment.model.prices) or 0.0 for usage in cell.spent().values())
