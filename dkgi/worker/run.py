"""The agents' side of one cell of a grid, in a process and a jail of its own: `python -m dkgi.worker.run`.

Reads what to do from standard input (`WorkerJob` as JSON), answers the queries, and says on standard output, a JSON
line each, what it can see, which query is finished, and how it ended:

    {"sees": []}
    {"finished": [17, 0]}
    {"ended": "", "error": ""}

It has no key, no labels, no network, and writes into the cell's folder alone. All else is its parent's (remote.py).
Not covered: its jail (jail/outer.py), its parent (grid/parent.py).
"""

import json
import os
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dkgi import paths
from dkgi.config import Experiment
from dkgi.harness import open_harness
from dkgi.jail.bare import BareSpec
from dkgi.keys import looks_like_key
from dkgi.models import open_models
from dkgi.runner import CellRun, answer_queries
from dkgi.store import Cell
from dkgi.types import Query, RunStop, SetupError
from dkgi.worker.remote import RemoteParent

COMMAND = (sys.executable, "-m", "dkgi.worker.run")


@dataclass(frozen=True, slots=True)
class WorkerJob:
    """What a worker is told.

    experiment  the configuration, as JSON
    cell        the cell's folder
    own         a folder where it may put sockets
    frozen      where conf/ and prompts/ of this grid are
    socket      where its parent listens, `token` what opens that
    todo        queries (fields of types.Query), each with its repeat
    hidden      paths that it must not be able to see
    """

    experiment: Mapping[str, Any]
    cell: str
    own: str
    frozen: str
    socket: str
    token: str
    engine: str
    todo: tuple[tuple[Mapping[str, Any], int], ...]
    hidden: tuple[str, ...]


def work(job: WorkerJob, say: Callable[[Mapping[str, Any]], None]) -> None:
    """Answer the queries of a job, and `say` of each that it is finished. Raises SetupError, RunStop, or what a fault of ours raises."""
    paths.freeze(Path(job.frozen))
    experiment = Experiment.model_validate(job.experiment)
    cell = Cell(Path(job.cell))
    parent = RemoteParent(Path(job.socket), job.token)
    todo = [(Query(**query), repeat) for query, repeat in job.todo]
    with ExitStack() as stack:
        gateway = None
        if experiment.harness.external:
            from dkgi.gateway import ModelGateway

            gateway = stack.enter_context(ModelGateway(Path(job.own)))
        run = CellRun(
            cell=cell,
            dataset=experiment.dataset.name,
            harness=open_harness(experiment.harness),
            models=open_models(experiment.model, transports=parent.transport),
            policy=experiment.tools,
            limits=experiment.limits,
            prices=experiment.model.prices,
            ledger=parent.ledger,
            answer_key=experiment.prompt.answer_key,
            prompt=experiment.prompt_for,
            seat=parent.seat,
            cancel=parent.cancel,
            engine=job.engine,
            sandboxed=not isinstance(experiment.sandbox, BareSpec),
            gateway=gateway,
        )
        results = stack.enter_context(closing(answer_queries(run, todo, threads=experiment.threads)))
        for result in results:
            say({"finished": [result.number, result.repeat]})


def seen(hidden: tuple[str, ...]) -> list[str]:
    """What a worker should not find where it is: a hidden path, a network, a variable with a key."""
    found = [path for path in hidden if os.path.lexists(path)]
    found += [name for name, value in os.environ.items() if looks_like_key(value)]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.socket(family).close()
            found.append(f"sockets of family {family.name}")
        except OSError:
            pass
    return found


def main() -> None:
    """Run one job. Ends with its parent: standard input hangs up then."""
    job = WorkerJob(**json.loads(sys.stdin.buffer.readline()))
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    with os.fdopen(os.dup(sys.stdout.fileno()), "wb", buffering=0) as parent:
        # What some library prints goes to the log.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def say(line: Mapping[str, Any]) -> None:
            parent.write(json.dumps(line).encode() + b"\n")

        say({"sees": seen(job.hidden)})
        say(_ended(job, say))


def _ended(job: WorkerJob, say: Callable[[Mapping[str, Any]], None]) -> dict[str, str]:
    """Work, and how that ended."""
    try:
        work(job, say)
    except (SetupError, RunStop) as error:
        return {"ended": "run_stop" if isinstance(error, RunStop) else "setup", "error": str(error)}
    except Exception as error:
        traceback.print_exc()
        return {"ended": "crashed", "error": f"{type(error).__name__}: {error}"}
    return {"ended": "", "error": ""}


def _end_with_parent() -> None:
    # Not through the stream, whose lock this thread would hold when the process ends.
    os.read(sys.stdin.fileno(), 1)
    os._exit(1)


def as_json(job: WorkerJob) -> bytes:
    """The line that tells a worker its job."""
    return json.dumps(asdict(job)).encode() + b"\n"


if __name__ == "__main__":
    main()
