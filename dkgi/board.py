"""Live progress of one cell on stderr: a display in a terminal, plain lines elsewhere.

   hpo test, native, full_dkgi, heuristic
   ━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╺━━━━━━━━━━  15/20, ETA 0:01:10
   H@1 46.7   $0.0750   2 failed (time_limit 1, bad_answer 1)

>>> with Board("hpo test, native", total=20, earlier=already_scored) as board:
...     board.update(result, score)

Not covered: where the scores come from (collect.py) and the table at the end (analysis/tables.py).
"""

import math
import time
from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dkgi import console
from dkgi.analysis import tables
from dkgi.analysis.summary import outcome_class
from dkgi.types import QueryResult, Score

if TYPE_CHECKING:
    from rich.console import Group
    from rich.live import Live

LINES = 20
"""Plain lines that a whole run prints at least, if it is quick."""
QUIET_S = 30.0
"""Seconds after which the next result prints a line in any case."""


class Board:
    """Counts results and shows them. `earlier` are the results of previous sessions: counted, but not in the pace.

    `update` is for one thread; in a terminal a second one only reads, to redraw.
    """

    def __init__(self, label: str, total: int, earlier: Iterable[tuple[QueryResult, Score]] = ()) -> None:
        self.label = label
        self.total = total
        self._classes: Counter[str] = Counter()
        self._hits = 0.0
        self._dollars = 0.0
        self._priced = False
        for result, score in earlier:
            self._count(result, score)
        self._done_before = self._classes.total()
        self._started = time.monotonic()
        self._printed = (self._done_before, self._started)
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
        return self._classes.total()

    def update(self, result: QueryResult, score: Score) -> None:
        """Count one more result and, without a terminal, print a line when it is time for one."""
        self._count(result, score)
        if self._live is None:
            printed, at = self._printed
            if self.done - printed >= self.total / LINES or time.monotonic() - at >= QUIET_S:
                self._print()

    def _count(self, result: QueryResult, score: Score) -> None:
        self._classes[outcome_class(result)] += 1
        self._hits += score.hit_at_1
        if result.cost_usd is not None:
            self._priced = True
            self._dollars += result.cost_usd

    def _print(self) -> None:
        self._printed = (self.done, time.monotonic())
        line = f"{self.label}: {', '.join([self._progress(), *self._figures()])}"
        console.stderr().print(line, soft_wrap=True)

    def _progress(self) -> str:
        eta = self._eta()
        return f"{self.done:,}/{self.total:,}" + (f", ETA {eta}" if eta else "")

    def _figures(self) -> list[str]:
        classes = dict(self._classes)
        hits = tables.percent(self._hits / self.done if self.done else math.nan)
        figures = [f"H@1 {hits}", f"${tables.dollars(self._dollars)}" if self._priced else "$ -"]
        if failed := tables.failures(classes):
            figures.append(f"{self.done - classes.get('scored', 0):,} failed ({failed})")
        return figures

    def _eta(self) -> str | None:
        """Time to go at this session's pace, `1:02:03`; None before the first and after the last result."""
        fresh, left = self.done - self._done_before, self.total - self.done
        if not fresh or left <= 0:
            return None
        seconds = round((time.monotonic() - self._started) / fresh * left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"

    def _frame(self) -> "Group":
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        bar = Table.grid(padding=(0, 2))
        bar.add_row(ProgressBar(total=max(self.total, 1), completed=self.done, width=40), self._progress())
        return Group(self.label, bar, "   ".join(self._figures()))
