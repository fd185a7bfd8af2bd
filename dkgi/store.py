"""The folder of one cell: what was asked, what came of it, and every step on the way. The source of truth.

    cells/5d1f0c9a7e42/manifest.json
    cells/5d1f0c9a7e42/scores.jsonl                     {"number":17,"repeat":0,"hit_at_1":1.0,...}
    cells/5d1f0c9a7e42/queries/17/0/steps.jsonl         {"attempt":1,"step":{...}} ... {"attempt":1,"end":{...}}
    cells/5d1f0c9a7e42/queries/17/0/exchange.jsonl.zst  every request to a provider and its bill (exchange.py)
    cells/5d1f0c9a7e42/queries/17/0/result.json         written last: a query is finished when it exists

MLflow and every table are derived from it. A process may be killed at any moment: steps are appended and flushed as
they happen, so what a killed attempt spent is known to the next run.
A grid is a list of cells: grids/<name>/manifest.json.
Not covered: scores, which collect.py writes, and who may work on a cell (locks.py).
"""

import os
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time
from typing import Any, Self

import orjson
from pydantic import TypeAdapter

from dkgi import recording
from dkgi.files import cannot_write, dump_json, read_json, read_plain, write_atomically
from dkgi.types import Attempt, QueryResult, SetupError, Step, Usage

_RESULT = TypeAdapter(QueryResult)
_STEP = TypeAdapter(Step)
_ATTEMPT = TypeAdapter(Attempt)


@dataclass(frozen=True, slots=True)
class RecordedAttempt:
    """An attempt as the store has it. `end` is None where its process died; `billed` is then what its requests cost,
    or None where its model was none of a provider's.
    """

    number: int
    steps: tuple[Step, ...]
    end: Attempt | None
    billed: Usage | None = None

    @property
    def counts(self) -> bool:
        """Whether it is one of the query's tries; one that was cut off or put off for want of money is not."""
        return self.end is not None and self.end.stop != "budget"

    @property
    def usage(self) -> Usage:
        """What it spent. Without an end or a bill not complete, since a request may have been under way."""
        if self.end:
            return self.end.usage
        spent = sum((step.usage for step in self.steps if step.usage), Usage())
        return self.billed or replace(spent, complete=False)

    @property
    def wall_s(self) -> float:
        """Seconds it took; from its first to its last step where it was cut off."""
        return self.end.wall_s if self.end else self.steps[-1].time - self.steps[0].time if self.steps else 0.0


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell's folder."""

    folder: Path

    @property
    def id(self) -> str:
        return self.folder.name

    @property
    def manifest(self) -> dict[str, Any]:
        path = self.folder / "manifest.json"
        manifest = read_json(path)
        if not isinstance(manifest, dict):
            raise SetupError(f"{path}: damaged; remove it and the next run of this cell writes it again")
        return manifest

    def results(self) -> Iterator[QueryResult]:
        """All finished queries, by number and repeat."""
        for key in sorted(self._keys("result.json")):
            result = self.result(*key)
            if result:
                yield result

    def result(self, number: int, repeat: int) -> QueryResult | None:
        """The result of a finished query, or None."""
        path = self.query_folder(number, repeat) / "result.json"
        try:
            # Not pydantic's own reading, which takes integers that no figure can be made of.
            result = _RESULT.validate_python(orjson.loads(read_plain(path)))
            if (result.number, result.repeat) != (number, repeat):
                raise ValueError("the result of another query")
            return result
        except FileNotFoundError:
            return None
        except ValueError:
            raise SetupError(f"{path}: not a result; move the file away and the query runs again") from None

    def attempts(self, number: int, repeat: int) -> list[RecordedAttempt]:
        """All attempts at a query, oldest first. A line that a dying process left unfinished is passed over."""
        steps: dict[int, list[Step]] = {}
        ends: dict[int, Attempt] = {}
        path = self.query_folder(number, repeat) / "steps.jsonl"
        try:
            # Whatever follows the last newline was cut off in writing.
            for line in filter(None, read_plain(path).split(b"\n")[:-1]):
                record = orjson.loads(line)
                steps.setdefault(record["attempt"], [])
                if "end" in record:
                    ends[record["attempt"]] = _ATTEMPT.validate_python(record["end"])
                else:
                    steps[record["attempt"]].append(_STEP.validate_python(record["step"]))
        except FileNotFoundError:
            return []
        except (ValueError, KeyError, TypeError):
            raise SetupError(f"{path}: damaged; move it and result.json away and the query runs again") from None
        return [
            RecordedAttempt(n, tuple(found), ends.get(n), None if n in ends else _billed(path.parent, n))
            for n, found in sorted(steps.items())
        ]

    def steps(self, number: int, repeat: int) -> list[Step]:
        """The trajectory of the last attempt at a query."""
        attempts = self.attempts(number, repeat)
        return list(attempts[-1].steps) if attempts else []

    def spent(self) -> dict[tuple[int, int], Usage]:
        """What each query that was begun has spent in all its attempts, by number and repeat."""
        spent = {}
        for key in self._keys("steps.jsonl"):
            result = self.result(*key)
            # A killed run may have begun attempts that an older result does not know.
            if result and _last_attempt(self.query_folder(*key)) == len(result.stops) + result.interrupted:
                spent[key] = result.usage
            else:
                spent[key] = sum((attempt.usage for attempt in self.attempts(*key)), Usage())
        return spent

    def query_folder(self, number: int, repeat: int) -> Path:
        return self.folder / "queries" / str(number) / str(repeat)

    def write(self, result: QueryResult) -> None:
        """Record a finished query: the last word on it, and durable."""
        folder = self.query_folder(result.number, result.repeat)
        write_atomically(folder / "result.json", dump_json(result, orjson.OPT_APPEND_NEWLINE))

    def _keys(self, name: str) -> Iterator[tuple[int, int]]:
        for path in (self.folder / "queries").glob(f"*/*/{name}"):
            yield int(path.parent.parent.name), int(path.parent.name)


