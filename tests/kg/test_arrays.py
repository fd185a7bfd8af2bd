from bisect import bisect_left
from pathlib import Path

import numpy as np
import pytest

from dkgi.kg.arrays import GroupWriter, Texts, load, run_starts, save, save_texts


def test_rows_of_all_runs_lie_group_after_group_in_order_of_arrival(tmp_path: Path) -> None:
    writer = GroupWriter(tmp_path, "links", {"other": np.int32, "kind": np.uint8})
    writer.add(np.array([0, 0, 2]), np.array([5, 7, 1]), np.array([1, 1, 1]))
    writer.add(np.array([0, 1]), np.array([9, 4]), np.array([2, 2]))
    writer.write(groups=4)
    assert load(tmp_path, "links.starts").tolist() == [0, 3, 4, 5, 5]
    assert load(tmp_path, "links.other").tolist() == [5, 7, 9, 4, 1]
    assert load(tmp_path, "links.kind").tolist() == [1, 1, 2, 2, 1]
    assert load(tmp_path, "links.other").dtype == np.int32


def test_groups_can_be_written_in_another_order(tmp_path: Path) -> None:
    writer = GroupWriter(tmp_path, "links", {"other": np.int32})
    writer.add(np.array([0, 1, 2, 2]), np.array([10, 11, 12, 13]))
    writer.write(groups=3, order=np.array([2, 0, 1]))
    assert load(tmp_path, "links.starts").tolist() == [0, 2, 3, 4]
    assert load(tmp_path, "links.other").tolist() == [12, 13, 10, 11]


def test_no_rows_at_all_are_written_and_nothing_waits(tmp_path: Path) -> None:
    GroupWriter(tmp_path, "links", {"other": np.int32}).write(groups=2)
    assert load(tmp_path, "links.starts").tolist() == [0, 0, 0]
    assert load(tmp_path, "links.other").tolist() == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["links.other.npy", "links.starts.npy"]


def test_mapped_arrays_cannot_be_changed(tmp_path: Path) -> None:
    save(tmp_path, "numbers", np.arange(3))
    with pytest.raises(ValueError, match="read-only"):
        load(tmp_path, "numbers")[0] = 7


def test_texts_are_what_was_written_and_sorted_ones_can_be_searched(tmp_path: Path) -> None:
    written = sorted(word.encode() for word in ["", "ice", "a", "Öl", "zebra", "中文"])
    save_texts(tmp_path, "words", written)
    texts = Texts(tmp_path, "words")
    assert list(texts) == written
    assert texts[1:3] == written[1:3]
    assert texts.take(np.array([4, 0])) == [written[4], written[0]]
    assert [bisect_left(texts, word) for word in written] == list(range(6))


def test_texts_may_all_be_empty_or_none(tmp_path: Path) -> None:
    save_texts(tmp_path, "empty", [b"", b""])
    save_texts(tmp_path, "none", [])
    assert list(Texts(tmp_path, "empty")) == [b"", b""]
    assert list(Texts(tmp_path, "none")) == []


def test_runs_start_where_the_value_changes() -> None:
    assert run_starts(np.array([3, 3, 4, 7, 7])).tolist() == [0, 2, 3]
    assert run_starts(np.array([], dtype=np.int64)).tolist() == []
