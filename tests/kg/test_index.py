import fcntl
import json
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from dkgi.graph.export import SourceGraph, write_export
from dkgi.kg.index import Index, Link, open_index
from dkgi.kg.text import IndexSpec
from dkgi.types import SetupError

OPEN = (
    "import sys; from pathlib import Path; from dkgi.kg.index import open_index; from dkgi.kg.text import IndexSpec\n"
    "spec = IndexSpec(names=('title', 'name', 'also.text'), summary=('plot',))\n"
    "index = open_index(Path(sys.argv[1]), spec, Path(sys.argv[2]))\n"
    "print([hit.node_id for hit in index.search('lake', 5)])\n"
)


NO_ROWS = np.empty((0, 2), dtype=np.int64)


def folder_of(cache: Path) -> Path:
    """The one index under `cache`."""
    [folder] = [path for path in (cache / "indexes").iterdir() if path.is_dir()]
    return folder


def ids(index: Index, query: str, k: int = 5) -> list[int]:
    return [hit.node_id for hit in index.search(query, k)]


@pytest.mark.parametrize("engine", ["csr", "tantivy"])
def test_search_finds_names_other_names_and_summaries(
    export: Path, spec: IndexSpec, tmp_path: Path, engine: Literal["csr", "tantivy"]
) -> None:
    index = open_index(export, replace(spec, engine=engine), tmp_path)
    assert ids(index, "BOAT") == [0]
    assert ids(index, "lichter") == [1]
    assert ids(index, "lake ice") == [0, 1]
    assert ids(index, "winter") == [2, 3]
    assert ids(index, "1") == ids(index, "nothing") == ids(index, "?!") == ids(index, "") == []
    assert len(index.search("lake winter", 2)) == 2


@pytest.mark.parametrize("engine", ["csr", "tantivy"])
def test_64_threads_at_once_get_what_one_gets(
    export: Path, spec: IndexSpec, tmp_path: Path, engine: Literal["csr", "tantivy"]
) -> None:
    index = open_index(export, replace(spec, engine=engine), tmp_path)
    queries = ["lake ice", "winter", "boat lake", "nothing", "two keepers quarrel"] * 40
    alone = [index.search(query, 5) for query in queries]
    with ThreadPoolExecutor(64) as pool:
        assert list(pool.map(lambda query: index.search(query, 5), queries)) == alone


def test_names_types_and_records_are_those_of_the_export(index: Index) -> None:
    assert [index.name(node) for node in range(6)] == [
        "The Long Boat",
        "Harbour Lights",
        "Winter in Bremen",
        "Ada Lund",
        "Bo Ek",
        "",
    ]
    assert [index.node_type(node) for node in (0, 3)] == ["book", "person"]
    assert [index.node(node).node_id for node in range(6)] == list(range(6))
    assert index.node(3).attributes["name"] == "Ada  Lund\n"


def test_records_of_all_shards_are_found(
    make_library: Callable[..., SourceGraph], spec: IndexSpec, tmp_path: Path
) -> None:
    nodes = [(0, {"title": f"Book {number}", "plot": "x" * (number % 7)}) for number in range(20_003)]
    write_export(make_library(nodes=nodes, edges=[NO_ROWS] * 3), tmp_path / "graphs" / "many-1")
    index = open_index(tmp_path / "graphs" / "many-1", spec, tmp_path)
    for node in (0, 1, 9_999, 10_000, 10_001, 19_999, 20_000, 20_002):
        assert index.node(node).attributes["title"] == index.name(node) == f"Book {node}"
        assert ids(index, str(node), 1) == [node]


def links(index: Index, node: int, **filters: str) -> list[Link]:
    return index.neighbors(node, **filters, k=99).links


def test_neighbours_are_filtered_by_relation_and_type(index: Index) -> None:
    cites = [Link("cites", 1, True, True), Link("cites", 2, False, True)]
    assert links(index, 0) == [Link("wrote", 3, False, True), *cites]
    assert links(index, 0, relation="wrote") == [Link("wrote", 3, False, True)]
    assert links(index, 0, node_type="book") == links(index, 0, relation="cites") == cites
    assert links(index, 0, relation="wrote", node_type="book") == []
    assert links(index, 5) == links(index, 0, relation="burnt") == []


