"""Records of what was sent survive a kill at any byte, and what a cut-off request may have used is counted."""

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.recording import NAME, Recording, read_exchange, usage_of_attempt
from dkgi.types import SetupError, Usage

BOUND = Usage(input_fresh=100, output=50, requests=1)
USED = Usage(input_fresh=80, output=5, requests=1)


def write(folder: Path, *, attempt: int = 1, requests: int = 3, open_last: bool = False) -> None:
    recording = Recording(folder, attempt, history="input")
    for request in range(1, requests + 1):
        body = {"model": "m", "input": [{"content": f"item {n}"} for n in range(request)]}
        recording.sent(request, 1, "/v1/responses", body, BOUND)
        if not (open_last and request == requests):
            recording.got(request, 1, status=200, reply=b'{"a": 1}', usage=USED, kind="", error="")


def test_attempts_are_counted_apart_and_an_open_request_at_its_bound(tmp_path: Path) -> None:
    write(tmp_path, attempt=1, requests=2)
    write(tmp_path, attempt=2, requests=3, open_last=True)
    assert usage_of_attempt(tmp_path, 1) == Usage(input_fresh=160, output=10, requests=2)
    assert usage_of_attempt(tmp_path, 2) == Usage(input_fresh=260, output=60, requests=3, complete=False)
    assert usage_of_attempt(tmp_path, 3) == Usage()
    assert usage_of_attempt(tmp_path / "nowhere", 1) == Usage()


def test_a_file_that_was_cut_at_any_byte_is_read_to_its_last_whole_frame_and_written_on(tmp_path: Path) -> None:
    write(tmp_path)
    whole = (tmp_path / NAME).read_bytes()
    for size in range(0, len(whole), 7):
        (tmp_path / NAME).write_bytes(whole[:size])
        before = len(read_exchange(tmp_path))
        write(tmp_path, attempt=2, requests=1)
        records = read_exchange(tmp_path)
        assert len(records) == before + 1
        assert records[-1].usage == USED


def test_a_killed_process_leaves_what_it_had_under_way(tmp_path: Path) -> None:
    program = (
        "import os, pathlib, signal; from tests.test_recording import write;"
        f"write(pathlib.Path({str(tmp_path)!r}), open_last=True); os.kill(os.getpid(), signal.SIGKILL)"
    )
    root = Path(__file__).parent.parent
    done = subprocess.run([sys.executable, "-c", program], cwd=root, timeout=60, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [record.usage for record in read_exchange(tmp_path)] == [USED, USED, None]
    assert not usage_of_attempt(tmp_path, 1).complete


def test_a_file_grows_with_the_turns_and_not_with_their_square(tmp_path: Path) -> None:
    import random

    dice = random.Random(7)
    items = [{"content": dice.randbytes(1000).hex()} for _ in range(60)]
    recording = Recording(tmp_path, 1, history="input")
    for request in range(1, 61):
        recording.sent(request, 1, "/v1/responses", {"model": "m", "input": items[:request]}, BOUND)
    assert (tmp_path / NAME).stat().st_size < 2 * len(json.dumps(items))
    assert read_exchange(tmp_path)[-1].body["input"] == items


@pytest.mark.parametrize("history", ["one text", None, []])
def test_a_history_that_is_no_list_is_kept_as_it_is(tmp_path: Path, history: object) -> None:
    recording = Recording(tmp_path, 1, history="input")
    for request, told in enumerate([history, [1], history], 1):
        recording.sent(request, 1, "/", {"input": told}, BOUND)
    assert [record.body["input"] for record in read_exchange(tmp_path)] == [history, [1], history]


def test_bytes_that_are_no_text_stay_readable(tmp_path: Path) -> None:
    recording = Recording(tmp_path, 1, history="input")
    recording.sent(1, 1, "/", {}, BOUND)
    recording.got(1, 1, status=502, reply=b"caf\xe9", usage=USED, kind="server", error="")
    assert read_exchange(tmp_path)[0].reply == "caf\\xe9"


def test_a_folder_that_cannot_be_written_is_the_users_to_mend(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match="nothing is lost"):
        Recording(tmp_path / "nowhere", 1, history="input")
