"""Counted starts of Python: the commands' jail holds a stand-in, and the host runs the interpreter where it has no path.

    jail of a command                    host                              jail of Python, no path leads to the interpreter
    python3 -c ... (sandbox/python3.sh)
      "17.2211" -> /run/py/req       ->  a start is left: take argv,
                                         environment, folder and streams
                                         of process 17, start      ----->  python3 -c ...
      /run/py/17.2211            <-      its exit code             <-----  exit

A start from inside the running program meets a stand-in of its own, and so the same count. The files below /run/py are
made by the host in a folder that jails see read-only; what they write into the pipe `req` is only ever a number to look up.
Not covered: what Python sees (profile.py); a program that forks, which stays one program.
"""

import contextlib
import os
import re
import secrets
import select
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dkgi.jail.caller import Caller
from dkgi.jail.nsjail import arguments, bind, complaints, text
from dkgi.jail.programs import PYTHON
from dkgi.process import Lifeline, kill_tree
from dkgi.types import PythonStart

_REQUEST = re.compile(rb"([1-9][0-9]{0,9})\.[0-9]{1,12}")
_MOST_REQUESTS = 1000
_GRACE_S = 1.0
_CLOSE_S = 30.0
_CANNOT = 126

Inner = Callable[[Sequence[str], Sequence[tuple[str, str]], str], str]


@dataclass(frozen=True, slots=True)
class Texts:
    """Configurations of the two jails, and what is printed instead of running Python.

    `inner` makes that of Python's from arguments, environment and working folder. `refused`: no start is left.
    `failed`: Python could not be run, a reason that only the record tells, since it may name paths of the host.
    """

    outer: str
    inner: Inner
    refused: str
    failed: str


class Broker:
    """The starts of one attempt; `folder` is the host's own, `stand_in` the program that takes Python's place."""

    def __init__(self, allowed: int, texts: Texts, folder: Path, stand_in: Path) -> None:
        self.allowed, self.texts = allowed, texts
        self.folder, self.stand_in = folder, stand_in
        self._used = 0
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Use one start up, if there is one."""
        with self._lock:
            self._used += 1
            return self._used <= self.allowed

    def reset(self) -> None:
        """Give all starts back: those of the check before an attempt are not the agent's."""
        with self._lock:
            self._used = 0


