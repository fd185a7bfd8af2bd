"""A long-lived program in a jail: an agent's command-line program, spoken to through pipes.

>>> box = CliBox(((tree, "/opt/pi"), (socket, "/run/model")), "/run/home", "/graph", (), 1800, 2048)
>>> with cli(box, ["/usr/bin/node", "/opt/pi/cli.js"], [(folder, "/run/home")], stderr=Path("stderr.txt")) as process:
...     process.stdin.write(b'{"type": "get_state"}\\n')
...     process.stdout.readline()

It sees the system's programs, what its box names, and nothing else; its network is an empty one with a loopback of its own.
Not covered: commands of agents, which get a jail each (command.py); what the program may reach through sockets that
its box mounts; the folders of its box (external.py).
"""

import contextlib
import os
import resource
import select
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from dkgi.jail.command import KILLED
from dkgi.jail.diagnosis import Surroundings, cause
from dkgi.jail.mounts import DEVICES, etc, processes, system
from dkgi.jail.nsjail import Field, Message, Word, arguments, bind, complaints, text, tmpfs
from dkgi.jail.preflight import Hidden, check_sources
from dkgi.jail.profile import Host, find_host, frame
from dkgi.process import Lifeline, kill_tree, memory, tree
from dkgi.types import Box, CliBox, ProgramKilledBy, SandboxError

TOLD = 2000
"""Bytes of what a program says on standard error that are told."""

_START_S = 60.0
# Where a sandbox is made inside, commands of agents run in it. A look costs half a millisecond.
_SAMPLE_S = {True: 0.25, False: 1.0}
_GRACE_S = 2.0
# A shell is the first process: it reaps orphans, and says on the pipe `$1` that the jail stands.
_FIRST = ("/bin/bash", "-c", 'fd=$1; shift; printf . >&"$fd"; eval "exec $fd>&-"; "$@"; exit $?', "_")

# Families of sockets: Unix, IPv4, IPv6, netlink. The network namespace confines all of these, and no other is needed.
_ALWAYS = """
ERRNO(1) {
  process_vm_readv, process_vm_writev, bpf, perf_event_open, userfaultfd, keyctl, add_key, request_key, io_uring_setup,
  io_uring_enter, io_uring_register, open_by_handle_at, syslog
}
ERRNO(97) { socket(domain, type, protocol) { domain != 1 && domain != 2 && domain != 10 && domain != 16 } }
"""
_NO_NAMESPACES = """
ERRNO(1) {
  ptrace, mount, umount, pivot_root, chroot, unshare, setns, fsopen, fsmount, fspick, move_mount, open_tree, mount_setattr,
  clone(flags) { (flags & 0x10000000) == 0x10000000 }
}
ERRNO(38) { clone3 }
"""


