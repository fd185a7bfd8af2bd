"""SIGTERM (`kill`, `docker stop`) and SIGHUP (a closed terminal) end a run as Ctrl-C does, with own exit codes.

>>> watch()
>>> exit_code(KeyboardInterrupt(signal.SIGTERM))
143

Not covered: what is done on the way out; whoever holds jails or files open closes them as for any exception.
"""

import signal
from types import FrameType
from typing import NoReturn


def watch() -> None:
    """From now on SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        # What is ignored stays so: under nohup a run outlives its terminal.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)


def exit_code(stop: KeyboardInterrupt) -> int:
    """128 + the signal's number. Ctrl-C raises without one: 130."""
    (number,) = stop.args or (signal.SIGINT,)
    return 128 + int(number)


def _interrupt(number: int, _: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt(number)