class Session:
    """One jail's line to the host, while the jail runs. `config` is the jail's file. After closing `starts` is complete,
    and `killed` whether something outside killed a program's jail."""

    def __init__(self, broker: Broker, nsjail: Path, lifeline: Lifeline, config: str) -> None:
        self._broker, self._nsjail, self._lifeline = broker, nsjail, lifeline
        self.starts: list[PythonStart] = []
        self.refused = 0
        self.killed = False
        self._folder = broker.folder / secrets.token_hex(4)
        self.config = self._folder.with_suffix(".cfg")
        self._folder.mkdir()
        self._folder.chmod(0o755)
        for name in ("req", "tick"):
            os.mkfifo(self._folder / name)
            (self._folder / name).chmod(0o666)
        mounts = (bind(self._folder, "/run/py"), bind(broker.stand_in, PYTHON, executable=True))
        self.config.write_text(config + text([("mount", mount) for mount in mounts]) + "\n")
        self._root = 0
        self._running: dict[int, Session] = {}
        self._workers: list[threading.Thread] = []
        self._stop, self._stopped = os.pipe()
        # Both ends, so that the pipe does not end between two writers.
        self._requests = os.open(self._folder / "req", os.O_RDWR | os.O_NONBLOCK)

    def follow(self, root: int) -> None:
        """The jail's process on the host is `root`: from now on requests are answered."""
        self._root = root
        self._work(self._serve)

    def roots(self) -> list[int]:
        """Processes on the host whose trees belong to the command beside its own."""
        return [pid for root, inner in list(self._running.items()) for pid in (root, *inner.roots())]

    def spent_s(self) -> float:
        """CPU seconds of the programs that have ended."""
        return sum(start.cpu_s for start in list(self.starts))

    def close(self) -> None:
        """End the programs that run. Raises TimeoutError if one does not end."""
        os.close(self._stopped)
        deadline = time.monotonic() + _CLOSE_S
        for worker in self._workers:
            worker.join(max(0.0, deadline - time.monotonic()))
            if worker.is_alive():
                raise TimeoutError("a program of the attempt could not be ended")
        os.close(self._requests)
        os.close(self._stop)
        self.config.unlink()
        shutil.rmtree(self._folder)

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _work(self, target: Callable[..., None], *args: object) -> None:
        worker = threading.Thread(target=target, args=args, name="python", daemon=True)
        self._workers.append(worker)
        worker.start()

    def _serve(self) -> None:
        """Answer until the session closes. Past a number of requests one answer serves all that come."""
        received = b""
        seen = 0
        poll = _poll(self._requests, self._stop)
        while self._stop not in _ready(poll) and seen < _MOST_REQUESTS:
            with contextlib.suppress(BlockingIOError):
                received += os.read(self._requests, 4096)
            *lines, received = received[-4096:].split(b"\n")
            seen += max(1, len(lines))
            for line in lines:
                self._answer_line(line)
        if seen >= _MOST_REQUESTS:
            self._answer("all", _CANNOT, self._broker.texts.refused)

    def _answer_line(self, line: bytes) -> None:
        if not (match := _REQUEST.fullmatch(line)):
            self.refused += 1
        elif self._broker.take():
            self._work(self._start, line.decode(), int(match[1]))
        else:
            self.refused += 1
            self._answer(line.decode(), _CANNOT, self._broker.texts.refused)

    def _answer(self, request: str, code: int, line: str = "") -> None:
        beside = self._folder / f".{request}"
        beside.write_text(f"{code}\n{line}\n" if line else f"{code}\n")
        beside.chmod(0o644)
        beside.rename(self._folder / request)

    def _start(self, request: str, pid: int) -> None:
        """Run Python for the process that is number `pid` in the jail; a start that fails is used up as well."""
        started = time.monotonic()
        code, cpu_s, error = _CANNOT, 0.0, ""
        argv: tuple[str, ...] = ()
        program = None
        try:
            with Caller.find(self._root, pid) as caller:
                argv, program = caller.argv, caller.program()
                code, cpu_s, error = self._run(caller)
        except OSError as problem:
            error = str(problem)
        start = PythonStart(argv, program, code, time.monotonic() - started, cpu_s, error)
        self.starts.append(start)
        self._answer(request, code, error and self._broker.texts.failed)

    def _run(self, caller: Caller) -> tuple[int, float, str]:
        """Exit code, CPU seconds, and what kept Python from starting."""
        config = self._broker.texts.inner(caller.argv, caller.environment, caller.folder)
        log = os.memfd_create("log")
        try:
            with Session(self._broker, self._nsjail, self._lifeline, config) as inner:
                stdin, stdout, stderr = caller.streams
                process = subprocess.Popen(
                    arguments(self._nsjail, inner.config, log, ()),
                    stdin=stdin,
                    stdout=stdout,
                    stderr=stderr,
                    env={},
                    process_group=self._lifeline.group,
                    pass_fds=(log,),
                )
                caller.release()
                self._running[process.pid] = inner
                inner.follow(process.pid)
                ended = False
                try:
                    ended = self._wait(process.pid, caller.pidfd)
                finally:
                    del self._running[process.pid]
                    _, status, usage = os.wait4(process.pid, 0)
                    process.returncode = os.waitstatus_to_exitcode(status)
            self.starts += inner.starts
            self.refused += inner.refused
            self.killed |= inner.killed or (ended and process.returncode == -signal.SIGKILL)
            code = process.returncode if process.returncode >= 0 else 128 - process.returncode
            error = complaints(log) if code == 255 else ""
            return _CANNOT if error else code, usage.ru_utime + usage.ru_stime, error
        finally:
            os.close(log)

    def _wait(self, root: int, caller: int) -> bool:
        """Until Python has ended without us, or has been killed because its caller is gone or the command is over."""
        with _pidfd(root) as ended:
            poll = _poll(ended, caller, self._stop)
            if ended in _ready(poll):
                return True
            for number in (signal.SIGTERM, signal.SIGKILL):
                kill_tree(root, number)
                if _ready(_poll(ended), _GRACE_S):
                    break
            return False


def _poll(*descriptors: int) -> select.poll:
    poll = select.poll()
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    return poll


def _ready(poll: select.poll, timeout_s: float | None = None) -> set[int]:
    return {descriptor for descriptor, _ in poll.poll(None if timeout_s is None else timeout_s * 1000)}


@contextmanager
def _pidfd(pid: int) -> Iterator[int]:
    descriptor = os.pidfd_open(pid)
    try:
        yield descriptor
    finally:
        os.close(descriptor)
