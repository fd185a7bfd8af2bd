"""The one console for people: rich, on stderr, so that stdout stays clean data.

>>> console.stderr().print("20 queries to go", soft_wrap=True)

Lines are printed with `soft_wrap=True` wherever they may be piped: rich else breaks them at column 80.
Not covered: progress (board.py) and tables (analysis/tables.py), which print through these consoles.
"""

import functools
import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

from dkgi.types import SetupError

if TYPE_CHECKING:
    from rich.console import Console

PIPED_WIDTH = 120
"""Columns of what goes into a pipe or a file, where no terminal says how wide it is."""
TABLE_WIDTH = 80
"""Columns of stdout at least: a terminal that has fewer breaks the lines itself, and no figure is cut."""


@functools.cache
def stderr() -> "Console":
    """The console for progress, notices and errors; the same object everywhere, so a live display stays whole."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, emoji=False)


@functools.cache
def stdout() -> "Console":
    """The console for results, at least `TABLE_WIDTH` columns wide; without a terminal plain text in `PIPED_WIDTH`."""
    from rich.console import Console

    # Python has no stdout object where the descriptor is closed.
    if sys.stdout is None:
        return Console(quiet=True)
    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, TABLE_WIDTH) if sys.stdout.isatty() else PIPED_WIDTH
    return console


@contextmanager
def printing() -> Iterator[None]:
    """Raises SetupError where standard output cannot be written inside of it."""
    try:
        try:
            yield
        finally:
            if sys.stdout is not None:
                sys.stdout.flush()
    except OSError as error:
        # Hydra makes files as well, whose errors have a name, and some of its own errors count as the system's.
        if error.errno is None or error.filename is not None:
            raise
        # What waits in the buffer would fail once more at the end of the process.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SetupError(
            f"standard output cannot be written: {error.strerror}; "
            "send it elsewhere and run the same command again: nothing is lost"
        ) from None


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
