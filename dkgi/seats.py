"""Where attempts work: a view of the graph, folders of their own, and commands in a jail that has proved itself.

>>> with Seats(experiment, export, cache_dir()) as seats:
...     with seats.open(Path("commands.jsonl")) as seat:
...         seat.commands.run(["/bin/bash", "-c", "ls"], timeout_s=60)

Leaving a seat ends its commands and removes its folders; leaving the seats removes everything, and what a killed
process left is removed at the next start. With `keep_scratch` an attempt's folders move to `<cache>/kept` instead,
and the log of its commands says where.
Not covered: what a jail is (jail/).
"""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Self

from dkgi import signals
from dkgi.config import Experiment
from dkgi.files import open_to_append
from dkgi.graph.views import make_view
from dkgi.jail.bare import BareSpec
from dkgi.jail.command import KILLED
from dkgi.jail.external import AttemptPrograms
from dkgi.jail.preflight import Hidden, probe, scan
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.kg.server import GraphServer
from dkgi.prompt import experiment_names
from dkgi.runner import Seat
from dkgi.tools import GRAPH_TOOLS, make_tools
from dkgi.toolserver import ToolServer
from dkgi.types import SandboxError, SetupError, Tool, Workspace

_CLIENT_CHECK = "import graph_client as graph; graph.get_schema(); print('reached')"
_CHECK_S = 60.0


class Seats:
    """The places of one run. `programs` are the versions of what agents get, as the jail itself told them; `example` is a
    place as attempts get them, removed by now; `folder` the run's own, private one.

    `graph_tools` are there where the policy has any, and `engine` says what they search with. Raises SetupError where a
    jail cannot hold on this machine.
    """

    def __init__(
        self, experiment: Experiment, export: Path, cache: Path, graph_tools: Mapping[str, Tool], engine: str
    ) -> None:
        policy = self._policy = experiment.tools
        self._offered = tuple(name for name in policy.tools if name in GRAPH_TOOLS)
        self._client = policy.client
        self._call_s = experiment.limits.wall_s
        hidden = Hidden.default(words=tuple(sorted(telling_names(experiment))))
        self._kept = cache / "kept" if experiment.keep_scratch else None
        self._bare = isinstance(experiment.sandbox, BareSpec)
        with ExitStack() as stack:
            with signals.held():
                self._folder = stack.enter_context(RunFolder(cache / "w"))
            self.folder = self._folder.path
            self._graph = self.folder / "graph"
            make_view(export, self._graph, graph=policy.graph, edges=policy.edges, tools_line=policy.tools_line)
            scan(self._graph, hidden)
            self._server = stack.enter_context(
                CommandServer(self._folder.path, experiment.sandbox, find_host(policy), hidden)
            )
            self._calls = stack.enter_context(GraphServer(self._folder.path, graph_tools, engine))
            self._tools: ToolServer | None = None
            if experiment.harness.external:
                self._tools = stack.enter_context(ToolServer(self.folder))
            try:
                self.programs, self.example = self._proved()
            except SetupError as error:
                if KILLED not in str(error):
                    raise
                # That says nothing of the jail, and attempts to which it happens are tried again as well.
                self.programs, self.example = self._proved()
            self._stack = stack.pop_all()

    def _proved(self) -> tuple[dict[str, str], Workspace]:
        """The versions of programs in a place as attempts get them, and that place, which is removed. Raises SetupError."""
        workspace = self._new_attempt()
        try:
            programs = probe(self._server, workspace)
            if self._client:
                self._probe_client(workspace)
            return programs, workspace
        except SandboxError as error:
            raise SetupError(f"sandbox: {error}") from None
        finally:
            self._folder.remove(workspace)

    def _probe_client(self, workspace: Workspace) -> None:
        with self._at(workspace, Path(os.devnull), Path(os.devnull)) as seat:
            result = seat.commands.run(["/usr/bin/env", "python3", "-c", _CLIENT_CHECK], timeout_s=_CHECK_S)
            printed = result.output.read_text(encoding="utf-8", errors="replace")
        if printed != "reached\n":
            raise SetupError(f"sandbox: the graph cannot be called from a jail: {result.error or printed.strip()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with signals.held():
            self._stack.close()

    def cancel(self) -> None:
        """End the commands of all seats; none of these seats can run another."""
        self._server.cancel()
        self._calls.close()
        if self._tools:
            self._tools.close()

    @contextmanager
    def open(self, log: Path) -> Iterator[Seat]:
        """A seat for one attempt, its jail checked.

        `log` gets a line for each command; graph_calls.jsonl beside it one for each call of a graph tool.
        """
        workspace = self._new_attempt()
        try:
            with self._at(workspace, log, log.with_name("graph_calls.jsonl")) as seat:
                yield seat
        finally:
            self._leave(workspace, log)

    @contextmanager
    def _at(self, workspace: Workspace, log: Path, calls_log: Path) -> Iterator[Seat]:
        with ExitStack() as stack:
            graph = stack.enter_context(self._calls.attempt(self._offered, self._client, calls_log))
            workspace = replace(workspace, client=graph.files)
            commands = stack.enter_context(self._server.attempt(workspace, log))
            calls = programs = None
            if self._tools:
                tools = make_tools(self._policy.tools, commands, graph.tools)
                calls = stack.enter_context(self._tools.attempt(tools, call_s=self._call_s))
                programs = stack.enter_context(closing(AttemptPrograms(workspace)))
            yield Seat(workspace, commands, graph.tools, graph.calls, calls, programs)

    def _new_attempt(self) -> Workspace:
        workspace = self._folder.new_attempt(self._graph)
        return workspace.bare() if self._bare else workspace

    def _leave(self, workspace: Workspace, log: Path) -> None:
        if self._kept is None:
            self._folder.remove(workspace)
            return
        folder = workspace.scratch_dir.parent
        kept = self._kept / folder.name
        self._kept.mkdir(mode=0o700, exist_ok=True)
        folder.rename(kept)
        with open_to_append(log) as file:
            file.write(json.dumps({"kept": str(kept)}).encode() + b"\n")


def telling_names(experiment: Experiment) -> set[str]:
    """Names that would tell an agent what it is part of; no path in its jail and no prompt may hold one."""
    axes = ("split", "harness", "tools", "model")
    return {*(experiment.axes[axis] for axis in axes), experiment.dataset.split, *experiment_names()}
