"""Names in place of IDs: what they stand for, and what a list of them is worth."""

from pathlib import Path

import pytest

from dkgi.metrics import score
from dkgi.names import normalise, read_names
from dkgi.types import SetupError


@pytest.fixture
def export(tmp_path: Path) -> Path:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / "0000.jsonl").write_text(
        '{"node_id":0,"node_type":"paper","is_candidate":true,"attributes":{"title":"On Graphs","OriginalTitle":"Über Graphen"}}\n'
        '{"node_id":1,"node_type":"paper","is_candidate":true,"attributes":{"title":"on  graphs!","OriginalTitle":-1}}\n'
        '{"node_id":2,"node_type":"gene","is_candidate":true,"attributes":{"name":"BRCA1","details":{"alias":["RNF53","FANCS"]}}}\n'
        '{"node_id":3,"node_type":"gene","is_candidate":true,"attributes":{"name":"---"}}\n'
    )
    return tmp_path


PATHS = ("title", "OriginalTitle", "name", "details.alias")


@pytest.mark.parametrize(
    ("name", "normal"),
    [
        ("  The  Café-au-lait\u00a0spot ", "the café au lait spot"),
        ("Straße", "strasse"),
        ("ﬁne", "fine"),
        ("H₂O (l)", "h2o l"),
        ("_a_b_", "a b"),
        ("---", ""),
    ],
)
def test_names_are_compared_without_case_marks_and_compatibility_forms(name: str, normal: str) -> None:
    assert normalise(name) == normal


def test_a_name_stands_for_every_node_that_has_it(export: Path) -> None:
    nodes_of = read_names(export, PATHS)
    assert nodes_of("ON GRAPHS") == {0, 1}
    assert nodes_of("über graphen") == {0}
    assert nodes_of("fancs") == nodes_of("Brca1") == {2}


@pytest.mark.parametrize("entry", ["Nobody", "", "---", "-1", 2, None, ["BRCA1"], {"name": "BRCA1"}])
def test_what_is_no_name_of_a_node_stands_for_nothing(entry: object, export: Path) -> None:
    assert read_names(export, PATHS)(entry) == set()


def test_a_rank_is_right_when_any_node_behind_its_name_is_gold(export: Path) -> None:
    nodes_of = read_names(export, PATHS)
    assert score(["nobody", "on graphs"], gold={1}, nodes_of=nodes_of).mrr == 0.5
    earned = score(["on graphs", "Über Graphen", "RNF53"], gold={0, 2, 9}, nodes_of=nodes_of)
    assert (earned.hit_at_1, earned.recall_at_20) == (1.0, 2 / 3)
    assert score([0, 1, 2], gold={0}, nodes_of=nodes_of).mrr == 0.0


def test_another_name_of_the_same_gold_node_is_a_repeat(export: Path) -> None:
    nodes_of = read_names(export, PATHS)
    earned = score(["BRCA1", "FANCS"], gold={2, 7}, nodes_of=nodes_of)
    assert earned == score([2, 2], gold={2, 7})


def test_a_data_set_without_name_fields_says_so(export: Path) -> None:
    with pytest.raises(SetupError, match=r"dataset\.index\.names"):
        read_names(export, ())
