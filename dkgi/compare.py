"""Compare finished cells question by question: `python -m dkgi.compare CELL CELL [CELL ...] [--markdown FILE]`.

    $ python -m dkgi.compare 84f7 120f
    ...
    no_edges minus full_dkgi, 100 questions
      -83.0 (-90.0 to -75.0)  -64.2 (-73.2 to -54.8)  -77.2 (-83.7 to -70.0)
     p <0.0001, Holm <0.0001   p 0.0002, Holm 0.0002   p 0.0002, Holm 0.0002
              alone 0 and 83

CELL is the beginning of a cell's id, or the name of a grid: all of its cells, in its order. Cells are set against the
first one, so `python -m dkgi.compare 84f7 my_grid` sets a grid's cells against one of its own, or against another.
Not covered: the statistics (analysis/comparison.py).
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from dkgi import console, signals
from dkgi.analysis import tables
from dkgi.analysis.comparison import compare
from dkgi.analysis.labels import label_cells
from dkgi.analysis.markdown import markdown
from dkgi.analysis.summary import scored_results
from dkgi.files import write_atomically
from dkgi.paths import runs_dir
from dkgi.store import Cell, find_cells
from dkgi.types import SetupError


def named(names: Sequence[str], runs: Path) -> list[Cell]:
    """The cells of the command line, each once, in its order. Raises SetupError where a name is not clear."""
    cells: dict[str, Cell] = {}
    for name in names:
        found = find_cells(runs, [name])
        begun = [cell.id for cell in found if cell.id.startswith(name)]
        if len(begun) == len(found) > 1:
            raise SetupError(f"{name}: several cells have ids that begin so, {', '.join(begun)}; say more of one")
        cells |= {cell.id: cell for cell in found}
    if len(cells) < 2:
        raise SetupError("CELL: name two or more different cells, or a grid of as many")
    return list(cells.values())


def labels(cells: Sequence[Cell]) -> list[str]:
    """What tells each cell from the others."""
    manifests = [cell.manifest for cell in cells]
    return label_cells(
        [each["axes"] for each in manifests], [each["config"] for each in manifests], [c.id for c in cells]
    )


@signals.watched()
def main() -> None:
    """Run the command line of this process."""
    parser = argparse.ArgumentParser(prog="python -m dkgi.compare", description="Compare cells question by question.")
    parser.add_argument(
        "cells",
        nargs="+",
        metavar="CELL",
        help="the beginning of a cell's id, or a grid's name; the first is the measure",
    )
    parser.add_argument("--markdown", metavar="FILE", help="write Markdown as well; - for standard output alone")
    arguments = parser.parse_args()
    try:
        cells = named(arguments.cells, runs_dir())
        compared = compare(labels(cells), [scored_results(cell) for cell in cells])
        if arguments.markdown != "-":
            tables.show(compared)
        if arguments.markdown is not None:
            _write(arguments.markdown, markdown(compared))
    except SetupError as error:
        console.fail(error)


def _write(place: str, text: str) -> None:
    if place == "-":
        with console.printing():
            sys.stdout.write(text)
        return
    if Path(place).is_dir():
        raise SetupError(f"--markdown {place}: a folder; name a file")
    try:
        write_atomically(Path(place), text.encode())
    except OSError as error:
        raise SetupError(f"--markdown {place}: {error.strerror}; name a file that can be written") from None


if __name__ == "__main__":
    main()
