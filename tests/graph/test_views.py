import json
import os
import re
import stat
import tempfile
from pathlib import Path

import pytest

from dkgi.graph.export import data_format
from dkgi.graph.views import make_view
from dkgi.types import SetupError


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def test_the_full_view_is_the_export(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=True, edges=True, tools_line=True)
    assert contents(tmp_path / "view") == contents(slice_export)


def test_node_edge_and_candidate_files_are_the_same_files_not_copies(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=True, edges=True, tools_line=True)
    for name in contents(slice_export):
        if name not in ("schema.json", "DATA_FORMAT.txt"):
            assert (tmp_path / "view" / name).samefile(slice_export / name)


def test_without_edges_nothing_of_them_is_left(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=True, edges=False, tools_line=True)
    whole, view = contents(slice_export), contents(tmp_path / "view")
    assert sorted(view) == sorted(name for name in whole if not name.startswith("edges/"))
    assert not (tmp_path / "view" / "edges").exists()
    assert all((tmp_path / "view" / name).samefile(slice_export / name) for name in view if name.startswith("nodes/"))
    schema = json.loads(view["schema.json"])
    assert sorted(json.loads(whole["schema.json"]).keys() - schema.keys()) == ["notes", "relation_types"]
    relations = {relation["name"] for relation in json.loads(whole["schema.json"])["relation_types"]}
    types = {node_type["name"] for node_type in schema["node_types"]}
    texts = (view["schema.json"] + view["DATA_FORMAT.txt"]).decode()
    assert [name for name in relations - types if name in texts] == []
    assert re.findall(r"(?i)\bedges?\b|\brows?\b|\brelations?\b", texts) == []


def test_without_edges_data_format_lacks_its_edge_lines_and_no_other(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=True, edges=False, tools_line=True)
    whole = (slice_export / "DATA_FORMAT.txt").read_text().splitlines()
    kept = (tmp_path / "view" / "DATA_FORMAT.txt").read_text().splitlines()
    lacking = [line for line in whole if line and line not in kept]
    assert [line for line in kept if line not in whole] == []
    assert lacking
    assert all(re.search(r"(?i)\bedges?\b|neighbour", line) for line in lacking)


def test_without_the_tools_line_only_that_line_of_data_format_differs(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=True, edges=True, tools_line=False)
    whole, view = contents(slice_export), contents(tmp_path / "view")
    assert view.pop("DATA_FORMAT.txt").decode() == data_format(tools_line=False)
    del whole["DATA_FORMAT.txt"]
    assert view == whole


def test_a_view_without_the_graph_is_one_readme(slice_export: Path, tmp_path: Path) -> None:
    make_view(slice_export, tmp_path / "view", graph=False, edges=False, tools_line=False)
    assert list(contents(tmp_path / "view")) == ["README"]
    text = (tmp_path / "view" / "README").read_text()
    assert text.endswith("\n")
    assert str(slice_export) not in text


@pytest.mark.parametrize("edges", [True, False])
@pytest.mark.parametrize("tools_line", [True, False])
def test_a_view_has_the_same_bytes_every_time(
    edges: bool, tools_line: bool, slice_export: Path, tmp_path: Path
) -> None:
    for name in ("first", "second"):
        make_view(slice_export, tmp_path / name, graph=True, edges=edges, tools_line=tools_line)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


def test_everyone_may_read_a_view_whatever_the_umask(slice_export: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        make_view(slice_export, tmp_path / "view", graph=True, edges=False, tools_line=True)
        make_view(slice_export, tmp_path / "empty", graph=False, edges=False, tools_line=True)
    finally:
        os.umask(before)
    for view in (tmp_path / "view", tmp_path / "empty"):
        for path in [view, *view.rglob("*")]:
            assert stat.S_IMODE(path.stat().st_mode) == (0o755 if path.is_dir() else 0o644), path


def test_another_file_system_is_refused_with_the_remedy_and_nothing_is_left_or_copied(slice_export: Path) -> None:
    shared_memory = Path("/dev/shm")
    if not os.access(shared_memory, os.W_OK) or shared_memory.stat().st_dev == slice_export.stat().st_dev:
        pytest.skip("no second file system to write to")
    with tempfile.TemporaryDirectory(dir=shared_memory) as folder:
        with pytest.raises(SetupError, match=r"on another file system than .* set DKGI_DATA"):
            make_view(slice_export, Path(folder) / "view", graph=True, edges=True, tools_line=True)
        assert list(Path(folder).iterdir()) == []


def test_a_folder_that_is_already_there_is_not_touched(slice_export: Path, tmp_path: Path) -> None:
    (tmp_path / "view").mkdir()
    (tmp_path / "view" / "mine").touch()
    with pytest.raises(FileExistsError):
        make_view(slice_export, tmp_path / "view", graph=True, edges=True, tools_line=True)
    assert [path.name for path in (tmp_path / "view").iterdir()] == ["mine"]
