"""Run one command in a jail of its own.

>>> jail = Jail(config_file, box, host.nsjail, uid=1900000000, lifeline=lifeline)
>>> jail.run(["/bin/bash", "-c", "ls nodes | head -2; exit 7"], Path("out"), timeout_s=10).exit_code
7

Not covered: who may ask for a command and where its output is kept (server.py).
"""

import contextlib
import errno
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dkgi.jail.broker import Broker, Session
from dkgi.jail.cgroup import Cgroup
from dkgi.jail.nsjail import arguments, complaints
from dkgi.jail.quota import Quota, Taken
from dkgi.process import Bounds, Lifeline, run
from dkgi.types import Box, CommandResult

# The first process of a jail ignores signals sent from inside and has to reap orphans: so a shell is first and the
# command second. What that shell would say about a killed command goes nowhere; the command's stderr is untouched.
_FIRST = ("/bin/bash", "-c", '{ "$@" 2>&3 3>&-; } 3>&2 2>/dev/null; exit $?', "_")
_SIGKILL = 128 + 9
KILLED = "the jail was killed from outside"
_LONGEST_WORD = 128 * 1024
_LONGEST_COMMAND = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Jail:
    """The jail of one attempt: every command gets a new one from the same configuration, run as host user `uid`.

    With a `broker` Python is started by it, and its configuration is used. `group` is where the kernel bounds commands.
    """

    config: Path
    box: Box
    nsjail: Path
    uid: int
    lifeline: Lifeline
    broker: Broker | None = None
    group: Cgroup | None = None

    def run(self, argv: Sequence[str], output: Path, *, timeout_s: float, cancel: int | None = None) -> CommandResult:
        """Run `argv`, all that it prints going to the new file `output`. Never raises for what the command does.

        `cancel` is a pipe or socket that hangs up when the result is no longer wanted.
        Raises OSError when `output` cannot be written (full disk) or nsjail cannot be started.
        """
        box = self.box
        quota = Quota([source for source, _ in box.writable], Taken(box.scratch_mb * 2**20, box.scratch_files))
        bounds = Bounds(min(timeout_s, box.wall_s), box.memory_mb, box.output_mb, box.cpu_s, quota.holds)
        kills = self.group.kills() if self.group else 0
        file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
        log = os.memfd_create("log")
        try:
            os.fchmod(file, 0o644)
            if problem := _problem(argv):
                return CommandResult(126, None, output, os.write(file, f"bash: {problem}\n".encode()), 0.0, 0.0, 0.0)
            with self._session() as session:
                config = session.config if session else self.config
                words = [os.fsencode(word) for word in arguments(self.nsjail, config, log, [*_FIRST, *argv])]
                ended = run(
                    words, file, bounds, self.lifeline, cancel=cancel, owner=self.uid, pass_fds=(log,), guests=session
                )
            errors = complaints(log) if ended.exit_code == 255 else ""
            if ended.signal == signal.SIGKILL or (session and session.killed and ended.killed_by is None):
                errors = KILLED
            killed_by = ended.killed_by
            # The kernel counts for all commands together: one that ends by SIGKILL while another is killed for memory is
            # told the same reason.
            if self.group and killed_by is None and ended.exit_code == _SIGKILL and self.group.kills() > kills:
                killed_by = "memory"
            starts = tuple(session.starts) if session else ()
            return CommandResult(
                exit_code=ended.exit_code,
                killed_by="sandbox" if errors else killed_by,
                output=output,
                output_bytes=ended.output_bytes,
                wall_s=ended.wall_s,
                cpu_s=ended.cpu_s + sum(start.cpu_s for start in starts),
                peak_rss_mb=ended.peak_rss_mb,
                error=errors,
                python=starts,
                python_refused=session.refused if session else 0,
            )
        finally:
            os.close(log)
            os.close(file)

    def _session(self) -> contextlib.AbstractContextManager[Session | None]:
        if self.broker is None:
            return contextlib.nullcontext()
        return Session(self.broker, self.nsjail, self.lifeline, self.broker.texts.outer)


def _problem(argv: Sequence[str]) -> str:
    """Why the kernel would not take `argv`, in its own words, or nothing."""
    try:
        sizes = [len(os.fsencode(word)) for word in argv]
    except UnicodeEncodeError:
        return os.strerror(errno.EILSEQ)
    if any("\0" in word for word in argv):
        return os.strerror(errno.EINVAL)
    if not sizes or max(sizes) >= _LONGEST_WORD or sum(sizes) >= _LONGEST_COMMAND:
        return os.strerror(errno.E2BIG)
    return ""
