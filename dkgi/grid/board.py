"""Live progress of a grid on stderr: a row a cell in a terminal, plain lines elsewhere.

    cell          state       done   H@1       $   tokens  failed      ETA
    full_dkgi     running    15/20  93.3  0.0750  412,003       1  0:01:10
    shell_only    running     3/20  66.7  0.0121   80,112          0:04:02
    no_edges      waiting     0/20     -       -

>>> with GridBoard("quickstart_ablation") as board:
...     board.show("full_dkgi", "running", tally)

Not covered: what it counts (tally.py); the comparison at the end (analysis/tables.py).
"""

import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self

from dkgi import console
from dkgi.board import LINES, QUIET_S, told
from dkgi.tally import Tally

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

_LABEL = 20
"""Columns that a label gets at least, where it is as long."""
_DISPENSABLE = ("tokens", "failed", "ETA")
"""What a narrow terminal does not show, in this order."""
_AROUND = 4
"""Lines of a terminal that are not for rows."""


class GridBoard:
    """`show` and `update` are for one thread; in a terminal a second one only reads, to redraw."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._rows: dict[str, tuple[str, Tally]] = {}
        self._printed: dict[str, tuple[int, float]] = {}
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if console.stderr().is_terminal:
            from rich.live import Live

            self._live = Live(get_renderable=self._frame, console=console.stderr(), refresh_per_second=2)
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, label: str, state: str, tally: Tally) -> None:
        """A cell is in another state now; without a terminal this prints a line, unless it only waits."""
        self._rows[label] = (state, tally)
        if self._live is None and state != "waiting":
            self._print(label)

    def update(self, label: str) -> None:
        """A cell's tally has counted another result; without a terminal this prints a line now and then."""
        _, tally = self._rows[label]
        done, at = self._printed.get(label, (0, 0.0))
        if self._live is None and (tally.done - done >= tally.total / LINES * 4 or time.monotonic() - at >= QUIET_S):
            self._print(label)

    def _print(self, label: str) -> None:
        state, tally = self._rows[label]
        self._printed[label] = (tally.done, time.monotonic())
        console.stderr().print(f"{label}: {state}, {told(tally)}", soft_wrap=True)

    def _frame(self) -> "Table":
        from rich.table import Table

        rows = [_row(label, state, tally) for label, (state, tally) in list(self._rows.items())]
        room = max(1, console.stderr().height - _AROUND)
        left_out = max(0, len(rows) - room)
        title = f"{self._name}, {left_out:,} cells not shown" if left_out else self._name
        # Those that run, where there is no room for all.
        rows = sorted(rows, key=lambda row: row["state"] != "running")[:room] if left_out else rows
        shown = _fitting(rows, console.stderr().width)
        table = Table(box=None, padding=(0, 2, 0, 0), title=title, title_justify="left")
        for heading in shown:
            left = heading in ("cell", "state")
            table.add_column(heading, justify="left" if left else "right", no_wrap=heading != "cell", overflow="fold")
        for row in rows:
            table.add_row(*(row[heading] for heading in shown))
        return table


def _row(label: str, state: str, tally: Tally) -> dict[str, str]:
    return {
        "cell": label,
        "state": state,
        "done": tally.progress,
        "H@1": tally.hits,
        "$": tally.dollars,
        "tokens": f"{tally.tokens:,}" if tally.tokens else "",
        "failed": f"{tally.failed:,}" if tally.failed else "",
        "ETA": (tally.eta if state == "running" else None) or "",
    }


def _fitting(rows: Sequence[Mapping[str, str]], width: int) -> list[str]:
    """The headings of what a terminal has room for: labels may be folded, figures may not."""
    widths = {name: max(len(name), *(len(row[name]) for row in rows)) for name in rows[0]} if rows else {}
    label = min(widths.get("cell", 0), _LABEL)
    for name in _DISPENSABLE:
        if sum(widths.values()) - widths.get("cell", 0) + label + 2 * len(widths) <= width:
            break
        widths.pop(name, None)
    return list(widths)
