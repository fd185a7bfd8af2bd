"""The raw record of what was sent to a provider and what came back: exchange.jsonl.zst in a query's folder.

>>> [record.status for record in read_exchange(cell.query_folder(17, 0))]
[429, 200, 200]

One zstd frame before each sending, with the bound that is held for it, and one after it, with the usage: what a killed
process had under way is known. A power cut can take the last frames; what a reply cost is in steps.jsonl by then.
Of a body only what differs from the attempt's last one is kept, so that a file does not grow with the square of the
turns. Headers of requests, which hold the key, are not recorded.
Not covered: steps (store.py), which people read.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from time import time
from typing import Any

import orjson
import zstandard

from dkgi.files import cannot_write, dump_json, open_to_append, read_plain
from dkgi.types import SetupError, Usage

NAME = "exchange.jsonl.zst"
_LEVEL = 3
_PIECE = 65_536


@dataclass(frozen=True, slots=True)
class Record:
    """One sending. `status`, `reply` and `usage` are None where no answer was recorded.

    attempt, request, number  counted from 1: the calls of an attempt, and the sendings of one call
    body     the whole JSON body that was sent
    bound    what was held for it
    reply    raw text
    kind     class of the failure (exchange.py), or empty; `error` is what was said
    """

    attempt: int
    request: int
    number: int
    path: str
    time: float
    body: dict[str, Any]
    bound: Usage
    status: int | None
    reply: str | None
    usage: Usage | None
    kind: str
    error: str


class Recording:
    """Appends what one attempt sends and gets. One thread at a time. Raises SetupError where the disk refuses."""

    def __init__(self, folder: Path, attempt: int, *, history: str) -> None:
        self._attempt = attempt
        self._history = history
        self._last: Mapping[str, Any] = {}
        self._path = folder / NAME
        with self._open() as file:
            _cut_torn_frame(file)

    def sent(self, request: int, number: int, path: str, body: Mapping[str, Any], bound: Usage) -> None:
        """Record a request that is about to be sent."""
        frame = {"attempt": self._attempt, "request": request, "number": number, "time": time(), "path": path}
        sent = _difference(body, self._last, self._history)
        self._append(frame | {"sent": sent, "bound": asdict(bound)})
        self._last = body

    def got(
        self, request: int, number: int, *, status: int | None, reply: bytes | None, usage: Usage, kind: str, error: str
    ) -> None:
        """Record what came of it."""
        frame = {"attempt": self._attempt, "request": request, "number": number, "time": time(), "status": status}
        # Bytes that are no UTF-8 stay readable as escapes.
        text = None if reply is None else reply.decode(errors="backslashreplace")
        self._append(frame | {"reply": text, "usage": asdict(usage), "kind": kind, "error": error})

    def _append(self, frame: Mapping[str, Any]) -> None:
        left = memoryview(zstandard.ZstdCompressor(level=_LEVEL).compress(dump_json(frame, orjson.OPT_APPEND_NEWLINE)))
        with self._open() as file:
            while left:
                left = left[file.write(left) :]

    @contextmanager
    def _open(self) -> Iterator[Any]:
        """The file, opened for each frame: nobody has to close a recording."""
        try:
            # Unbuffered: what a full disk refuses must not be tried again when the file is closed.
            with open_to_append(self._path, buffering=0) as file:
                yield file
        except OSError as error:
            raise cannot_write(error, self._path) from error


def read_exchange(folder: Path) -> list[Record]:
    """All sendings of a query, oldest first; none where there is no file. A torn last frame is passed over."""
    records: dict[tuple[int, int, int], Record] = {}
    bodies: dict[int, dict[str, Any]] = {}
    path = folder / NAME
    try:
        for frame in _frames(path):
            attempt = frame["attempt"]
            key = (attempt, frame["request"], frame["number"])
            if "sent" in frame:
                body = bodies[attempt] = _applied(frame["sent"], bodies.get(attempt, {}))
                bound = Usage(**frame["bound"])
                records[key] = Record(*key, frame["path"], frame["time"], body, bound, None, None, None, "", "")
            else:
                told = {name: frame[name] for name in ("status", "reply", "kind", "error")}
                records[key] = replace(records[key], usage=Usage(**frame["usage"]), **told)
    except (ValueError, KeyError, TypeError):
        raise SetupError(f"{path}: damaged; move it and result.json away and the query runs again") from None
    return list(records.values())


def usage_of_attempt(folder: Path, attempt: int) -> Usage:
    """What an attempt used by its records: every sending counts, one without an answer at its bound, not `complete`."""
    total = Usage()
    for record in read_exchange(folder):
        if record.attempt == attempt:
            total += record.usage or replace(record.bound, complete=False)
    return total


# ------------------------------------------------------------------- bodies, as differences


def split_body(body: Mapping[str, Any], history: str) -> tuple[list[Any], dict[str, Any]]:
    """The items of a body's history, and all else; a history that is no list is part of the rest."""
    items = body.get(history)
    if not isinstance(items, list):
        return [], dict(body)
    return items, {key: value for key, value in body.items() if key != history}


def _difference(body: Mapping[str, Any], last: Mapping[str, Any], history: str) -> dict[str, Any]:
    """What of a body is not in the last one: items of the history by their place, the rest only where it changed."""
    (items, rest), (items_before, rest_before) = split_body(body, history), split_body(last, history)
    new = {str(place): item for place, item in enumerate(items) if items_before[place : place + 1] != [item]}
    return {"history": history, "items": len(items), "new": new} | ({} if rest == rest_before else {"rest": rest})


def _applied(difference: Mapping[str, Any], last: Mapping[str, Any]) -> dict[str, Any]:
    history, new = difference["history"], difference["new"]
    before, rest_before = split_body(last, history)
    items = [new[str(place)] if str(place) in new else before[place] for place in range(difference["items"])]
    rest: dict[str, Any] = difference.get("rest", rest_before)
    return {history: items} | rest


# ------------------------------------------------------------------- frames


def _frames(path: Path) -> Iterator[dict[str, Any]]:
    try:
        content = read_plain(path)
    except FileNotFoundError:
        return
    for line, _ in _whole_frames(content):
        yield orjson.loads(line)


def _whole_frames(content: bytes) -> Iterator[tuple[bytes, int]]:
    """Each frame that was written to its end, decompressed, and the place where it ends."""
    view, start = memoryview(content), 0
    while start < len(view):
        frame = zstandard.ZstdDecompressor().decompressobj()
        line, end = bytearray(), start
        try:
            while not frame.eof and end < len(view):
                line += frame.decompress(view[end : end + _PIECE])
                end += _PIECE
        except zstandard.ZstdError:
            return
        if not frame.eof:
            return
        start = min(end, len(view)) - len(frame.unused_data)
        yield bytes(line), start


def _cut_torn_frame(file: Any) -> None:
    """End the file with its last whole frame, so that the next one can be found."""
    file.seek(0)
    whole = file.read()
    end = 0
    for _, end in _whole_frames(whole):  # noqa: B007
        pass
    file.truncate(end)
    file.seek(0, os.SEEK_END)
