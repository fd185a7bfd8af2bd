"""How many requests one provider gets at a time: more while it answers, fewer when it says 429.

>>> limiter = Limiter()
>>> with limiter.seat(begun=False, deadline=time.monotonic() + 60):
...     limiter.succeeded()

Not covered: how long a refused request waits before it is sent again (exchange.py); it keeps its seat meanwhile.
"""

from collections.abc import Iterator
from contextlib import contextmanager


class Limiter:
    """Seats for requests under way. Thread-safe."""

    @contextmanager
    def seat(self, *, begun: bool, deadline: float) -> Iterator[None]:
        """Wait for a seat and keep it inside of the block. Requests of queries that have `begun` go before others.

        Raises ModelError (kind `timeout`) where the deadline passes in waiting.
        """
        yield
