"""How many requests one provider gets at a time: more while it answers, fewer when it says 429.

>>> limiter = Limiter()
>>> with limiter.seat(begun=False, deadline=time.monotonic() + 60):
...     limiter.answered()

Doubles each round until the first refusal, then grows by one a round and is cut by a tenth on a refusal, by half where
hardly anything is answered (additive increase, multiplicative decrease). Refusals of requests that were sent before
the last cut do not count again, and a limit that is not used up does not grow.
Not covered: how long a refused request waits before it is sent again (exchange.py); it keeps its seat meanwhile, so
that a provider in distress gets no more than the seats.
"""

import heapq
import itertools
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from dkgi.types import ModelError

_FIRST_LIMIT = 64.0
"""As many as a large run's threads: its first rounds are not lost, and where this is too much a refusal costs nothing."""
_CUT, _DEEP_CUT = 0.9, 0.5
_PAUSE_S = 10.0


class Limiter:
    """Seats for requests under way. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit = _FIRST_LIMIT
        self._busy = 0
        self._waiting: list[tuple[bool, int, threading.Event]] = []
        self._serial = itertools.count()
        self._doubling = True
        self._last_cut = 0.0
        self._answered_since_cut = 0
        self._grows_from = 0.0

    @property
    def limit(self) -> int:
        """Requests that may be under way now."""
        return int(self._limit)

    @contextmanager
    def seat(self, *, begun: bool, deadline: float) -> Iterator[None]:
        """Wait for a seat and keep it inside of the block. Requests of queries that have `begun` go before others.

        Raises ModelError (kind `timeout`) where the deadline passes in waiting.
        """
        called = threading.Event()
        place = (not begun, next(self._serial), called)
        with self._lock:
            heapq.heappush(self._waiting, place)
            self._call()
        if not called.wait(max(0.0, deadline - time.monotonic())):
            with self._lock:
                if not called.is_set():
                    self._waiting.remove(place)
                    heapq.heapify(self._waiting)
                    raise ModelError("time ran out while other requests were under way", kind="timeout")
        try:
            yield
        finally:
            with self._lock:
                self._busy -= 1
                self._call()

    def answered(self) -> None:
        """The provider took a request and answered it: the limit may grow."""
        with self._lock:
            self._answered_since_cut += 1
            if self._busy >= self.limit and time.monotonic() >= self._grows_from:
                self._limit += 1.0 if self._doubling else 1.0 / self._limit
                self._call()

    def refused(self, sent: float) -> None:
        """The provider said 429 to a request that was sent at the `time.monotonic()` instant `sent`."""
        with self._lock:
            self._doubling = False
            if sent >= self._last_cut:
                cut = _CUT if self._answered_since_cut >= self._limit / 2 else _DEEP_CUT
                self._limit = max(1.0, self._limit * cut)
                self._last_cut = time.monotonic()
                self._answered_since_cut = 0

    def failed(self) -> None:
        """The provider failed (5xx): no growth for a while."""
        with self._lock:
            self._doubling = False
            self._grows_from = time.monotonic() + _PAUSE_S

    def _call(self) -> None:
        while self._waiting and self._busy < self.limit:
            self._busy += 1
            heapq.heappop(self._waiting)[2].set()
