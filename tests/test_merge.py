"""`python -m dkgi.merge` makes one cell of what several machines have of it."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from dkgi import merge, tracking
from dkgi.analysis.summary import scored_results, summarise
from dkgi.collect import Collector
from dkgi.foreign import ForeignRuns
from dkgi.locks import Lock
from dkgi.shards import WHOLE, Shard
from dkgi.store import Cell, Journal, open_cell
from dkgi.types import Attempt, SetupError, Step, Usage
from tests.results import query_result

CELL = "5d1f0c9a7e42"
AXES = {name: name for name in tracking.AXES} | {"dataset": "hpo"}
SPENT = Usage(input_fresh=1000, cache_read=500, output=50, requests=1)
MANIFEST: dict[str, Any] = {
    "axes": AXES,
    "config": {"model": {"name": "model", "prices": None}},
    "digests": {"export": "e1"},
    "dkgi_version": "0.1.0",
    "git_commit": "abc",
    "python": "3.11.7",
    "agent_programs": {"bash": "5"},
}


def begin(cell: Cell, number: int, said: str = "Which?") -> None:
    """A query whose first attempt was cut off."""
    with Journal(cell, number, 0) as journal:
        journal.step(1, Step("user", said))
        journal.step(1, Step("assistant", "so far", usage=SPENT))


def finish(cell: Cell, number: int, **changes: Any) -> None:
    with Journal(cell, number, 0) as journal:
        journal.step(1, Step("user", "Which?"))
        journal.end(1, Attempt("answered", '{"node_ids": [1]}', SPENT, 2.0, 1, 0, 0))
    (cell.query_folder(number, 0) / "commands.jsonl").write_text('{"command": "ls"}\n')
    cell.write(query_result(number, cell=CELL, usage=SPENT, stops=("answered",), interrupted=0, **changes))


def machine(
    folder: Path, numbers: Iterable[int], *, shard: Shard = WHOLE, begun: Iterable[int] = (), **manifest: Any
) -> Cell:
    """A runs folder in which these queries of the cell are finished and scored: right where the number is even."""
    cell = open_cell(folder, CELL, MANIFEST | manifest)
    for number in numbers:
        finish(cell, number)
    for number in begun:
        begin(cell, number)
    gold = {number: {number % 2 + 1} for number in range(1000)}
    Collector(cell, gold, {"the canary": "canary"}, tracking.NullTracker(), shard=shard)
    return cell


def bring(runs: Path, *folders: Path) -> Cell:
    """What the command does, without MLflow."""
    sources = [ForeignRuns(folder) for folder in folders]
    cell = open_cell(runs, CELL, merge.check(CELL, runs, sources))
    merge.merge(cell, sources)
    return cell


def command(runs: Path, *arguments: object) -> "subprocess.Popen[str]":
    environment = os.environ | {"DKGI_RUNS": str(runs), "PYTHONPATH": str(Path(merge.__file__).parents[1])}
    words = [sys.executable, "-m", "dkgi.merge", *map(str, arguments)]
    return subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd="/")


def files(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def figures(cell: Cell) -> list[Any]:
    """What a table is made of."""
    return [(result.number, result.node_ids, result.usage, score) for result, score in scored_results(cell)]


def test_shards_of_three_machines_come_to_what_one_run_comes_to(tmp_path: Path, mlflow_tables: Path) -> None:
    numbers = range(40)
    expected = machine(tmp_path / "one", numbers)
    shards = [Shard(3, index) for index in range(3)]
    folders = [tmp_path / f"machine{shard.index}" for shard in shards]
    for folder, shard in zip(folders, shards, strict=True):
        machine(folder, [n for n in numbers if shard.holds("hpo", n)], shard=shard)
    runs = tmp_path / "runs"
    runs.mkdir()
    (runs / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    process = command(runs, *folders, "--no-traces")
    stdout, stderr = process.communicate(timeout=120)
    assert (process.returncode, stdout) == (0, "")
    assert stderr == f"{CELL}: 40 finished queries brought\n{CELL}: 40 queries logged\n"
    merged = Cell(runs / "cells" / CELL)
    assert figures(merged) == figures(expected)
    assert summarise(scored_results(merged)) == summarise(scored_results(expected))
    for number in numbers:
        (source,) = [f for f in folders if (f / "cells" / CELL / "queries" / str(number)).exists()]
        there = source / "cells" / CELL / "queries" / str(number)
        assert files(merged.folder / "queries" / str(number)) == files(there)
    assert not (merged.folder / "merging").exists()
    client, experiment = tracking.connect(runs)
    assert len(client.search_runs([experiment])) == 41


def test_the_same_command_again_brings_only_what_is_new(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    there = machine(tmp_path / "a", [1, 2])
    bring(tmp_path / "runs", tmp_path / "a")
    before = files(tmp_path / "runs")
    bring(tmp_path / "runs", tmp_path / "a")
    assert files(tmp_path / "runs") == before
    finish(there, 3)
    machine(tmp_path / "a", [])
    cell = bring(tmp_path / "runs", tmp_path / "a")
    assert [r.number for r, _ in scored_results(cell)] == [1, 2, 3]
    told = [line for line in capsys.readouterr().err.splitlines() if "brought" in line]
    assert told == [f"{CELL}: {n} finished queries brought" for n in (2, 0, 1)]


def test_a_query_that_is_finished_twice_and_differently_is_named_and_nothing_is_changed(tmp_path: Path) -> None:
    machine(tmp_path / "runs", [1, 7])
    other = open_cell(tmp_path / "a", CELL, MANIFEST)
    finish(other, 7, started=2.0)
    finish(other, 8)
    before = files(tmp_path / "runs")
    process = command(tmp_path / "runs", tmp_path / "a")
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr.count("\n")) == (2, "", 1)
    assert f"query 7, repeat 0 of cell {CELL} is finished twice with different results" in stderr
    assert files(tmp_path / "runs") == before


def test_two_folders_that_contradict_each_other_are_refused_before_anything_is_made(tmp_path: Path) -> None:
    machine(tmp_path / "a", [7])
    finish(open_cell(tmp_path / "b", CELL, MANIFEST), 7, started=2.0)
    with pytest.raises(SetupError, match="query 7, repeat 0"):
        bring(tmp_path / "runs", tmp_path / "a", tmp_path / "b")
    assert not (tmp_path / "runs").exists()


def test_the_same_result_in_two_folders_is_taken_once(tmp_path: Path) -> None:
    machine(tmp_path / "a", [7])
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    cell = bring(tmp_path / "runs", tmp_path / "a", tmp_path / "b")
    assert [r.number for r, _ in scored_results(cell)] == [7]


def test_begun_queries_come_along_with_what_they_cost_where_nothing_is_known_of_them(tmp_path: Path) -> None:
    machine(tmp_path / "a", [1], begun=[2, 3])
    machine(tmp_path / "runs", [3])
    cell = bring(tmp_path / "runs", tmp_path / "a")
    assert {key: usage.input_fresh for key, usage in cell.spent().items()} == {(1, 0): 1000, (2, 0): 1000, (3, 0): 1000}
    assert cell.result(2, 0) is None
    assert cell.result(3, 0) is not None


def test_what_was_begun_here_makes_room_for_a_finished_query_and_is_kept(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine(tmp_path / "a", [2])
    here = machine(tmp_path / "runs", [], begun=[2])
    steps = (here.query_folder(2, 0) / "steps.jsonl").read_bytes()
    cell = bring(tmp_path / "runs", tmp_path / "a")
    assert cell.result(2, 0) is not None
    (aside,) = (cell.folder / "set_aside").iterdir()
    assert (aside / "steps.jsonl").read_bytes() == steps
    told = capsys.readouterr().err
    assert f"query 2, repeat 0 was begun here and is finished in {tmp_path / 'a'}" in told
    assert str(aside) in told


def test_a_query_that_went_on_where_it_came_from_is_replaced_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    there = machine(tmp_path / "a", [], begun=[2])
    bring(tmp_path / "runs", tmp_path / "a")
    finish(there, 2)
    cell = bring(tmp_path / "runs", tmp_path / "a")
    assert cell.result(2, 0) is not None
    assert len(cell.attempts(2, 0)) == 1
    assert not (cell.folder / "set_aside").exists()
    assert "was begun here" not in capsys.readouterr().err


def test_kill_9_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    numbers = list(range(120))
    there = machine(tmp_path / "a", numbers)
    runs = tmp_path / "runs"
    cell = Cell(runs / "cells" / CELL)
    seen = set()
    for states in ("cells/*/manifest.json", "cells/*/merging/queries/60*", "cells/*/queries/5", "cells/*/queries/50"):
        process = command(runs, tmp_path / "a", "--no-traces")
        deadline = time.monotonic() + 60
        while not list(runs.glob(states)) and process.poll() is None:
            assert time.monotonic() < deadline
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=30)
        moved = sorted(int(path.name) for path in cell.folder.glob("queries/*"))
        seen.add(len(moved))
        for number in moved:
            assert files(cell.query_folder(number, 0)) == files(there.query_folder(number, 0))
    assert len(seen) > 1, "all kills came too early or too late: nothing was shown"
    merged = bring(runs, tmp_path / "a")
    assert files(merged.folder / "queries") == files(there.folder / "queries")
    assert [r.number for r, _ in scored_results(merged)] == numbers
    assert not (merged.folder / "merging").exists()


def test_it_logs_to_the_server_that_is_named(tmp_path: Path) -> None:
    machine(tmp_path / "a", [1])
    process = command(tmp_path / "runs", tmp_path / "a", "--uri", "http://someone:secret@127.0.0.1:1")
    _, stderr = process.communicate(timeout=60)
    assert process.returncode == 2
    assert stderr.startswith(f"{CELL}: 1 finished queries brought\ndkgi: ")
    assert "secret" not in stderr
    assert stderr.count("\n") == 2


def test_a_cell_at_work_here_is_refused(tmp_path: Path) -> None:
    machine(tmp_path / "a", [1])
    with Lock(machine(tmp_path / "runs", []), Shard(2, 1)), pytest.raises(SetupError, match="is being run"):
        bring(tmp_path / "runs", tmp_path / "a")


@pytest.mark.parametrize("key", ["axes", "digests"])
def test_manifests_of_different_cells_under_one_id_are_refused(tmp_path: Path, key: str) -> None:
    changed: dict[str, Any] = {key: {"dataset": "other"}}
    machine(tmp_path / "a", [1], **changed)
    machine(tmp_path / "runs", [])
    with pytest.raises(SetupError, match=f"`{key}` of their manifests differ"):
        bring(tmp_path / "runs", tmp_path / "a")


def test_another_version_of_the_code_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    machine(tmp_path / "a", [1], git_commit="def")
    machine(tmp_path / "runs", [])
    bring(tmp_path / "runs", tmp_path / "a")
    assert "was made with another git_commit than" in capsys.readouterr().err


@pytest.mark.parametrize("place", ["a", "runs"])
def test_a_cell_that_was_stopped_for_safety_is_refused(tmp_path: Path, place: str) -> None:
    machine(tmp_path / "a", [1])
    machine(tmp_path / "runs", [])
    (tmp_path / place / "cells" / CELL / "unsafe.txt").write_text("steps.jsonl: holds the canary")
    with pytest.raises(SetupError, match=r"unsafe\.txt: this cell was stopped for safety"):
        bring(tmp_path / "runs", tmp_path / "a")


SECRET = "what the host alone may read"


def plant(cell: Cell, place: str, secret: Path) -> None:
    """Put a link to what is outside in the place of a file or folder of the cell."""
    path = cell.folder / place
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(secret)


@pytest.mark.parametrize(
    "place",
    [
        "manifest.json",
        "scores.jsonl",
        "queries",
        "queries/1",
        "queries/1/0",
        "queries/1/0/result.json",
        "queries/1/0/steps.jsonl",
        "queries/1/0/notes.txt",
    ],
)
def test_links_in_a_folder_that_others_made_are_not_followed(tmp_path: Path, place: str) -> None:
    cell = machine(tmp_path / "a", [1])
    original = tmp_path / "outside" / Path(place).name
    original.parent.mkdir()
    if (cell.folder / place).is_dir():
        shutil.copytree(cell.folder / place, original)
    elif (cell.folder / place).exists():
        shutil.copy(cell.folder / place, original)
    else:
        original.write_text(SECRET)
    plant(cell, place, original)
    with pytest.raises(SetupError, match="no plain file or folder"):
        bring(tmp_path / "runs", tmp_path / "a")
    assert list((tmp_path / "runs").glob("cells/*/queries/*")) == []


def test_a_pipe_in_the_place_of_a_file_is_refused_and_holds_nobody_up(tmp_path: Path) -> None:
    cell = machine(tmp_path / "a", [1])
    os.mkfifo(cell.query_folder(1, 0) / "exchange.jsonl.zst")
    with pytest.raises(SetupError, match=r"exchange\.jsonl\.zst: no plain file or folder"):
        bring(tmp_path / "runs", tmp_path / "a")


@pytest.mark.parametrize("content", [b"{}", b"not json", query_result(2, cell=CELL)])
def test_a_result_of_something_else_is_named(tmp_path: Path, content: Any) -> None:
    cell = machine(tmp_path / "a", [1])
    path = cell.query_folder(1, 0) / "result.json"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        cell.write(content)
        shutil.copy(cell.query_folder(2, 0) / "result.json", path)
    with pytest.raises(SetupError, match=r"queries/1/0/result\.json: not the result of this query"):
        bring(tmp_path / "runs", tmp_path / "a")


@pytest.mark.parametrize("begun", [False, True])
def test_damaged_steps_are_named_where_they_come_from_and_nothing_is_brought(tmp_path: Path, begun: bool) -> None:
    cell = machine(tmp_path / "a", [1], begun=[2])
    path = cell.query_folder(2 if begun else 1, 0) / "steps.jsonl"
    path.write_bytes(b"{garbage\n" + path.read_bytes())
    with pytest.raises(SetupError) as caught:
        bring(tmp_path / "runs", tmp_path / "a")
    assert str(caught.value).startswith(f"{path}: damaged")
    assert list((tmp_path / "runs").glob("cells/*/queries/*")) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "FOLDER: nothing to merge"),
        (["{tmp}/none"], "none: No such file or directory"),
        (["{tmp}/empty"], "empty: holds no folder `cells`"),
        (["{tmp}/no_cell"], "no_cell: no cell is there"),
        (["{tmp}/runs"], "runs: this is the runs folder"),
    ],
)
def test_folders_that_cannot_be_merged_are_told_in_one_line(tmp_path: Path, arguments: list[str], told: str) -> None:
    for name in ("empty", "no_cell/cells", "runs/cells"):
        (tmp_path / name).mkdir(parents=True)
    process = command(tmp_path / "runs", *(argument.format(tmp=tmp_path) for argument in arguments))
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout, stderr.count("\n")) == (2, "", 1)
    assert told in stderr
