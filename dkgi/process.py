"""Run a program to its end or to a limit, its output drained to a file.

>>> with Lifeline() as lifeline, open("/tmp/out", "wb") as file:
...     run(["/bin/echo", "hi"], file.fileno(), Bounds(wall_s=5, memory_mb=100, output_mb=1), lifeline)
Ended(exit_code=0, killed_by=None, output_bytes=3, wall_s=0.002, cpu_s=0.001, peak_rss_mb=1.8)

Not covered: isolation (dkgi/jail). A process that forks twice leaves the tree of a bare program and outlives the run;
in a jail, where all of them hang on one first process, none does.
"""

import contextlib
import math
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

_BLOCK = 64 * 1024
_SAMPLE_S = 0.1
_GRACE_S = 1.0
_TICKS_A_SECOND = os.sysconf("SC_CLK_TCK")


class Guests(Protocol):
    """Trees beside the run's own that work for it. Whoever starts them ends them when the run's first process is gone."""

    def follow(self, root: int) -> None:
        """Told once the run's first process, `root`, exists."""

    def roots(self) -> Sequence[int]:
        """First processes of these trees that run now."""

    def spent_s(self) -> float:
        """CPU seconds of those that have ended."""


KilledBy = Literal["time", "cpu", "memory", "output", "scratch", "cancelled"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of one run: seconds, MiB summed over the process tree, MiB of stdout and stderr together.

    `cpu_s` are CPU seconds of the tree; `room` is asked now and then whether there is room on disk.
    """

    wall_s: float
    memory_mb: int
    output_mb: int
    cpu_s: float = math.inf
    room: Callable[[], bool] | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a run ended. `exit_code` is 128 + N after signal N, always 137 when a limit ended the run. `signal` is what ended
    the first process itself, where no limit did: in a jail that is no command's doing.

    `output_bytes` were kept. `cpu_s` covers the tree. `peak_rss_mb` is the most seen in samples 0.1 s apart, 0 when none
    was taken; mapped files, such as a graph's, are the kernel's cache and do not count.
    """

    exit_code: int
    killed_by: KilledBy | None
    output_bytes: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    signal: int | None = None


class Lifeline:
    """A shell that kills the process group of all runs once this process is gone, after `kill -9` too.

    It waits on a pipe whose other end only this process holds. A child joins the group before it lets go of its copy
    of that end (the order inside CPython's fork_exec), so that no moment is left in which it could be missed.
    """

    def __init__(self) -> None:
        read_end, self._write_end = os.pipe()
        with os.fdopen(read_end, "rb") as stdin:
            self._shell = subprocess.Popen(
                ["/bin/sh", "-c", "read _; kill -KILL 0"],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={},
                process_group=0,
            )

    @property
    def group(self) -> int:
        """The process group to start children in. Raises OSError when the shell is gone: nothing would end them."""
        if self.gone:
            raise ChildProcessError("the shell that ends child processes is gone")
        return self._shell.pid

    @property
    def gone(self) -> bool:
        """Whether something killed the shell."""
        return self._shell.poll() is not None

    def close(self) -> None:
        """Kill what still runs."""
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1
            self._shell.wait(timeout=10)

    def __enter__(self) -> "Lifeline":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def run(
    argv: Sequence[str | bytes],
    output: int,
    bounds: Bounds,
    lifeline: Lifeline,
    *,
    cancel: int | None = None,
    owner: int | None = None,
    pass_fds: Sequence[int] = (),
    guests: Guests | None = None,
) -> Ended:
    """Run `argv` with an empty environment and no input; write stdout and stderr, in their order, to `output`.

    cancel    a pipe or socket: the run ends as soon as its other end hangs up
    guests    further trees, whose memory and CPU time count
    owner     user id that owns the output pipe, so that a program with that id may reopen /dev/stderr
    Raises OSError when the program cannot be started or `output` cannot be written; the program is then dead.
    """
    started = time.monotonic()
    read_end, write_end = os.pipe()
    try:
        try:
            if owner is not None:
                os.fchown(write_end, owner, owner)
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=write_end,
                stderr=write_end,
                env={},
                process_group=lifeline.group,
                pass_fds=pass_fds,
            )
        finally:
            os.close(write_end)
        watch = _Watch(process.pid, read_end, output, bounds, started, guests)
        try:
            if guests:
                guests.follow(process.pid)
            watch.follow(cancel)
        except BaseException:
            kill_tree(process.pid, signal.SIGKILL)
            raise
        finally:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
    finally:
        os.close(read_end)
    code = process.returncode
    return Ended(
        exit_code=137 if watch.killed_by else code if code >= 0 else 128 - code,
        killed_by=watch.killed_by,
        output_bytes=watch.written,
        wall_s=time.monotonic() - started,
        cpu_s=usage.ru_utime + usage.ru_stime,
        peak_rss_mb=watch.peak / 2**20,
        signal=-code if code < 0 and not watch.killed_by else None,
    )


