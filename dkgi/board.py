"""Live progress of one cell on stderr: a display in a terminal, plain lines elsewhere.

   hpo test, native, full_dkgi, heuristic
   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━  15/20, ETA 0:01:10
   H@1 46.7   $0.0750   2 failed (time_limit 1, bad_answer 1)

>>> with Board("hpo test, native", total=20, earlier=already_scored) as board:
...     board.update(result, score)

Not covered: where the scores come from (collect.py) and the table at the end (analysis/tables.py).
"""

import time
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dkgi import console
from dkgi.tally import Tally
from dkgi.types import QueryResult, Score

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

LINES = 20
"""Plain lines that a whole run prints at least, if it is quick."""
QUIET_S = 30.0
"""Seconds after which the next result prints a line in any case."""


class Board:
    """Shows the results of one cell as they come. `earlier` are those of previous sessions.

    `update` is for one thread; in a terminal a second one only reads, to redraw.
    """

    def __init__(self, label: str, total: int, earlier: Iterable[tuple[QueryResult, Score]] = ()) -> None:
        self.label = label
        self._tally = Tally(total, earlier)
        self._printed = (self.done, time.monotonic())
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if console.stderr().is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._frame, console=console.stderr(), refresh_per_second=4)
            self._live.start()
        else:
            self._print()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()
        elif self._printed[0] < self.done:
            self._print()

    @property
    def done(self) -> int:
        return self._tally.done

    @property
    def total(self) -> int:
        return self._tally.total

    def update(self, result: QueryResult, score: Score) -> None:
        """Count one more result and, without a terminal, print a line when it is time for one."""
        self._tally.count(result, score)
        if self._live is None:
            printed, at = self._printed
            if self.done - printed >= self.total / LINES or time.monotonic() - at >= QUIET_S:
                self._print()

    def _print(self) -> None:
        self._printed = (self.done, time.monotonic())
        console.stderr().print(f"{self.label}: {told(self._tally)}", soft_wrap=True)

    def _frame(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=max(self.total, 1), completed=self.done, width=40), _progress(self._tally))
        return Group(self.label, bar, "   ".join(_figures(self._tally)))


def told(tally: Tally) -> str:
    """`15/20, ETA 0:01:10, H@1 46.7, $0.0750, 2 failed (time_limit 1, bad_answer 1)`."""
    return ", ".join([_progress(tally), *_figures(tally)])


def _progress(tally: Tally) -> str:
    return f"{tally.progress}, ETA {tally.eta}" if tally.eta else tally.progress


def _figures(tally: Tally) -> list[str]:
    dollars = f"${tally.dollars}" if tally.dollars != "-" else "$ -"
    failed = [f"{tally.failed:,} failed ({tally.failures})"] if tally.failed else []
    return [f"H@1 {tally.hits}", dollars, *failed]
