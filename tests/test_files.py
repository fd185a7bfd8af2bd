"""Files are whole or absent, and hold whatever a model can say."""

import resource
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from dkgi.files import check_writable, dump_json, open_to_append, write_atomically
from dkgi.types import SetupError


def test_a_file_that_cannot_be_written_whole_leaves_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    write_atomically(path, b"old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            write_atomically(path, b"x" * 2000)
        with pytest.raises(SetupError, match="File too large; make room"):
            check_writable(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert path.read_bytes() == b"old"
    assert [found.name for found in tmp_path.iterdir()] == ["result.json"]


def test_processes_that_try_a_folder_at_the_same_time_do_not_hurt_each_other(tmp_path: Path) -> None:
    def work() -> None:
        for _ in range(50):
            check_writable(tmp_path / "runs")

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work) for _ in range(8)]:
            done.result()
    assert list((tmp_path / "runs").iterdir()) == []


def test_half_a_character_and_a_huge_integer_are_kept_in_another_form() -> None:
    said = {"a\ud800": ["b\udfff", 10**30, -(10**30), 2**63 - 1, None, 1.5, True]}
    kept = orjson.loads(dump_json(said))
    assert kept == {"a\ufffd": ["b\ufffd", str(10**30), str(-(10**30)), 2**63 - 1, None, 1.5, True]}


def test_nothing_is_appended_through_a_link(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("untouched")
    (tmp_path / "log").symlink_to(target)
    with pytest.raises(OSError, match="symbolic"):
        open_to_append(tmp_path / "log")
    assert target.read_text() == "untouched"
    with open_to_append(tmp_path / "other") as file:
        file.write(b"one")
    with open_to_append(tmp_path / "other") as file:
        file.write(b"two")
    assert (tmp_path / "other").read_bytes() == b"onetwo"
