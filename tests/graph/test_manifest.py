import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from dkgi.graph import manifest
from dkgi.graph.export import SourceGraph, write_export
from dkgi.types import SetupError

DAMAGES: dict[str, tuple[str, Callable[[Path], object]]] = {
    "a file was cut": ("edges/00.tsv", lambda folder: os.truncate(folder / "edges" / "00.tsv", 10)),
    "a file was edited": (
        "candidate_ids.txt",
        lambda folder: (folder / "candidate_ids.txt").write_bytes(b"0\n1\n4\n"),
    ),
    "a file is gone": ("nodes/0000.jsonl", lambda folder: (folder / "nodes" / "0000.jsonl").unlink()),
    "a file came in": ("labels.txt", lambda folder: (folder / "labels.txt").touch()),
    "the folder is gone": ("DATA_FORMAT.txt", shutil.rmtree),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_use_is_refused_naming_file_and_remedy_when(name: str, tiny_export: Path) -> None:
    manifest.verify(tiny_export)
    file, damage = DAMAGES[name]
    damage(tiny_export)
    with pytest.raises(SetupError) as failure:
        manifest.verify(tiny_export)
    assert str(tiny_export / file) in str(failure.value)
    assert f"rm -f {manifest.path_of(tiny_export)}" in str(failure.value)
    assert "\n" not in str(failure.value)


def test_the_remedy_works(tiny_export: Path, make_graph: Callable[..., SourceGraph]) -> None:
    os.truncate(tiny_export / "edges" / "00.tsv", 10)
    manifest.path_of(tiny_export).unlink()
    assert not manifest.exists(tiny_export)
    write_export(make_graph(), tiny_export)
    manifest.verify(tiny_export, full=True)


def test_a_change_that_keeps_size_and_time_is_found_by_the_full_check(tiny_export: Path) -> None:
    path = tiny_export / "candidate_ids.txt"
    status = path.stat()
    path.write_bytes(b"0\n1\n4\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    manifest.verify(tiny_export)
    with pytest.raises(SetupError, match=r"candidate_ids\.txt"):
        manifest.verify(tiny_export, full=True)


def test_a_change_of_size_is_found_even_where_the_time_is_kept(tiny_export: Path) -> None:
    path = tiny_export / "candidate_ids.txt"
    status = path.stat()
    path.write_bytes(b"0\n1\n")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    with pytest.raises(SetupError, match=r"candidate_ids\.txt"):
        manifest.verify(tiny_export)


def test_a_copy_with_new_times_is_accepted_by_its_content(tiny_export: Path) -> None:
    for path in tiny_export.rglob("*"):
        os.utime(path, ns=(0, 0))
    manifest.verify(tiny_export)


@pytest.mark.parametrize("content", [b"", b"{}", b"[]", b'{"digest":"x","files":{"a":{}},"dropped":{}}', b"\xff"])
def test_an_unreadable_manifest_is_a_setup_error(content: bytes, tiny_export: Path) -> None:
    manifest.path_of(tiny_export).write_bytes(content)
    with pytest.raises(SetupError, match="no complete export"):
        manifest.verify(tiny_export)


def test_the_digest_stands_for_content_and_names_and_not_for_times(
    tmp_path: Path, make_graph: Callable[..., SourceGraph]
) -> None:
    first = write_export(make_graph(), tmp_path / "first")
    assert write_export(make_graph(), tmp_path / "second") == first
    (tmp_path / "first" / "edges" / "01.tsv").rename(tmp_path / "first" / "edges" / "02.tsv")
    assert manifest.of(tmp_path / "first", {}).digest != first


def test_the_manifest_lies_outside_the_folder_and_keeps_what_the_source_dropped(tiny_export: Path) -> None:
    assert manifest.path_of(tiny_export) == tiny_export.parent / "tiny-1.manifest.json"
    assert manifest.read(tiny_export).dropped == {"towns that drowned": 1}