class Journal:
    """Appends the steps of one query as they happen. One thread at a time."""

    def __init__(self, cell: Cell, number: int, repeat: int) -> None:
        folder = cell.query_folder(number, repeat)
        folder.mkdir(parents=True, exist_ok=True)
        # Unbuffered: what a full disk refuses must not be tried again when the file is closed.
        self._file = (folder / "steps.jsonl").open("a+b", buffering=0)
        _cut_torn_line(self._file)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def step(self, attempt: int, step: Step) -> None:
        """Record a step. One that spent money is on disk before the next request can be sent."""
        self._append({"attempt": attempt, "step": asdict(replace(step, time=time()))}, durable=step.usage is not None)

    def end(self, attempt: int, end: Attempt) -> None:
        self._append({"attempt": attempt, "end": asdict(end)}, durable=True)

    def _append(self, record: Mapping[str, Any], *, durable: bool) -> None:
        try:
            left = memoryview(dump_json(_without_empty(record), orjson.OPT_APPEND_NEWLINE))
            while left:
                left = left[self._file.write(left) :]
            if durable:
                os.fdatasync(self._file.fileno())
        except OSError as error:
            raise cannot_write(error, Path(self._file.name)) from error


def open_cell(runs: Path, cell_id: str, manifest: Mapping[str, Any]) -> Cell:
    """The folder of a cell, made where there is none. Raises SetupError where it cannot be written."""
    cell = Cell(runs / "cells" / cell_id)
    try:
        (cell.folder / "queries").mkdir(parents=True, exist_ok=True)
        if not (cell.folder / "manifest.json").exists():
            write_atomically(cell.folder / "manifest.json", orjson.dumps(dict(manifest), option=orjson.OPT_INDENT_2))
    except OSError as error:
        raise cannot_write(error, cell.folder) from error
    return cell


def cells(runs: Path) -> list[Cell]:
    """All cells of a runs folder, by id."""
    return [Cell(path.parent) for path in sorted((runs / "cells").glob("*/manifest.json"))]


def find_cells(runs: Path, names: list[str]) -> list[Cell]:
    """The cells whose ids begin with one of `names`, or of the grid that is called so; all cells where none is given.

    In the order of `names`, then of ids or of the grid; each cell once. SetupError for a name that nothing has.
    """
    if "" in names:
        raise SetupError("CELL: an empty text names no cell; leave it out and all cells are meant")
    found = cells(runs)
    if not names:
        return found
    meant: dict[str, Cell] = {}
    for name in names:
        so_named = [cell for cell in found if cell.id.startswith(name)] or _cells_of_grid(runs, name, found)
        if not so_named:
            raise SetupError(f"{name}: no cell in {runs / 'cells'} has an id that begins so, and no grid is called so")
        meant |= {cell.id: cell for cell in so_named}
    return list(meant.values())


def _cells_of_grid(runs: Path, name: str, found: list[Cell]) -> list[Cell]:
    """The cells of a grid that have been begun, in its order; none where there is no such grid."""
    # What lies there is compared with the name, not opened by it: a name could hold a path.
    for path in (runs / "grids").glob("*/manifest.json"):
        if path.parent.name == name:
            begun = {cell.id: cell for cell in found}
            grid = read_json(path)
            try:
                ids = [cell["id"] for cell in grid["cells"]]
            except (KeyError, TypeError):
                raise SetupError(f"{path}: damaged; remove it and the next run of this grid writes it again") from None
            if not begun.keys() & set(ids):
                raise SetupError(
                    f"{name}: no cell of this grid has been begun; the command that made it goes on with it"
                )
            return [begun[cell] for cell in ids if cell in begun]
    return []


def _billed(folder: Path, attempt: int) -> Usage | None:
    """What the requests of an attempt that was cut off cost; None where none is recorded."""
    if not (folder / recording.NAME).exists():
        return None
    return recording.usage_of_attempt(folder, attempt)


def _last_attempt(folder: Path) -> int:
    """Number of the attempt that the last whole line of the steps speaks of; 0 where there is none."""
    lines = read_plain(folder / "steps.jsonl").rsplit(b"\n", 2)
    number: int = orjson.loads(lines[-2])["attempt"] if len(lines) > 1 else 0
    return number


def _cut_torn_line(file: Any) -> None:
    """End the file at its last newline, so that the next record starts on a line of its own."""
    file.seek(0)
    whole = file.read()
    file.truncate(whole.rfind(b"\n") + 1)
    file.seek(0, os.SEEK_END)


def _without_empty(record: Mapping[str, Any]) -> dict[str, Any]:
    """A step without the fields that it does not use."""
    return {
        key: {name: inner for name, inner in value.items() if inner is not None} if isinstance(value, dict) else value
        for key, value in record.items()
    }
