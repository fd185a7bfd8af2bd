import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from dkgi.truncate import PART_BYTES, PART_LINES, WHOLE_BYTES, WHOLE_LINES, head_tail

_NOTICE = "[... harness output limit:"
_SHOWN_AT = "/scratch/full_outputs/0003.txt"


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("outputs") / "0003.txt"


def view(file: Path, data: bytes) -> str:
    file.write_bytes(data)
    return head_tail(file, _SHOWN_AT)


def parts(text: str) -> tuple[str, str, str]:
    """Head, notice and tail of a view that was cut."""
    assert text.count(_NOTICE) == 1
    head, _, rest = text.partition(_NOTICE)
    notice, _, tail = rest.partition("\n")
    return head, _NOTICE + notice, tail


@pytest.mark.parametrize(
    "data",
    [b"", b"x", b"x\n" * WHOLE_LINES, b"x" * WHOLE_BYTES, b"x\n" * (WHOLE_LINES - 1) + b"y", b"\n", b"a\r\nb\0c"],
    ids=["empty", "one byte", "most lines", "most bytes", "unfinished last line", "newline", "control characters"],
)
def test_output_up_to_both_limits_is_unchanged(file: Path, data: bytes) -> None:
    assert view(file, data) == data.decode()


@pytest.mark.parametrize("data", [b"x" * (WHOLE_BYTES + 1), b"\n" * (WHOLE_LINES + 1), b"x\n" * WHOLE_LINES + b"y"])
def test_one_byte_or_line_more_is_cut(file: Path, data: bytes) -> None:
    assert _NOTICE in view(file, data)


def test_a_cut_view_reads_as_written_down_here(file: Path) -> None:
    data = b"".join(b"%d row\n" % number for number in range(10_000))
    head, notice, tail = parts(view(file, data))
    assert head == "".join(f"{number} row\n" for number in range(900))
    assert tail == "".join(f"{number} row\n" for number in range(9_100, 10_000))
    assert notice == (
        "[... harness output limit: above are the first 900 lines (7090 bytes), below the last 900 lines (8100 bytes) of "
        "10000 lines (88890 bytes); 73700 bytes are missing between them. The complete output is in "
        "/scratch/full_outputs/0003.txt; rg, sed -n 'FROM,TOp', head -c and tail -c can read it ...]"
    )


def test_bytes_limit_cuts_inside_a_line_and_keeps_the_notice_on_its_own(file: Path) -> None:
    text = view(file, b"a" * 10_000 + b"b" * 10_000)
    assert text.startswith("a" * PART_BYTES + "\n" + _NOTICE)
    assert text.endswith("...]\n" + "b" * PART_BYTES)
    assert (
        "first 1 lines (9000 bytes), below the last 1 lines (9000 bytes) of 1 lines (20000 bytes); 2000 bytes" in text
    )


@pytest.mark.parametrize("shift", range(4))
def test_no_character_is_split(file: Path, shift: int) -> None:
    text = view(file, b"x" * shift + "😀".encode() * 6_000 + b"y" * shift)
    assert "\ufffd" not in text
    head, _, tail = parts(text)
    assert PART_BYTES - 3 <= len(head.removesuffix("\n").encode()) <= PART_BYTES
    assert PART_BYTES - 3 <= len(tail.encode()) <= PART_BYTES


def test_bytes_that_are_not_utf8_are_replaced_and_no_more_than_the_limit(file: Path) -> None:
    head, _, tail = parts(view(file, b"\xff" * 20_000))
    assert head == "\ufffd" * PART_BYTES + "\n"
    assert tail == "\ufffd" * PART_BYTES


_pieces = st.sampled_from(
    [b"\n", b"a", b"\n" * 700, b"word " * 300, "é€😀".encode(), b"\xff\xe2\x82", b"\xf0\x9f", b"x" * 8_999]
)


@settings(max_examples=300, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
@given(data=st.lists(_pieces, max_size=40).map(b"".join))
@example(data=b"\n" * 8_999 + b"\xe2\x82\xac" * 4_000)
def test_every_view_is_head_notice_tail_of_the_file(file: Path, data: bytes) -> None:
    text = view(file, data)
    lines = data.count(b"\n") + (data != b"" and not data.endswith(b"\n"))
    if len(data) <= WHOLE_BYTES and lines <= WHOLE_LINES:
        assert text == data.decode(errors="replace")
        return
    head, notice, tail = parts(text)
    numbers = [int(word) for word in "".join(c if c.isdigit() else " " for c in notice.split("complete")[0]).split()]
    head_lines, head_bytes, tail_lines, tail_bytes, total_lines, total_bytes, missing = numbers
    assert (total_lines, total_bytes) == (lines, len(data))
    assert missing == total_bytes - head_bytes - tail_bytes >= 0
    assert head.removesuffix("\n") == data[:head_bytes].decode(errors="replace").removesuffix("\n")
    assert tail == data[total_bytes - tail_bytes :].decode(errors="replace")
    for part, part_lines, part_bytes in (
        (data[:head_bytes], head_lines, head_bytes),
        (data[-tail_bytes:], tail_lines, tail_bytes),
    ):
        assert part_lines == part.count(b"\n") + (not part.endswith(b"\n"))
        assert part_lines == PART_LINES or PART_BYTES - 3 <= part_bytes <= PART_BYTES
        assert part_lines <= PART_LINES
    assert len(text.encode("utf-16-le")) // 2 <= 20_000


def test_memory_does_not_grow_with_the_output(file: Path) -> None:
    with file.open("wb") as output:
        output.truncate(200 * 2**20)
    tracemalloc.start()
    try:
        head_tail(file, _SHOWN_AT)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        file.unlink()
    assert peak < 4 * 2**20
