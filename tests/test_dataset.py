import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from dkgi.dataset import Dataset, DatasetSpec, Question, Source, prepare, prepare_from
from dkgi.graph.export import NodeType, RelationType, SourceGraph
from dkgi.types import Query, SetupError

SPEC = DatasetSpec(kind="towns", name="towns", version="1", split="test", seed=3)
SECRET = "a label that only scorers know"


def graph() -> SourceGraph:
    return SourceGraph(
        name="towns",
        version="1",
        node_types=(NodeType("town", "A place.", True), NodeType("river", "Water.", False)),
        relation_types=(RelationType("lies_on", "The source lies on the target.", ["town"], ["river"]),),
        nodes=[(0, {"name": "Ulm"}), (1, {"name": "Danube"}), (0, {"name": "Linz"})],
        edges=[np.array([[0, 1], [2, 1]])],
        notes=(),
        terms_of_use="Free.",
    )


def questions(export: Path) -> list[Question]:
    """Twenty of test, in an order that is not theirs, and one of val; made from the export."""
    gold = tuple(int(line) for line in (export / "candidate_ids.txt").read_text().split())
    tests = [Question(n, f"Which town is number {n}?", "test", n < 3, gold, {"regime": SECRET}) for n in range(1, 21)]
    return [*reversed(tests), Question(21, "Which town?", "val", False, gold[:1], {"regime": SECRET})]


SOURCE = Source(graph, questions)


def not_needed() -> SourceGraph:
    raise AssertionError("the graph was built a second time")


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    return prepare_from(SOURCE, SPEC, tmp_path)


def test_queries_come_by_number_and_test_01_is_the_marked_part_of_test(made: Dataset) -> None:
    assert [query.number for query in made.queries("test")] == list(range(1, 21))
    assert made.queries("test-0.1") == made.queries("test")[:2]
    assert made.queries("val") == [Query(21, "Which town?", "val", False)]
    assert made.sizes == {"test": 20, "val": 1}


@pytest.mark.parametrize("split", ["train", "val-0.1", "", "../labels"])
def test_an_unknown_split_is_an_error_that_lists_the_known_ones(made: Dataset, split: str) -> None:
    with pytest.raises(SetupError, match=rf"dataset\.split={re.escape(split)}: towns has test, test-0\.1, val"):
        made.queries(split)


def test_base_split_is_the_split_that_a_filter_is_about() -> None:
    assert [DatasetSpec("k", "n", "1", split, 0).base_split for split in ("test-0.1", "test", "val")] == [
        "test",
        "test",
        "val",
    ]


def test_the_candidates_lie_in_the_export(made: Dataset) -> None:
    assert made.candidate_ids.read_text() == "0\n2\n"


