"""Commands without a jail, for hosts that allow none: whoever asks for this has accepted that nothing is held back.

>>> Bare(spec, workspace, lifeline).run(["/bin/bash", "-c", "ls"], Path("out"), timeout_s=10).exit_code
0

Time, memory, CPU, output and disk are bounded as in a jail. Commands run as the user of dkgi, see the whole host and its
network, and a process that leaves its tree outlives its command.
Not covered: any protection, of labels too. Results carry `sandboxed: false`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from dkgi.jail.quota import Quota, Taken, bound
from dkgi.process import Bounds, Lifeline, run
from dkgi.types import CommandResult, ToolPolicy, Workspace

_PATH = "/usr/local/bin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class BareSpec:
    """From conf/sandbox/none.yaml: the limits that a jail has as well (profile.SandboxSpec), and the user's word."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["none"]
    i_accept_unsandboxed: bool
    wall_s: float
    memory_mb: int
    output_mb: int
    commands_at_once: int | None
    cpu_s: int | None
    scratch_mb: int | None
    scratch_files: int | None

    def fault(self, policy: ToolPolicy) -> str:
        """Why commands cannot be run so under `policy`, or nothing."""
        if not self.i_accept_unsandboxed:
            return (
                "sandbox.i_accept_unsandboxed: without a sandbox a model's commands can read, change and send away all that "
                "you can, labels too; set it to true to accept that, or use sandbox=nsjail"
            )
        if policy.programs is not None or not (policy.graph and policy.edges):
            return f"tools: {policy.name} holds things back, which sandbox=none cannot; use sandbox=nsjail"
        return ""


@dataclass(frozen=True, slots=True)
class Bare:
    """The commands of one attempt, in the graph's folder."""

    spec: BareSpec
    workspace: Workspace
    ripgrep: Path
    lifeline: Lifeline

    def run(self, argv: Sequence[str], output: Path, *, timeout_s: float, cancel: int | None = None) -> CommandResult:
        """As Jail.run. Raises OSError when `output` cannot be written or nothing can be started."""
        spec, place = self.spec, self.workspace
        folders = (place.scratch_dir, place.tmp_dir)
        quota = Quota(folders, Taken(bound(spec.scratch_mb) * 2**20, bound(spec.scratch_files)))
        limits = Bounds(min(timeout_s, spec.wall_s), spec.memory_mb, spec.output_mb, bound(spec.cpu_s), quota.holds)
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        try:
            ended = run(
                [os.fsencode(word) for word in (*self._surroundings(), *argv)],
                file,
                limits,
                self.lifeline,
                cancel=cancel,
            )
        finally:
            os.close(file)
        return CommandResult(
            exit_code=ended.exit_code,
            killed_by=ended.killed_by,
            output=output,
            output_bytes=ended.output_bytes,
            wall_s=ended.wall_s,
            cpu_s=ended.cpu_s,
            peak_rss_mb=ended.peak_rss_mb,
        )

    def _surroundings(self) -> tuple[str, ...]:
        """Folder and environment of a jail, as far as there is none; keys in our own environment stay ours."""
        place = self.workspace
        variables = {
            "PATH": f"{self.ripgrep.parent}:{_PATH}",
            "HOME": str(place.scratch_dir),
            "TMPDIR": str(place.tmp_dir),
            "LC_ALL": "C.UTF-8",
        }
        pairs = (f"{name}={value}" for name, value in variables.items())
        return ("/usr/bin/env", "-i", f"--chdir={place.graph_dir}", *pairs)
