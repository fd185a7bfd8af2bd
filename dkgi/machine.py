"""Holds new attempts back while the machine is short of memory or overloaded; those that run go on.

>>> guard = Guard()
>>> with guard.attempt():
...     ...

One attempt of this process always runs, so nobody waits for ever: not even on a machine that others keep busy.
Not covered: memory of a container whose limit is below what the machine has free; its limit ends what goes over it.
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import psutil

from dkgi import console

GIB = 1024**3
LEAST_FREE = GIB
LEAST_SHARE = 0.05
"""Attempts begin only with so many bytes, and such a share of the memory, free for use."""
MOST_LOAD = 8
"""Attempts begin only while no more processes a core want to run, in the mean of a minute."""
_LOOK_S = 1.0
_QUIET_S = 600.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The state of the machine: bytes free for use and in all, processes that want to run (mean of a minute), cores."""

    available: int
    total: int
    load: float
    cores: int


def read_machine() -> Reading:
    """The state of this machine now."""
    memory = psutil.virtual_memory()
    return Reading(memory.available, memory.total, psutil.getloadavg()[0], len(os.sched_getaffinity(0)))


def shortage(reading: Reading) -> str:
    """What the machine is short of, in words; empty where it is short of nothing."""
    if reading.available < max(LEAST_FREE, LEAST_SHARE * reading.total):
        return f"{reading.available / GIB:.1f} of {reading.total / GIB:.1f} GiB of memory are free"
    if reading.load > MOST_LOAD * reading.cores:
        return f"the load is {reading.load:.0f} on {reading.cores} cores"
    return ""


class Guard:
    """Lets attempts of this process begin. For many threads; `read` tells the state of the machine."""

    def __init__(self, read: Callable[[], Reading] = read_machine) -> None:
        self._read = read
        self._changed = threading.Condition()
        self._running = 0
        self._quiet_until = 0.0

    @contextmanager
    def attempt(self, stopped: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Waits until an attempt may begin, and counts it as running inside. Once `stopped()` is true nobody waits."""
        with self._changed:
            while self._running and not stopped() and (lack := shortage(self._read())):
                self._tell(lack)
                self._changed.wait(_LOOK_S)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _tell(self, lack: str) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _QUIET_S
            line = f"{lack}: no other attempt begins until this is better; {self._running} running"
            console.stderr().print(line, soft_wrap=True)