def test_what_exists_is_opened_not_made_again(made: Dataset, tmp_path: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    assert prepare_from(Source(not_needed, lambda _: []), SPEC, tmp_path) == made
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == files


def test_what_exists_is_opened_while_another_process_makes_other_data(made: Dataset, tmp_path: Path) -> None:
    with (tmp_path / "graphs" / ".lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        assert prepare_from(SOURCE, SPEC, tmp_path, wait_s=0) == made


def test_queries_are_made_again_without_building_the_graph(made: Dataset, tmp_path: Path) -> None:
    (made.folder / "manifest.json").unlink()
    assert prepare_from(Source(not_needed, questions), SPEC, tmp_path) == made


def test_nothing_that_a_runner_may_read_tells_of_gold_or_labels(made: Dataset, tmp_path: Path) -> None:
    rows = [json.loads(line) for line in (tmp_path / "queries" / "towns" / "test.jsonl").read_bytes().splitlines()]
    assert {tuple(row) for row in rows} == {("number", "text", "split", "in_test_subset")}
    canary = (tmp_path / "labels" / "towns" / "canary").read_text()
    for path in tmp_path.rglob("*"):
        if path.is_file() and tmp_path / "labels" not in path.parents:
            content = path.read_text()
            assert SECRET not in content, path
            assert canary not in content, path


def test_labels_are_closed_to_other_users_and_every_file_holds_the_canary(made: Dataset, tmp_path: Path) -> None:
    folder = tmp_path / "labels" / "towns"
    assert [path.stat().st_mode & 0o777 for path in (folder.parent, folder)] == [0o700, 0o700]
    assert sorted(path.name for path in folder.iterdir()) == ["canary", "test.jsonl", "val.jsonl"]
    for path in folder.iterdir():
        assert path.stat().st_mode & 0o777 == 0o600, path
        assert (folder / "canary").read_text() in path.read_text(), path


def test_labels_made_twice_differ_in_the_canary_alone(tmp_path: Path) -> None:
    first, second = (prepare_from(SOURCE, SPEC, tmp_path / name) for name in ("a", "b"))
    canaries = {(tmp_path / name / "labels" / "towns" / "canary").read_text() for name in ("a", "b")}
    assert len(canaries) == 2
    assert first.labels_digest == second.labels_digest


def test_each_digest_follows_its_own_content(made: Dataset, tmp_path: Path) -> None:
    def other_gold(export: Path) -> list[Question]:
        return [Question(q.number, q.text, q.split, q.in_test_subset, (2,), q.labels) for q in questions(export)]

    def other_text(export: Path) -> list[Question]:
        return [
            Question(q.number, q.text + "!", q.split, q.in_test_subset, q.gold, q.labels) for q in questions(export)
        ]

    changed = prepare_from(Source(graph, other_gold), SPEC, tmp_path / "gold")
    assert changed.labels_digest != made.labels_digest
    assert changed.queries_digest == made.queries_digest
    changed = prepare_from(Source(graph, other_text), SPEC, tmp_path / "text")
    assert changed.queries_digest != made.queries_digest
    assert changed.labels_digest == made.labels_digest
    assert changed.export_digest == made.export_digest


# ------------------------------------------------------------------- faults


def test_an_unknown_kind_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"dataset\.kind=towns: not one of hpo"):
        prepare(SPEC, tmp_path)


def test_another_version_than_the_installed_one_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"dataset\.version=2: what is installed is towns 1"):
        prepare_from(SOURCE, DatasetSpec("towns", "towns", "2", "test", 3), tmp_path)
    assert not (tmp_path / "queries").exists()


def test_another_seed_than_that_of_the_queries_is_an_error_with_two_ways_out(made: Dataset, tmp_path: Path) -> None:
    other = DatasetSpec("towns", "towns", "1", "test", 4)
    with pytest.raises(
        SetupError, match=r"dataset\.seed=4: .* seed 3; add dataset\.name=towns-4 .*, or remove .*/queries"
    ):
        prepare_from(SOURCE, other, tmp_path)
    prepare_from(SOURCE, DatasetSpec("towns", "towns-4", "1", "test", 4), tmp_path)
    assert prepare_from(SOURCE, SPEC, tmp_path) == made


def test_queries_about_another_export_are_refused(made: Dataset, tmp_path: Path) -> None:
    manifest = made.folder / "manifest.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"export": "0" * 64}))
    with pytest.raises(SetupError, match=rf"another export .* remove {made.folder}"):
        prepare_from(SOURCE, SPEC, tmp_path)


@pytest.mark.parametrize(
    "damage", ["{", "[]", '{"seed": 3}', '{"seed":3,"export":"","sizes":1,"queries":{},"labels":{}}']
)
def test_a_damaged_manifest_is_an_error_in_one_line(made: Dataset, tmp_path: Path, damage: str) -> None:
    (made.folder / "manifest.json").write_text(damage)
    with pytest.raises(SetupError, match=r"^[^\n]*manifest\.json: [^\n]*remove[^\n]*$"):
        prepare_from(SOURCE, SPEC, tmp_path)


@pytest.mark.parametrize("damage", [b"", b'{"number": 1}\n', None])
def test_changed_or_missing_queries_are_an_error_that_names_the_file(
    made: Dataset, tmp_path: Path, damage: bytes | None
) -> None:
    path = made.folder / "test.jsonl"
    path.unlink() if damage is None else path.write_bytes(damage)
    with pytest.raises(SetupError, match=rf"{path}: missing or changed; .* remove {made.folder}"):
        prepare_from(SOURCE, SPEC, tmp_path)


