"""The line to a provider: seats for requests, connections and what is told of faults, shared by all that ask it.

>>> lines = Lines()
>>> lines.to("https://api.openai.com/v1", "OPENAI_API_KEY") is lines.to("https://api.openai.com/v1/", "OPENAI_API_KEY")
True

A provider is an address and the variable with the key: that is what providers bound requests by. The cells of a grid
share theirs, whatever models they ask for there.
Not covered: what goes over it (exchange.py).
"""

import threading
import time

from dkgi import console
from dkgi.limiter import Limiter

_QUIET_S = 60.0
"""A fault of the provider is told on the console, and those of the next so many seconds are not."""


class Line:
    """The line to one provider. Thread-safe."""

    def __init__(self) -> None:
        # Here, since HTTP takes a while to load, and most runs' models need none.
        from dkgi.connections import Connections

        self.limiter = Limiter()
        self.connections = Connections()
        self._quiet_until = 0.0

    def tell(self, fault: str) -> None:
        """Say on the console what goes wrong, if nothing was said for a while."""
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            console.stderr().print(fault, soft_wrap=True)


class Lines:
    """One line for each provider. Thread-safe."""

    def __init__(self) -> None:
        self._lines: dict[tuple[str, str | None], Line] = {}
        self._lock = threading.Lock()

    def to(self, base_url: str, key_variable: str | None) -> Line:
        with self._lock:
            return self._lines.setdefault((base_url.rstrip("/"), key_variable), Line())