class _Watch:
    """Follows one running tree: copies its output, samples its memory, ends it at a limit."""

    def __init__(
        self, root: int, pipe: int, output: int, bounds: Bounds, started: float, guests: Guests | None
    ) -> None:
        self.guests = guests
        self.root, self.pipe, self.output, self.bounds = root, pipe, output, bounds
        self.deadline = started + bounds.wall_s
        self.sample_at = started + _SAMPLE_S
        self.wake = min(self.sample_at, self.deadline)
        self.written = 0
        self.peak = 0
        self.killed_by: KilledBy | None = None
        self._killed_at = 0.0

    def follow(self, cancel: int | None) -> None:
        """Return once the root has ended and all output is read, at the latest some seconds after a limit."""
        poll = select.poll()
        root_fd = os.pidfd_open(self.root)
        try:
            poll.register(root_fd, select.POLLIN)
            poll.register(self.pipe, select.POLLIN)
            if cancel is not None:
                poll.register(cancel, select.POLLRDHUP | select.POLLHUP)
            self._loop(poll, root_fd, cancel)
        finally:
            os.close(root_fd)

    def _loop(self, poll: select.poll, root_fd: int, cancel: int | None) -> None:
        root_ended_at: float | None = None
        pipe_open = True
        while root_ended_at is None or pipe_open:
            wake = root_ended_at + _GRACE_S if root_ended_at else self.wake
            ready = {fd for fd, _ in poll.poll(max(0.0, wake - time.monotonic()) * 1000 + 1)}
            now = time.monotonic()
            if self.pipe in ready and not self._copy():
                poll.unregister(self.pipe)
                pipe_open = False
            if root_fd in ready and root_ended_at is None:
                poll.unregister(root_fd)
                root_ended_at = now
            if root_ended_at is None:
                self._enforce(now, cancelled=cancel in ready)
            elif now >= root_ended_at + _GRACE_S:
                return  # something outside the tree holds the pipe

    def _enforce(self, now: float, *, cancelled: bool) -> None:
        if cancelled:
            self._stop("cancelled", now)
        if now >= self.deadline:
            self._stop("time", now)
        if now >= self.sample_at:
            self._sample(now)
            self.sample_at = now + _SAMPLE_S
        if self.killed_by:
            # A jail that gets SIGTERM ends its processes and still reports their CPU time.
            hangs = now >= self._killed_at + _GRACE_S
            kill_tree(self.root, signal.SIGKILL if hangs else signal.SIGTERM)
        self.wake = now + _SAMPLE_S if self.killed_by else min(self.sample_at, self.deadline)

    def _sample(self, now: float) -> None:
        roots = (self.root, *(self.guests.roots() if self.guests else ()))
        pids = [pid for root in roots for pid in tree(root)]
        used = sum(map(memory, pids))
        self.peak = max(self.peak, used)
        if used > self.bounds.memory_mb * 2**20:
            self._stop("memory", now)
        if self.bounds.cpu_s < math.inf:
            ended_s = self.guests.spent_s() if self.guests else 0.0
            if ended_s + sum(map(_cpu_s, pids)) > self.bounds.cpu_s:
                self._stop("cpu", now)
        if self.bounds.room and not self.bounds.room():
            self._stop("scratch", now)

    def _copy(self) -> bool:
        block = os.read(self.pipe, _BLOCK)
        room = self.bounds.output_mb * 2**20 - self.written
        if len(block) > room:
            self._stop("output", time.monotonic())
        kept = memoryview(block)[:room]
        while kept:
            count = os.write(self.output, kept)
            self.written += count
            kept = kept[count:]
        return bool(block)

    def _stop(self, reason: KilledBy, now: float) -> None:
        if self.killed_by is None:
            self.killed_by, self._killed_at = reason, now


def kill_tree(root: int, root_signal: signal.Signals) -> None:
    """Send `root_signal` to `root`, a child of ours that is not reaped yet, and SIGKILL to all below it."""
    below = list(tree(root))[1:]
    os.kill(root, root_signal)
    for pid in below:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def tree(root: int) -> Iterator[int]:
    """`root` and the processes below it that exist at this moment."""
    pending = [root]
    while pending:
        pid = pending.pop()
        yield pid
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for thread in Path(f"/proc/{pid}/task").iterdir():
                pending.extend(int(child) for child in (thread / "children").read_bytes().split())


def memory(pid: int) -> int:
    """Bytes of a process that the kernel cannot drop."""
    try:
        status = Path(f"/proc/{pid}/status").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return 1024 * sum(
        int(line.split()[1]) for line in status.splitlines() if line.startswith((b"RssAnon:", b"RssShmem:"))
    )


def _cpu_s(pid: int) -> float:
    """CPU seconds of a process and of all below it that have ended."""
    try:
        status = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    # The name, in brackets, may hold anything; user and system time, own and of ended children, are fields 14 to 17.
    ticks = status.rpartition(b")")[2].split()[11:15]
    return sum(map(int, ticks)) / _TICKS_A_SECOND