def test_a_changed_export_is_an_error_that_names_the_file(made: Dataset, tmp_path: Path) -> None:
    (made.export / "edges" / "00.tsv").write_text("source_id\ttarget_id\n")
    with pytest.raises(SetupError, match=r"edges/00\.tsv"):
        prepare_from(SOURCE, SPEC, tmp_path)


def test_a_data_folder_that_is_a_file_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match=r"^[^\n]*/file[^\n]*; make it accessible or set DKGI_DATA [^\n]*$"):
        prepare_from(SOURCE, SPEC, tmp_path / "file")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_data_folder_without_permission_is_an_error_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o500)
    with pytest.raises(SetupError, match=r"Permission denied; make it accessible or set DKGI_DATA"):
        prepare_from(SOURCE, SPEC, tmp_path / "closed")


def test_where_files_cannot_grow_nothing_is_left_under_a_final_name(made: Dataset, tmp_path: Path) -> None:
    """The file-size limit of a process stands in for a full disk: the write fails half-way."""
    (made.folder / "manifest.json").unlink()
    shutil.rmtree(tmp_path / "labels")
    (made.folder / "test.jsonl").unlink()
    code = """
import resource, signal, sys
from pathlib import Path
from dkgi.dataset import prepare_from
from dkgi.types import SetupError
from tests.test_dataset import SOURCE, SPEC

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
try:
    prepare_from(SOURCE, SPEC, Path(sys.argv[1]))
except SetupError as error:
    print(error)
"""
    child = run_child(code, tmp_path)
    assert re.fullmatch(r"[^\n]*; make room or set DKGI_DATA to another folder\n", child), child
    assert not (made.folder / "manifest.json").exists()
    assert [path.name for path in (tmp_path / "labels" / "towns").iterdir()] == ["canary"]
    assert prepare_from(SOURCE, SPEC, tmp_path) == made


# ------------------------------------------------------------------- several processes


def test_two_processes_make_one_data_set_and_the_second_says_that_it_waits(tmp_path: Path) -> None:
    lock = tmp_path / "graphs" / ".lock"
    lock.parent.mkdir()
    code = """
import sys
import time
from pathlib import Path
from dkgi.dataset import prepare_from
from tests.test_dataset import SOURCE, SPEC

print(prepare_from(SOURCE, SPEC, Path(sys.argv[1])).labels_digest)
"""
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        children = [start_child(code, tmp_path) for _ in range(2)]
        for child in children:
            assert child.stderr is not None
            assert child.stderr.readline() == "dkgi: waiting for another process that makes the data\n"
        time.sleep(0.5)
    outcomes = [child.communicate(timeout=60) for child in children]
    assert [child.returncode for child in children] == [0, 0]
    assert len({digest for digest, _ in outcomes}) == 1
    rest = "".join(told for _, told in outcomes)
    assert rest.count("making the queries of towns") == 1
    assert "waiting" not in rest


def test_waiting_ends_with_an_error_that_names_the_lock(tmp_path: Path) -> None:
    lock = tmp_path / "graphs" / ".lock"
    lock.parent.mkdir()
    with lock.open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with pytest.raises(SetupError, match=rf"{lock}: another process has held it for 0 s"):
            prepare_from(SOURCE, SPEC, tmp_path, wait_s=0.3)


def test_a_maker_that_is_killed_leaves_nothing_that_the_next_one_takes_for_finished(tmp_path: Path) -> None:
    code = """
import os, signal, sys
from pathlib import Path
from dkgi.dataset import Source, prepare_from
from tests.test_dataset import SPEC, graph

prepare_from(Source(graph, lambda _: os.kill(os.getpid(), signal.SIGKILL)), SPEC, Path(sys.argv[1]))
"""
    with start_child(code, tmp_path) as child:
        child.communicate(timeout=60)
    assert child.returncode == -9
    assert len(prepare_from(Source(not_needed, questions), SPEC, tmp_path).queries("test")) == 20


def start_child(code: str, data: Path) -> subprocess.Popen[str]:
    root = Path(__file__).parents[1]
    return subprocess.Popen(
        [sys.executable, "-c", code, str(data)],
        cwd=root,
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *filter(None, sys.path)])},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def run_child(code: str, data: Path) -> str:
    child = start_child(code, data)
    out, err = child.communicate(timeout=60)
    assert child.returncode == 0, err
    return out
