import json
import os
from pathlib import Path

import pytest

from dkgi.dataset import Dataset, prepare_from
from dkgi.gold import read_canary, read_gold, read_labels
from dkgi.types import SetupError
from tests.test_dataset import SECRET, SOURCE, SPEC


@pytest.fixture
def made(tmp_path: Path) -> Dataset:
    return prepare_from(SOURCE, SPEC, tmp_path)


@pytest.mark.usefixtures("made")
def test_gold_is_what_the_source_said_by_number(tmp_path: Path) -> None:
    assert read_gold("towns", "test", tmp_path) == {number: frozenset({0, 2}) for number in range(1, 21)}
    assert read_gold("towns", "val", tmp_path) == {21: frozenset({0})}


@pytest.mark.usefixtures("made")
def test_labels_hold_what_else_is_known_and_not_the_canary(tmp_path: Path) -> None:
    assert read_labels("towns", "val", tmp_path) == {21: {"number": 21, "gold": [0], "regime": SECRET}}


@pytest.mark.usefixtures("made")
def test_the_canary_stands_in_every_row_of_the_labels(tmp_path: Path) -> None:
    canary = read_canary("towns", tmp_path)
    assert len(canary) == 39
    rows = (tmp_path / "labels" / "towns" / "test.jsonl").read_text().splitlines()
    assert all(canary in row for row in rows)


@pytest.mark.parametrize("damage", ["", "{", '{"number": 1, "gold": [5]}\n', None])
def test_changed_or_missing_labels_are_an_error_that_names_file_and_way_out(
    made: Dataset, tmp_path: Path, damage: str | None
) -> None:
    path = tmp_path / "labels" / "towns" / "test.jsonl"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(SetupError, match=rf"^{path}: [^\n]* remove {made.folder}$"):
        read_gold("towns", "test", tmp_path)


def test_one_changed_answer_is_noticed(made: Dataset, tmp_path: Path) -> None:
    path = tmp_path / "labels" / "towns" / "val.jsonl"
    row = json.loads(path.read_text())
    path.write_text(json.dumps(row | {"gold": [2]}) + "\n")
    with pytest.raises(SetupError, match="not the labels that were made with the queries"):
        read_gold("towns", "val", tmp_path)


@pytest.mark.usefixtures("made")
def test_an_unknown_split_or_data_set_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"labels/towns/train\.jsonl"):
        read_gold("towns", "train", tmp_path)
    with pytest.raises(SetupError, match=r"queries/villages/manifest\.json"):
        read_gold("villages", "test", tmp_path)


@pytest.mark.parametrize("damage", ["", "anything", None])
def test_a_changed_or_missing_canary_is_an_error(made: Dataset, tmp_path: Path, damage: str | None) -> None:
    path = tmp_path / "labels" / "towns" / "canary"
    path.unlink() if damage is None else path.write_text(damage)
    with pytest.raises(SetupError, match=rf"{path}: .* remove {made.folder}"):
        read_canary("towns", tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read anything")
def test_labels_that_may_not_be_read_are_an_error(made: Dataset, tmp_path: Path) -> None:
    (tmp_path / "labels" / "towns" / "test.jsonl").chmod(0)
    with pytest.raises(SetupError, match="Permission denied; make it readable"):
        read_gold("towns", "test", tmp_path)
