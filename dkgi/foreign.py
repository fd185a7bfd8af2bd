"""Reads a runs folder that came from elsewhere: plain files and folders alone, and nothing outside of it.

>>> with ForeignRuns(Path("/data/machine2")) as runs:
...     runs.cells()
...     [found.number for found in runs.queries("5d1f0c9a7e42")]
['5d1f0c9a7e42']
[3, 17, 20]

Whoever sent it could have put a link, a pipe or a device in the place of a file: the kernel refuses links on the way
(jail/beneath.py), the rest is told. It is only read, so it may be on a read-only disk.
Not covered: whether what it says is true; a folder that was made up by hand can hold any result.
"""

import hashlib
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import orjson
from pydantic import TypeAdapter

from dkgi.analysis.summary import ScoreKey, parse_scores
from dkgi.jail.beneath import open_beneath
from dkgi.types import QueryResult, Score, SetupError

_RESULT = TypeAdapter(QueryResult)
_CELL_ID = re.compile(r"[0-9a-f]{1,64}")
_NUMBER = re.compile(r"0|[1-9][0-9]{0,17}")
_SCORES = re.compile(r"scores(\.\d+-\d+)?\.jsonl")
_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class ForeignQuery:
    """One query's folder, `path` below the runs folder. `result` is None, and `digest` empty, where it is only begun."""

    path: str
    number: int
    repeat: int
    result: QueryResult | None
    digest: str


class ForeignRuns:
    """A runs folder of another machine. Methods raise SetupError, naming the path, for all that is not plain there."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        try:
            self._top = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise SetupError(f"{folder}: {error.strerror}; name a runs folder, the one that holds `cells`") from None
        if "cells" not in self._names("."):
            self.close()
            raise SetupError(f"{folder}: holds no folder `cells`; name a runs folder")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        os.close(self._top)

    def cells(self) -> list[str]:
        """The ids of its cells. One without a manifest was never begun."""
        return [
            name
            for name in self._names("cells")
            if _CELL_ID.fullmatch(name) and "manifest.json" in self._names(f"cells/{name}")
        ]

    def manifest(self, cell: str) -> dict[str, Any]:
        """What a cell is. Raises SetupError also where it was stopped for safety: nothing of such a cell counts."""
        folder = f"cells/{cell}"
        if "unsafe.txt" in self._names(folder):
            path = self.folder / folder
            raise SetupError(
                f"{path / 'unsafe.txt'}: this cell was stopped for safety, nothing of it counts; remove it"
            )
        path = self.folder / folder / "manifest.json"
        try:
            manifest = orjson.loads(self._read(f"{folder}/manifest.json"))
            if all(isinstance(manifest[key], dict) for key in ("axes", "config", "digests")) and all(
                isinstance(manifest[key], str) for key in ("dkgi_version", "git_commit")
            ):
                return dict(manifest)
        except (ValueError, KeyError, TypeError):
            pass
        raise SetupError(f"{path}: damaged; copy it again")

    def queries(self, cell: str) -> Iterator[ForeignQuery]:
        """The queries that a cell has begun or finished."""
        top = f"cells/{cell}/queries"
        for number in filter(_NUMBER.fullmatch, self._names(top)):
            for repeat in filter(_NUMBER.fullmatch, self._names(f"{top}/{number}")):
                yield self._query(cell, f"{top}/{number}/{repeat}", int(number), int(repeat))

    def _query(self, cell: str, path: str, number: int, repeat: int) -> ForeignQuery:
        if "result.json" not in self._names(path):
            return ForeignQuery(path, number, repeat, None, "")
        content = self._read(f"{path}/result.json")
        try:
            result = _RESULT.validate_json(content)
        except ValueError:
            result = None
        if result is None or (result.cell, result.number, result.repeat) != (cell, number, repeat):
            raise SetupError(
                f"{self.folder / path / 'result.json'}: not the result of this query; copy the folder again"
            )
        return ForeignQuery(path, number, repeat, result, hashlib.sha256(content).hexdigest())

    def scores(self, cell: str) -> dict[ScoreKey, Score]:
        """All scores of a cell."""
        found: dict[ScoreKey, Score] = {}
        for name in filter(_SCORES.fullmatch, self._names(f"cells/{cell}")):
            path = f"cells/{cell}/{name}"
            found |= parse_scores(self._read(path), self.folder / path)
        return found

    def copy(self, query: ForeignQuery, target: Path) -> None:
        """Copy all files of a query's folder into the new folder `target`. OSError is one of writing."""
        target.mkdir(parents=True)
        for name in self._names(query.path):
            descriptor = self._open(f"{query.path}/{name}", os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY)
            with os.fdopen(descriptor, "rb") as source, (target / name).open("xb") as copy:
                while piece := source.read(_PIECE):
                    copy.write(piece)

    def _read(self, path: str) -> bytes:
        with os.fdopen(self._open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY), "rb") as file:
            return file.read()

    def _names(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        descriptor = self._open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with os.scandir(descriptor) as entries:
                return sorted(entry.name for entry in entries)
        finally:
            os.close(descriptor)

    def _open(self, path: str, flags: int) -> int:
        try:
            descriptor = open_beneath(self._top, path, flags)
        except OSError as error:
            raise SetupError(
                f"{self.folder / path}: no plain file or folder ({error.strerror}); copy it again"
            ) from None
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISDIR(mode) if flags & os.O_DIRECTORY else stat.S_ISREG(mode)):
            os.close(descriptor)
            raise SetupError(f"{self.folder / path}: no plain file or folder; copy it again")
        return descriptor
