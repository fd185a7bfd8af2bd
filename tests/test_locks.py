"""Locks of cells and of their shards, held by real processes."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dkgi.locks import Lock
from dkgi.shards import WHOLE, Shard
from dkgi.store import Cell, open_cell
from dkgi.types import SetupError

HOLD = """
import sys
from pathlib import Path
from dkgi.locks import Lock
from dkgi.shards import Shard
from dkgi.store import Cell
from dkgi.types import SetupError
folder, count, index, wait_s = sys.argv[1:]
try:
    with Lock(Cell(Path(folder)), Shard(int(count), int(index)), wait_s=float(wait_s)):
        print("held", flush=True)
        sys.stdin.read()
except SetupError as error:
    print(error, flush=True)
"""
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def cell(tmp_path: Path) -> Cell:
    return open_cell(tmp_path, "c0ffee", {"cell": "c0ffee"})


@pytest.fixture
def start(cell: Cell) -> Iterator[Start]:
    """Starts a process that takes a lock, says `held`, and keeps it until its input ends."""
    with ExitStack() as stack:

        def begin(shard: Shard = WHOLE, wait_s: float = 0.0) -> subprocess.Popen[str]:
            words = [sys.executable, "-c", HOLD, str(cell.folder), str(shard.count), str(shard.index), str(wait_s)]
            process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            stack.enter_context(process)
            stack.callback(process.kill)
            return process

        yield begin


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout
    return process.stdout.readline().strip()


def test_a_second_process_on_a_cell_is_told_who_has_it(cell: Cell, start: Start) -> None:
    with Lock(cell):
        assert f"is being run by process {os.getpid()} on" in said(start())
    assert said(start()) == "held"


@pytest.mark.parametrize("shard", [WHOLE, Shard(4, 1)])
def test_a_killed_process_leaves_no_lock(cell: Cell, start: Start, shard: Shard) -> None:
    process = start(shard)
    assert said(process) == "held"
    process.send_signal(signal.SIGKILL)
    process.wait(timeout=30)
    with Lock(cell):
        pass


def test_shards_of_one_count_do_not_exclude_each_other(start: Start) -> None:
    assert [said(start(Shard(3, index))) for index in range(3)] == ["held"] * 3


@pytest.mark.parametrize(
    ("first", "second"),
    [(Shard(3, 1), WHOLE), (WHOLE, Shard(3, 1)), (Shard(3, 1), Shard(4, 2)), (Shard(3, 1), Shard(3, 1))],
    ids=str,
)
def test_all_other_pairs_exclude_each_other(start: Start, first: Shard, second: Shard) -> None:
    holder = start(first)
    assert said(holder) == "held"
    assert f"is being run by process {holder.pid}" in said(start(second))


def test_a_lock_that_is_refused_leaves_nothing_held(cell: Cell, start: Start) -> None:
    holder = start(Shard(3, 1))
    assert said(holder) == "held"
    with pytest.raises(SetupError):
        Lock(cell, Shard(4, 0))
    holder.communicate("", timeout=30)
    with Lock(cell):
        pass


def test_one_waits_for_another_process_and_says_so(cell: Cell, start: Start) -> None:
    with Lock(cell):
        waiting = start(Shard(2, 0), wait_s=60)
        assert waiting.stderr
        told = waiting.stderr.readline()
        assert told.startswith("cell c0ffee is being run by process")
        assert "waiting for it, up to 60 s" in told
    assert said(waiting) == "held"
    assert waiting.communicate("", timeout=30)[1] == ""


def test_waiting_has_an_end_and_is_told_once(cell: Cell, capsys: pytest.CaptureFixture[str]) -> None:
    with Lock(cell), pytest.raises(SetupError, match="is being run by"):
        Lock(cell, wait_s=0.5)
    assert capsys.readouterr().err.count("waiting for it") == 1


RACE = """
import json, random, sys, time
from pathlib import Path
from dkgi.locks import Lock
from dkgi.shards import Shard
from dkgi.store import Cell
from dkgi.types import SetupError
folder, seed = sys.argv[1:]
choose = random.Random(seed)
log = open(Path(folder) / f"race.{seed}", "w")
for _ in range(150):
    count = choose.choice([1, 2, 3])
    shard = Shard(count, choose.randrange(count))
    try:
        with Lock(Cell(Path(folder)), shard):
            began = time.monotonic_ns()
            time.sleep(choose.random() / 500)
            ended = time.monotonic_ns()
        print(json.dumps([shard.count, shard.index, began, ended]), file=log)
    except SetupError:
        pass
"""


def test_processes_that_race_never_hold_overlapping_locks_at_the_same_time(cell: Cell) -> None:
    racers = [subprocess.Popen([sys.executable, "-c", RACE, str(cell.folder), str(seed)]) for seed in range(4)]
    assert [racer.wait(timeout=60) for racer in racers] == [0] * 4
    held = []
    for path in cell.folder.glob("race.*"):
        lines = [json.loads(line) for line in path.read_text().splitlines()]
        assert lines, "a process that never got a lock"
        held += [(Shard(count, index), began, ended) for count, index, began, ended in lines]
    together = 0
    for place, (shard, began, ended) in enumerate(held):
        for other, other_began, other_ended in held[:place]:
            if began < other_ended and other_began < ended:
                together += 1
                assert shard.count == other.count
                assert shard.index != other.index
    assert together, "no two were ever held at the same time: nothing was shown"
