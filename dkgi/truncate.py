"""The part of a command's output that a model gets to read (paper, section 3).

>>> print(head_tail(Path("outputs/0003.txt"), "/scratch/full_outputs/0003.txt"))
0 HP:0000118
...
[... harness output limit: above are the first 900 lines (8412 bytes), below the last 900 lines (8702 bytes) of ...]
...
19077 HP:5200429

Not covered: replies of the `read` tool and the shortening of old history, which have limits of their own.
"""

from pathlib import Path
from typing import BinaryIO

from dkgi import paths

WHOLE_BYTES, WHOLE_LINES = 18_000, 1_800
PART_BYTES, PART_LINES = 9_000, 900
_BLOCK = 2**20


def head_tail(path: Path, shown_at: str) -> str:
    """The text in the file `path`, or its head and tail with a notice between that names the file `shown_at`.

    Limits count the file's bytes. A cut never splits a UTF-8 character; bytes that are not UTF-8 become U+FFFD, so the
    result has at most as many UTF-16 units as bytes were taken. Needs one pass and about 1 MiB for any size.
    """
    with path.open("rb") as file:
        data = file.read(WHOLE_BYTES + 1)
        if len(data) <= WHOLE_BYTES and _lines(data) <= WHOLE_LINES:
            return data.decode(errors="replace")
        file.seek(0)
        total_lines = _count_lines(file)
        total_bytes = file.tell()
        head = _head(file)
        tail = _tail(file, total_bytes)
    notice = (paths.data_dir("prompts") / "output_limit.txt").read_text(encoding="utf-8")
    filled = notice.format(
        head_lines=_lines(head),
        head_bytes=len(head),
        tail_lines=_lines(tail),
        tail_bytes=len(tail),
        total_lines=total_lines,
        total_bytes=total_bytes,
        missing_bytes=total_bytes - len(head) - len(tail),
        path=shown_at,
    )
    line_end = "" if head.endswith(b"\n") else "\n"
    return head.decode(errors="replace") + line_end + filled + tail.decode(errors="replace")


def _lines(data: bytes) -> int:
    """Lines, an unfinished last one included."""
    return data.count(b"\n") + (not data.endswith(b"\n") and data != b"")


def _count_lines(file: BinaryIO) -> int:
    lines, last = 0, b""
    while block := file.read(_BLOCK):
        lines += block.count(b"\n")
        last = block[-1:]
    return lines + (last not in (b"", b"\n"))


def _head(file: BinaryIO) -> bytes:
    file.seek(0)
    data = file.read(PART_BYTES + 3)
    start, _ = _character_at(data, PART_BYTES)
    part = data[:start]
    pieces = part.split(b"\n", PART_LINES)
    return part.removesuffix(pieces[PART_LINES]) if len(pieces) > PART_LINES else part


def _tail(file: BinaryIO, size: int) -> bytes:
    first = max(0, size - PART_BYTES - 3)
    file.seek(first)
    data = file.read(size - first)
    _, end = _character_at(data, max(0, len(data) - PART_BYTES))
    part = data[end:]
    pieces = part.removesuffix(b"\n").rsplit(b"\n", PART_LINES)
    return part[len(pieces[0]) + 1 :] if len(pieces) > PART_LINES else part


def _character_at(data: bytes, cut: int) -> tuple[int, int]:
    """Start and end of the character that a cut before byte `cut` would split; `cut` twice where it splits none."""
    for start in range(max(0, cut - 3), cut):
        for end in range(cut + 1, min(start + 4, len(data)) + 1):
            try:
                if len(data[start:end].decode()) == 1:
                    return start, end
            except UnicodeDecodeError:
                continue
    return cut, cut