class CliProcess:
    """A types.Program; `pid` is its jail's. Thread-safe."""

    def __init__(self, process: "subprocess.Popen[bytes]", stdin: IO[bytes], stdout: IO[bytes], stderr: Path) -> None:
        self.stdin, self.stdout, self.pid = stdin, stdout, process.pid
        self._process, self._stderr = process, stderr
        self._limit: ProgramKilledBy | None = None
        self._killing = False
        self._lock = threading.Lock()
        self._pidfd = os.pidfd_open(process.pid)

    @property
    def killed_by(self) -> ProgramKilledBy | None:
        if self._limit is not None:
            return self._limit
        with self._lock:
            # Nothing inside of a jail can send its first process a signal.
            outside = self._process.poll() == -signal.SIGKILL and not self._killing
        return "sandbox" if outside else None

    def told(self) -> str:
        with self._stderr.open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - TOLD))
            return file.read(TOLD).decode(errors="replace").strip()

    def wait(self, timeout: float) -> int:
        if not self._ended(timeout):
            raise TimeoutError(f"the program still runs after {timeout:g} s")
        with self._lock:
            code = self._process.wait()
        return code if code >= 0 else 128 - code

    def kill(self) -> None:
        for number in (signal.SIGTERM, signal.SIGKILL):  # a jail that gets SIGTERM ends what is in it
            with self._lock:
                if self._process.poll() is not None:
                    return
                self._killing = True
                kill_tree(self.pid, number)
            if self._ended(_GRACE_S):
                break
        self.wait(_GRACE_S)

    def watch(self, wall_s: float, memory_mb: int, room: Callable[[], bool] | None, sample_s: float) -> None:
        """Return once it has ended, at the latest some seconds after a limit; memory and room on disk are looked at every
        `sample_s`. Where that cannot be done, it is ended as well."""
        try:
            self._watch(wall_s, memory_mb, room, sample_s)
        finally:
            self.kill()

    def _watch(self, wall_s: float, memory_mb: int, room: Callable[[], bool] | None, sample_s: float) -> None:
        deadline = time.monotonic() + wall_s
        while not self._ended(min(sample_s, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                self._limit = "time"
            elif sum(map(memory, tree(self.pid))) > memory_mb * 2**20:
                self._limit = "memory"
            elif room and not room():
                self._limit = "scratch"
            else:
                continue
            return

    def close(self) -> None:
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):  # what was still to be written has no reader
                pipe.close()
        os.close(self._pidfd)
        self._pidfd = -1  # the number may be another file's by now

    def _ended(self, timeout: float) -> bool:
        """Whether it ends within `timeout` seconds; it is not reaped by that, so its number stays its own."""
        poll = select.poll()
        poll.register(self._pidfd, select.POLLIN)
        return bool(poll.poll(timeout * 1000))


@contextmanager
def cli(
    box: CliBox,
    argv: Sequence[str],
    writable: Sequence[tuple[Path, str]],
    *,
    stderr: Path,
    room: Callable[[], bool] | None = None,
) -> Iterator[CliProcess]:
    """Run `argv` in its jail, what it says on standard error going to the new file `stderr`. Leaving kills all of it.

    `writable` folders, at least one, belong to one user, as whom it runs; without one at /tmp there is an empty /tmp in
    memory. `room` is asked now and then whether there is room on disk.
    Raises SandboxError where the jail does not start, SetupError where a mount would show labels or results.
    """
    owners = {source.stat().st_uid for source, _ in writable}
    if len(owners) != 1 or 0 in owners:
        raise ValueError("the writable folders have to belong to one user, and not to root")
    hidden = Hidden.default()
    check_sources(Box(box.read_only, tuple(writable), box.cwd, box.wall_s, box.memory_mb, 0), hidden)
    started, tell = os.pipe()
    log, config = os.memfd_create("log"), os.memfd_create("config")
    with contextlib.ExitStack() as stack:
        for descriptor in (started, log, config):
            stack.callback(os.close, descriptor)
        try:
            host = find_host()
            os.write(config, _config(box, writable, host, owners.pop(), hidden.paths, tell).encode())
            errors = stack.enter_context(stderr.open("xb"))
            lifeline = stack.enter_context(Lifeline())
            words = arguments(host.nsjail, Path(f"/proc/self/fd/{config}"), log, [*_FIRST, str(tell), *argv])
            process = subprocess.Popen(
                words,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                env={},
                process_group=lifeline.group,
                pass_fds=(log, config, tell),
            )
        finally:
            os.close(tell)
        assert process.stdin is not None
        assert process.stdout is not None
        running = CliProcess(process, process.stdin, process.stdout, stderr)
        stack.callback(running.close)
        watch = threading.Thread(
            target=running.watch,
            args=(box.wall_s, box.memory_mb, room, _SAMPLE_S[box.nested]),
            name="cli",
            daemon=True,
        )
        stack.callback(watch.join)
        stack.callback(running.kill)
        watch.start()
        if not _says(started):
            killed = running.killed_by == "sandbox"
            raise SandboxError(KILLED if killed else cause(complaints(log), "", Surroundings.read()))
        yield running


def _says(started: int) -> bool:
    poll = select.poll()
    poll.register(started, select.POLLIN)
    return bool(poll.poll(_START_S * 1000)) and os.read(started, 1) == b"."


def _config(
    box: CliBox, writable: Sequence[tuple[Path, str]], host: Host, uid: int, hidden: Sequence[Path], started: int
) -> str:
    fields: Message = [
        *frame(box.cwd, box.env, box.wall_s, uid),
        ("pass_fd", started),
        ("seccomp_string", f"{_ALWAYS}{'' if box.nested else _NO_NAMESPACES}DEFAULT ALLOW\n"),
        *_limits(),
        *(("mount", mount) for mount in _mounts(box, writable, host, uid, hidden)),
    ]
    return text(fields) + "\n"


def _limits() -> Iterator[Field]:
    """nsjail's own are meant for small programs; a JavaScript engine maps far more than it uses."""
    for name in ("as", "cpu", "stack"):
        yield f"rlimit_{name}_type", Word("HARD")
    for name, value, limit in (
        ("nofile", 4096, resource.RLIMIT_NOFILE),
        ("nproc", 1024, resource.RLIMIT_NPROC),
        ("fsize", 1024, None),
        ("core", 0, None),
    ):
        most = resource.getrlimit(limit)[1] if limit is not None else resource.RLIM_INFINITY
        yield f"rlimit_{name}", value if most == resource.RLIM_INFINITY else min(value, most)
        yield f"rlimit_{name}_type", Word("VALUE")


def _mounts(
    box: CliBox, writable: Sequence[tuple[Path, str]], host: Host, uid: int, hidden: Sequence[Path]
) -> Iterator[Message]:
    yield from system(host, hidden)
    yield from etc(uid)
    terminal = ("tty",) if box.nested and Path("/dev/tty").exists() else ()
    for name in (*DEVICES, *terminal):
        yield bind(Path("/dev", name), f"/dev/{name}", writable=True, device=True)
    yield tmpfs("/dev/shm", "64m", writable=True)
    if box.nested:
        yield from processes(whole=True)
    if all(target != "/tmp" for _, target in writable):
        yield tmpfs("/tmp", "256m", writable=True)
    binds = [bind(source, target, writable=True, executable=True) for source, target in writable]
    binds += [bind(source, target, executable=True) for source, target in box.read_only]
    yield from sorted(binds, key=lambda mount: str(dict(mount)["dst"]))  # a folder before what is mounted inside it
