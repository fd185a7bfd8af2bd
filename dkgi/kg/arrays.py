"""Arrays and texts that lie in files and are mapped into memory, so that all threads and processes share one copy.

>>> links = GroupWriter(folder, "links", {"other": np.int32})              # doctest: +SKIP
>>> links.add(np.array([0, 0, 2]), np.array([5, 7, 1]))                    # doctest: +SKIP
>>> links.add(np.array([0, 1]), np.array([9, 4]))                          # doctest: +SKIP
>>> links.write(groups=3)                                                  # doctest: +SKIP
>>> load(folder, "links.starts"), load(folder, "links.other")              # doctest: +SKIP
(array([0, 3, 4, 5]), array([5, 7, 9, 4, 1], dtype=int32))

Not covered: what is in them (bm25.py, adjacency.py), and whether the files are whole (index.py).
"""

import mmap
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


def save(folder: Path, name: str, values: Array) -> None:
    np.save(folder / f"{name}.npy", values, allow_pickle=False)


def load(folder: Path, name: str) -> Array:
    """The array as it lies on disk, read-only; pages come in when they are used."""
    # A plain array over the map: operations on the subclass memmap cost several times as much for short slices.
    return np.asarray(np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False))


def starts_of(counts: Array) -> Array:
    """[n + 1] int64: where each group starts, and the end of the last."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(counts, dtype=np.int64)])


def save_texts(folder: Path, name: str, texts: Iterable[bytes]) -> None:
    lengths = array("q")
    with (folder / f"{name}.bin").open("wb") as file:
        for text in texts:
            file.write(text)
            lengths.append(len(text))
    save(folder, f"{name}.starts", starts_of(np.frombuffer(lengths, dtype=np.int64)))


class Texts(Sequence[bytes]):
    """Texts in one mapped file; sorted ones can be searched with `bisect`, without a dictionary in every process."""

    def __init__(self, folder: Path, name: str) -> None:
        self._starts = load(folder, f"{name}.starts")
        with (folder / f"{name}.bin").open("rb") as file:
            # An empty file cannot be mapped.
            self._bytes = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) if self._starts[-1] else b""

    def __len__(self) -> int:
        return len(self._starts) - 1

    @overload
    def __getitem__(self, place: int) -> bytes: ...
    @overload
    def __getitem__(self, place: slice) -> list[bytes]: ...
    def __getitem__(self, place: int | slice) -> bytes | list[bytes]:
        if isinstance(place, slice):
            return self.take(np.arange(len(self))[place])
        return self._bytes[self._starts[place] : self._starts[place + 1]]

    def take(self, places: Array) -> list[bytes]:
        starts, ends = self._starts[places].tolist(), self._starts[places + 1].tolist()
        return [self._bytes[start:end] for start, end in zip(starts, ends, strict=True)]


class GroupWriter:
    """Rows that arrive in runs, each sorted by group, laid out group after group; within one, in order of arrival.

    Runs wait in a file in `folder` until `write`, so memory holds one run at a time.
    """

    def __init__(self, folder: Path, name: str, columns: Mapping[str, type[np.generic]]) -> None:
        self._folder, self._name, self._columns = folder, name, columns
        self._waiting = folder / f"{name}.waiting"
        self._waiting.touch()

    def add(self, groups: Array, *columns: Array) -> None:
        """`groups` [rows], sorted; each column [rows]."""
        firsts = run_starts(groups)
        with self._waiting.open("ab") as file:
            np.save(file, groups[firsts])
            np.save(file, np.diff(firsts, append=len(groups)))
            for values, dtype in zip(columns, self._columns.values(), strict=True):
                np.save(file, values.astype(dtype))

    def write(self, groups: int, order: Array | None = None) -> None:
        """Write `<name>.starts` and a file a column; `order` [groups] names the groups in the order wanted on disk."""
        sizes = np.zeros(groups, dtype=np.int64)
        for present, counts, _ in self._read():
            sizes[present] += counts
        order = np.arange(groups) if order is None else order
        starts = starts_of(sizes[order])
        save(self._folder, f"{self._name}.starts", starts)
        place = np.empty(groups, dtype=np.int64)
        place[order] = starts[:-1]
        out = [self._create(column, dtype, int(starts[-1])) for column, dtype in self._columns.items()]
        for present, counts, columns in self._read():
            shift = place[present] - starts_of(counts)[:-1]
            target = np.repeat(shift, counts) + np.arange(int(counts.sum()))
            for whole, values in zip(out, columns, strict=True):
                whole[target] = values
            place[present] += counts
        self._waiting.unlink()

    def _create(self, column: str, dtype: type[np.generic], rows: int) -> Array:
        path = self._folder / f"{self._name}.{column}.npy"
        if not rows:
            save(self._folder, f"{self._name}.{column}", np.empty(0, dtype=dtype))
            return np.empty(0, dtype=dtype)
        return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=(rows,))

    def _read(self) -> Iterator[tuple[Array, Array, list[Array]]]:
        with self._waiting.open("rb") as file:
            while file.peek(1):
                yield np.load(file), np.load(file), [np.load(file) for _ in self._columns]


def run_starts(values: Array) -> Array:
    """Places where a sorted array has a new value."""
    return np.flatnonzero(np.diff(values, prepend=values[:1] - 1))