def test_all_links_are_counted_and_the_first_k_are_given(index: Index) -> None:
    assert index.neighbors(0, k=2) == (3, links(index, 0)[:2])


def test_a_query_keeps_names_that_hold_it_and_then_texts_by_how_many_of_its_words_they_have(
    make_library: Callable[..., SourceGraph], spec: IndexSpec, tmp_path: Path
) -> None:
    plots = ["sea", "ice sea", "none", "cold ice sea", "cold"]
    nodes = [(1, {"name": "Hub"}), *((0, {"title": f"Book {n}", "plot": plot}) for n, plot in enumerate(plots))]
    nodes.append((0, {"title": "A COLD  Ice Seat"}))
    edges = [[[0, number] for number in range(1, 7)], [[1, 2]], [[0, 1]]]
    write_export(make_library(nodes=nodes, edges=[np.array(rows) for rows in edges]), tmp_path / "graphs" / "hub-1")
    index = open_index(tmp_path / "graphs" / "hub-1", spec, tmp_path)
    found = links(index, 0, relation="wrote", query=" cold ice\tsea ")
    assert [link.node_id for link in found] == [6, 4, 2, 1, 5]
    assert [link.node_id for link in links(index, 0, query="sea", node_type="book", relation="burnt")] == [1]
    assert links(index, 0, query="volcano") == links(index, 0, query="sea", node_type="person") == []
    assert len(links(index, 0, query="   ")) == 7


def test_an_unknown_relation_or_type_is_no_empty_answer(index: Index) -> None:
    with pytest.raises(KeyError):
        links(index, 0, relation="read")
    with pytest.raises(KeyError):
        links(index, 0, node_type="town")


def test_the_manifest_says_of_what_the_index_is_and_how_it_ranks(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    index = open_index(export, replace(spec, engine="tantivy"), tmp_path)
    written = json.loads((folder_of(tmp_path) / "manifest.json").read_text())
    for content in (index.manifest, written):
        assert content["names"] == ["title", "name", "also.text"]
        assert content["summary"] == ["plot"]
        assert (content["engine"], content["k1"], content["b"], content["tantivy"]) == ("tantivy", 1.2, 0.75, "0.27.0")
        assert content["idf"]
        assert content["ties"]
        assert content["tokenizer"]
        assert content["export"] == json.loads(export.with_name("library-1.manifest.json").read_text())["digest"]


def test_an_index_is_made_once(
    export: Path, spec: IndexSpec, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_index(export, spec, tmp_path)
    times = {path: path.stat().st_mtime_ns for path in folder_of(tmp_path).rglob("*")}
    open_index(export, spec, tmp_path)
    assert {path: path.stat().st_mtime_ns for path in folder_of(tmp_path).rglob("*")} == times
    assert capsys.readouterr().err.count("making the index of library-1") == 1


def damage_cut(folder: Path) -> None:
    with (folder / "postings.node.npy").open("r+b") as file:
        file.truncate(100)


def damage_same_size(folder: Path) -> None:
    path = folder / "postings.node.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def damage_missing(folder: Path) -> None:
    (folder / "names.bin").unlink()


def damage_no_manifest(folder: Path) -> None:
    (folder / "manifest.json").unlink()


def damage_torn_manifest(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_bytes(path.read_bytes()[:50])


def damage_odd_manifest(folder: Path) -> None:
    (folder / "manifest.json").write_text("[]")


def damage_other_format(folder: Path) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"format": 0}))


