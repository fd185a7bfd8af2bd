"""Ctrl-C, SIGTERM (`kill`, `docker stop`) and SIGHUP (a closed terminal) end a command, each with its own exit code.

>>> with watched():
...     with held():
...         import mlflow
...     signal.raise_signal(signal.SIGTERM)
dkgi: stopped; the same command goes on
>>> # exit code 143

Whoever holds jails or files open closes them as for any exception. Signals that follow do not cut that short: it has
deadlines of its own.
Not covered: a signal before `watched` is reached, while Python itself starts.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_NUDGE = signal.SIGURG
_PATIENCE_S = 30.0
"""A signal that comes so long after the one that was acted on is no impatience: something hangs."""


class Stopped(KeyboardInterrupt):
    """A signal came. A class of its own: Python kills itself by SIGINT at its end if a plain KeyboardInterrupt has ever left
    a text that was given to `exec`, as dataclasses do, whatever has become of it since."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.exit_code = 128 + number


class _State:
    holds = 0
    waiting: int | None = None
    deaf_until = 0.0


@contextmanager
def watched() -> Iterator[None]:
    """A whole command: a signal raises Stopped in the main thread, no wait of which outlasts it, and where nothing else has an
    answer to it, ends the process with a line instead of a traceback."""
    for number in _NUMBERS:
        # What is ignored stays so: under nohup a run outlives its terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _stop)
    _nudge_main()
    try:
        yield
    except Stopped as stop:
        print("dkgi: stopped; the same command goes on", file=sys.stderr)
        sys.exit(stop.exit_code)
    finally:
        # The exit code is settled; by default a signal would take its place until the interpreter is gone.
        for number in _NUMBERS:
            signal.signal(number, signal.SIG_IGN)


@contextmanager
def held() -> Iterator[None]:
    """A signal waits for the end of this, in the main thread: what would break where it is cut, and takes seconds at most."""
    _State.holds += 1
    try:
        yield
    finally:
        _State.holds -= 1
        if (number := _State.waiting) is not None and not _State.holds:
            _State.waiting = None
            _stop(number, None)


def _stop(number: int, _: FrameType | None) -> None:
    now = time.monotonic()
    if now < _State.deaf_until:
        return
    if _State.holds:
        _State.waiting = number
        return
    _State.deaf_until = now + _PATIENCE_S
    raise Stopped(number)


def _nudge_main() -> None:
    """The kernel may give a signal to any thread, and only the main one acts on it, which may be waiting for something else:
    so another signal, that nobody heeds, interrupts that wait.
    """
    read_end, write_end = os.pipe()
    os.set_blocking(write_end, False)
    main = threading.main_thread().ident
    assert main is not None

    def nudge() -> None:
        while number := os.read(read_end, 1):
            if number[0] != _NUDGE:
                signal.pthread_kill(main, _NUDGE)

    signal.signal(_NUDGE, lambda *_: None)
    signal.set_wakeup_fd(write_end, warn_on_full_buffer=False)
    threading.Thread(target=nudge, name="signals", daemon=True).start()
