"""What is known of a cell while it runs: how many queries are done, how well and for how much, and how long it takes.

>>> tally = Tally(total=20)
>>> tally.count(result, score)
>>> tally.progress, tally.hits
('1/20', '100.0')

Not covered: how it is shown (board.py, grid/board.py).
"""

import math
import time
from collections import Counter
from collections.abc import Iterable

from dkgi.analysis import tables
from dkgi.analysis.summary import outcome_class
from dkgi.types import QueryResult, Score


class Tally:
    """Counts the results of one cell. `earlier` are those of previous sessions: counted, but not in the pace."""

    def __init__(self, total: int, earlier: Iterable[tuple[QueryResult, Score]] = ()) -> None:
        self.total = total
        self.tokens = 0
        self._classes: Counter[str] = Counter()
        self._hits = 0.0
        self._dollars = 0.0
        self._priced = False
        for result, score in earlier:
            self.count(result, score)
        self._done_before = self.done
        self._started = time.monotonic()

    def count(self, result: QueryResult, score: Score) -> None:
        self._classes[outcome_class(result)] += 1
        self._hits += score.hit_at_1
        self.tokens += result.usage.input_tokens + result.usage.output
        if result.cost_usd is not None:
            self._priced = True
            self._dollars += result.cost_usd

    @property
    def done(self) -> int:
        return self._classes.total()

    @property
    def progress(self) -> str:
        return f"{self.done:,}/{self.total:,}"

    @property
    def hits(self) -> str:
        """Hit@1 so far, in percent."""
        return tables.percent(self._hits / self.done if self.done else math.nan)

    @property
    def dollars(self) -> str:
        return tables.dollars(self._dollars if self._priced else None)

    @property
    def failed(self) -> int:
        return self.done - self._classes.get("scored", 0)

    @property
    def failures(self) -> str:
        """`time_limit 1, bad_answer 1`; empty where there are none."""
        return tables.failures(dict(self._classes))

    @property
    def eta(self) -> str | None:
        """Time to go at this session's pace, `1:02:03`; None before the first and after the last result."""
        fresh, left = self.done - self._done_before, self.total - self.done
        if not fresh or left <= 0:
            return None
        seconds = round((time.monotonic() - self._started) / fresh * left)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02}"