@pytest.mark.parametrize(
    "damage",
    [
        damage_cut,
        damage_same_size,
        damage_missing,
        damage_no_manifest,
        damage_torn_manifest,
        damage_odd_manifest,
        damage_other_format,
    ],
)
def test_a_damaged_or_old_index_is_made_anew(
    export: Path, spec: IndexSpec, tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    before = ids(open_index(export, spec, tmp_path), "lake ice")
    damage(folder_of(tmp_path))
    index = open_index(export, spec, tmp_path)
    assert ids(index, "lake ice") == before
    assert index.name(1) == "Harbour Lights"


def test_an_index_of_an_earlier_export_is_made_anew_while_its_users_go_on(
    export: Path, spec: IndexSpec, make_library: Callable[..., SourceGraph], tmp_path: Path
) -> None:
    old = open_index(export, spec, tmp_path)
    nodes = [(0, {"title": f"A volcano {number}"}) for number in range(6)]
    write_export(make_library(nodes=nodes, edges=[NO_ROWS] * 3), export)
    new = open_index(export, spec, tmp_path)
    assert ids(new, "volcano", 9) == list(range(6))
    assert ids(new, "lake") == []
    assert ids(old, "lake ice") == [0, 1]
    with pytest.raises(SetupError, match="changed while it was in use"):
        [old.node(node) for node in range(6)]


def test_no_node_is_shown_as_another_where_the_export_changed_in_use(
    export: Path, spec: IndexSpec, make_library: Callable[..., SourceGraph], tmp_path: Path
) -> None:
    """Node 2 now lies exactly where node 1 lay, since two lines of half the length precede it."""

    def write(*lengths: int) -> int:
        nodes = [(0, {"title": "x" * length}) for length in (*lengths, 200, 200)]
        write_export(make_library(nodes=nodes, edges=[NO_ROWS] * 3), export)
        return len((export / "nodes" / "0000.jsonl").read_bytes().splitlines(keepends=True)[0])

    length = next(length for length in (200, 201) if write(length) % 2 == 0)
    line = write(length, length)
    old = open_index(export, spec, tmp_path)
    write(*[line // 2 - (line - length)] * 2, length)
    with pytest.raises(SetupError, match="changed while it was in use"):
        old.node(1)


def test_a_killed_build_leaves_nothing_that_passes_for_an_index(
    export: Path, spec: IndexSpec, tmp_path: Path, python: str
) -> None:
    """Killed at several instants of the build; the next process makes the index and leaves nothing of the first."""
    for delay in (0.0, 0.002, 0.005, 0.01):
        process = subprocess.Popen([python, "-c", OPEN, export, tmp_path], stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while not list(tmp_path.glob("indexes/.*.making")) and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.0005)
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
        assert ids(open_index(export, spec, tmp_path), "lake ice") == [0, 1]
        assert [path for path in (tmp_path / "indexes").iterdir() if path.suffix in (".making", ".old")] == []
        shutil.rmtree(tmp_path / "indexes")


def test_what_a_killed_build_left_is_removed(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    open_index(export, spec, tmp_path)
    made = folder_of(tmp_path)
    left = [made.with_name(f".{made.name}.{ending}") for ending in ("making", "old")]
    shutil.copytree(made, left[1])
    made.rename(left[0])
    (left[0] / "manifest.json").unlink()
    shutil.rmtree(left[1])
    left[1].write_text("no folder")
    assert ids(open_index(export, spec, tmp_path), "lake ice") == [0, 1]
    assert not any(path.exists() for path in left)


def test_processes_that_start_at_once_make_one_index(export: Path, tmp_path: Path, python: str) -> None:
    command = [python, "-c", OPEN, str(export), str(tmp_path)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [process.communicate(timeout=120) for process in processes]
    assert [out for out, _ in outputs] == ["[0, 1]\n"] * 4
    assert sum("making the index" in err for _, err in outputs) == 1


def test_a_lock_that_stays_is_told(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    folder = tmp_path / "indexes"
    open_index(export, spec, tmp_path)
    made = folder_of(tmp_path)
    shutil.rmtree(made)
    with (folder / f".{made.name}.lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(SetupError, match="another process has held it"):
            open_index(export, spec, tmp_path, wait_s=0.2)


def test_names_must_be_declared(export: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"dataset\.index\.names"):
        open_index(export, IndexSpec(), tmp_path)


def test_names_that_no_node_has_are_told_and_leave_no_index(export: Path, tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"dataset\.index\.names: no node of .* has text in foo, bar\.text"):
        open_index(export, IndexSpec(names=("foo", "bar.text")), tmp_path)
    assert not [path for path in (tmp_path / "indexes").iterdir() if path.is_dir()]


def test_a_changed_export_is_refused(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    with (export / "nodes" / "0000.jsonl").open("a") as file:
        file.write("\n")
    with pytest.raises(SetupError, match="has changed since the export"):
        open_index(export, spec, tmp_path)


def test_a_folder_that_cannot_be_used_is_named(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    (tmp_path / "cache").touch()
    with pytest.raises(SetupError, match=r"cache.*DKGI_DATA"):
        open_index(export, spec, tmp_path / "cache")
