"""The one console for people: rich, on stderr, so that stdout stays clean data.

>>> console.stderr().print("20 queries to go", soft_wrap=True)

Lines are printed with `soft_wrap=True` wherever they may be piped: rich else breaks them at column 80.
Not covered: progress (board.py) and tables (analysis/tables.py), which print through these consoles.
"""

import functools
import logging
import sys
from typing import TYPE_CHECKING, NoReturn

from dkgi.types import SetupError

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 120
"""Columns of what goes into a pipe or a file, where no terminal says how wide it is."""


@functools.cache
def stderr() -> "Console":
    """The console for progress, notices and errors; the same object everywhere, so a live display stays whole."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


@functools.cache
def stdout() -> "Console":
    """The console for results. Without a terminal it writes plain text, `PIPED_WIDTH` columns wide."""
    from rich.console import Console

    # Python has no stdout object where the descriptor is closed.
    if sys.stdout is None:
        return Console(quiet=True)
    width = None if sys.stdout.isatty() else PIPED_WIDTH
    return Console(width=width, highlight=False, markup=False, emoji=False)


def fail(error: SetupError) -> NoReturn:
    """Say what the user can mend, one line a fault, and end the process with exit code 2."""
    for line in str(error).splitlines():
        print(f"dkgi: {line}", file=sys.stderr)
    sys.exit(2)


class LogHandler(logging.Handler):
    """Prints log records above a live display instead of through it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            stderr().print(self.format(record), soft_wrap=True)
        except Exception:
            self.handleError(record)
