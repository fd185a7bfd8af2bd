"""How much an attempt may keep on disk and compute, and how that is measured."""

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.jail.preflight import Hidden
from dkgi.jail.quota import Taken, measure
from dkgi.jail.scratch import RunFolder, remove_tree
from dkgi.jail.server import CommandServer
from tests.jail.conftest import SPEC, Shell, marked, open_shell, serving

LIMITED = replace(SPEC, cpu_s=1, scratch_mb=20, scratch_files=200, file_mb=1000)


@pytest.fixture(scope="module", params=["full_dkgi", "one_program"])
def server(request: pytest.FixtureRequest, hidden: Hidden, home: Path) -> Iterator[CommandServer]:
    with serving(request.param, hidden, home / "limited", LIMITED) as server:
        yield server


@pytest.fixture
def limited(server: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    yield from open_shell(server, folder, graph, tmp_path / "commands.jsonl")


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("while :; do :; done", "cpu"),
        ("while :; do :; done & while :; do :; done", "cpu"),
        ("while :; do (x=; for ((i = 0; i < 2000; i++)); do :; done); done", "cpu"),
        ("python3 -c 'while True: pass' limited-marker", "cpu"),
        ("head -c 50000000 /dev/zero > /scratch/large; while :; do read -t 9 < <(:); done", "scratch"),
        ("for i in /tmp/a /scratch/a; do head -c 15000000 /dev/zero > $i; done; read -t 30 <> <(:)", "scratch"),
        ("for ((i = 0; i < 1000; i++)); do : > /scratch/$i; done; bash -c 'read -t 30 <> <(:)'", "scratch"),
        ("for ((i = 0; i < 9; i++)); do head -c 5000000 /dev/zero > /tmp/$i; done; bash -c 'read -t 30 <> <(:)'", "scratch"),
        ("python3 -c 'open(\"/tmp/x\", \"wb\").write(bytes(50 << 20)); input()' limited-marker <> <(:)", "scratch"),
        ("python3 -c 'import os, time\nos.mkdir(\"/tmp/d\"); open(\"/tmp/d/x\", \"wb\").write(bytes(50 << 20)); os.chmod(\"/tmp/d\", 0); time.sleep(30)'", "scratch"),
        ("python3 -c 'import os, time\nos.chdir(\"/tmp\")\nfor i in range(150): os.mkdir(\"d\" * 99); os.chdir(\"d\" * 99)\ntime.sleep(30)'", "scratch"),
    ],
)  # fmt: skip
def test_past_a_limit_the_command_ends_for_that_reason(limited: Shell, command: str, limit: str) -> None:
    result = limited.result(f"echo partial; {command}", timeout_s=60)
    assert (result.killed_by, result.exit_code) == (limit, 137)
    assert result.output.read_text().startswith("partial\n")
    assert marked("limited-marker") == []


def test_an_attempt_over_its_quota_can_clear_up(limited: Shell) -> None:
    assert limited.result("head -c 50000000 /dev/zero > /scratch/large; read -t 30 <> <(:)").killed_by == "scratch"
    result = limited.result("read -t 1 <> <(:); find /scratch/large -delete; read -t 1 <> <(:); echo cleared")
    assert (result.killed_by, result.output.read_text()) == (None, "cleared\n")
    assert limited.result("head -c 50000000 /dev/zero > /scratch/large; read -t 30 <> <(:)").killed_by == "scratch"


def test_the_record_of_a_command_tells_reason_signal_and_use(limited: Shell) -> None:
    limited.result("while :; do :; done")
    limited.result("kill -ABRT $$")
    first, second = (json.loads(line) for line in limited.log.read_text().splitlines())
    assert (first["killed_by"], first["signal"], first["exit_code"]) == ("cpu", 9, 137)
    assert (second["killed_by"], second["signal"], second["exit_code"]) == (None, 6, 134)
    assert {"wall_s", "cpu_s", "peak_rss_mb", "output_bytes", "python", "python_refused"} <= set(first)


def test_everything_counts_once_and_nothing_is_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "large").write_bytes(bytes(1 << 20))
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    (scratch / "file").write_bytes(b"x" * 8192)
    os.link(scratch / "file", scratch / "second")
    (scratch / "out").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(scratch / "pipe")
    for mode in (0, 0o200, 0o400, 0o300):
        (scratch / f"{mode}").mkdir()
        (scratch / f"{mode}" / "d").mkdir()
        (scratch / f"{mode}" / "d" / "file").write_bytes(b"x" * 8192)
        (scratch / f"{mode}" / "d").chmod(mode)
        (scratch / f"{mode}").chmod(mode)
    taken = measure([scratch])
    assert taken is not None
    assert taken.files == 3 + 4 * 3
    assert 5 * 8192 <= taken.bytes < 1 << 19


def test_a_file_with_a_hole_counts_as_what_it_takes_up(tmp_path: Path) -> None:
    with (tmp_path / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    taken = measure([tmp_path])
    assert taken is not None
    assert taken.bytes < 1 << 20


def test_folders_too_deep_for_a_name_are_told_apart(tmp_path: Path) -> None:
    top = tmp_path / "scratch"
    top.mkdir()
    handle = os.open(top, os.O_PATH)
    for _ in range(60):
        os.mkdir("d" * 100, dir_fd=handle)
        inner = os.open("d" * 100, os.O_PATH, dir_fd=handle)
        os.close(handle)
        handle = inner
    os.close(handle)
    assert measure([top]) is None
    remove_tree(top)
    assert not top.exists()


def test_an_empty_folder_takes_nothing(tmp_path: Path) -> None:
    assert measure([tmp_path]) == Taken(0, 0)
