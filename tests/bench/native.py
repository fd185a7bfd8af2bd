"""What the native loop costs besides model and jail: CPU a turn, and memory with 64 queries at once.

    python tests/bench/native.py

Every turn runs one jailed `true`. CPU is that of this process alone, which holds the loop, the command server, the
record of steps and the writing of results; jails are other processes. Models are scripted, tracking is off.
"""

import json
import resource
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dkgi.context import Level3
from dkgi.harness.native import Native, NativeSpec
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.meter import Ledger
from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.runner import CellRun, Seat, answer_queries
from dkgi.store import open_cell
from dkgi.types import Limits, Query, ToolPolicy

SANDBOX = SandboxSpec(
    kind="nsjail", wall_s=60, memory_mb=512, output_mb=16, file_mb=16, processes=64, commands_at_once=None
)
POLICY = ToolPolicy("p", True, True, True, ("bash",), "tools_full_dkgi.md", (0, 0, 0))


def cpu_s() -> float:
    """CPU seconds of this process, children left out."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def rss_mb() -> float:
    """Most memory that this process ever had, in MiB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def measure(folder: Path, *, queries: int, turns: int, threads: int) -> tuple[float, float]:
    """CPU milliseconds a turn and wall seconds in all."""
    call = {"calls": [{"name": "bash", "arguments": {"command": "true"}}], "usage": {"output": 1}}
    replies = folder / "replies.json"
    replies.write_text(json.dumps({"*": [[call] * turns + [{"text": '{"node_ids": []}'}]]}))
    graph = folder / "graph"
    graph.mkdir(mode=0o755)
    (graph / "schema.json").write_text("{}")
    with (
        RunFolder(folder / "w") as run_folder,
        CommandServer(run_folder.path, SANDBOX, find_host(), Hidden((folder / "labels",), ())) as server,
    ):

        @contextmanager
        def seat(log: Path) -> Iterator[Seat]:
            workspace = run_folder.new_attempt(graph)
            try:
                with server.attempt(workspace, log) as commands:
                    yield Seat(workspace, commands)
            finally:
                run_folder.remove(workspace)

        run = CellRun(
            cell=open_cell(folder, "c0ffee", {}),
            dataset="none",
            harness=Native(NativeSpec("native", "native", Level3())),
            models=Scripted(ScriptedSpec("scripted", "scripted", replies, None)),
            policy=POLICY,
            limits=Limits(wall_s=600, max_turns=None, attempts=1, backoff_s=0),
            prices=None,
            ledger=Ledger(cap_usd=None, prices=None),
            answer_key="node_ids",
            prompt=lambda query, _: query.text,
            seat=seat,
            cancel=server.cancel,
        )
        todo = [(Query(number, "q", "test", False), 0) for number in range(queries)]
        before, started = cpu_s(), time.monotonic()
        results = list(answer_queries(run, todo, threads=threads))
        spent, wall = cpu_s() - before, time.monotonic() - started
    assert [result.outcome for result in results] == ["scored"] * queries
    return 1000 * spent / (queries * (turns + 1)), wall


def main() -> None:
    print("queries  turns  threads   CPU ms/turn   wall s   peak RSS MB")
    for queries, turns, threads in ((4, 100, 1), (8, 50, 2), (64, 10, 64)):
        with tempfile.TemporaryDirectory() as folder:
            per_turn, wall = measure(Path(folder), queries=queries, turns=turns, threads=threads)
        print(f"{queries:7}  {turns:5}  {threads:7}   {per_turn:11.2f}   {wall:6.1f}   {rss_mb():11.0f}")


if __name__ == "__main__":
    main()
