import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkgi.graph.check import SAMPLE_SIZE, CheckFailed, Sample, check_export, plain
from dkgi.graph.export import SourceGraph, write_export

Damage = Callable[[Path], None]
MakeGraph = Callable[..., SourceGraph]


@pytest.fixture
def sample(make_graph: MakeGraph) -> Sample:
    graph = make_graph()
    kept = Sample()
    for node_id, (type_id, attributes) in enumerate(graph.nodes):
        kind = graph.node_types[type_id]
        record = {"node_id": node_id, "node_type": kind.name, "is_candidate": kind.candidate, "attributes": attributes}
        kept.take(record)
    return kept


def edit_lines(name: str, change: Callable[[list[str]], list[str]]) -> Damage:
    def damage(folder: Path) -> None:
        with (folder / name).open(encoding="utf-8", newline="\n") as file:
            lines = list(file)
        (folder / name).write_text("".join(change(lines)), encoding="utf-8")

    return damage


def edit_schema(change: Callable[[dict[str, Any]], object]) -> Damage:
    def damage(folder: Path) -> None:
        schema = json.loads((folder / "schema.json").read_text())
        change(schema)
        (folder / "schema.json").write_text(json.dumps(schema))

    return damage


def substitute(name: str, old: str, new: str) -> Damage:
    return edit_lines(name, lambda lines: [line.replace(old, new) for line in lines])


NODES, EDGES = "nodes/0000.jsonl", "edges/00.tsv"
DAMAGES: dict[str, tuple[Damage, str]] = {
    "a node is missing": (edit_lines(NODES, lambda lines: lines[:2] + lines[3:]), "found node 3 in place of 2"),
    "the last node is missing": (edit_lines(NODES, lambda lines: lines[:-1]), "4 of them, schema.json says 5"),
    "a node stands twice": (edit_lines(NODES, lambda lines: lines[:2] + lines[1:]), "found node 1 in place of 2"),
    "a node too many": (
        edit_lines(NODES, lambda lines: [*lines, lines[-1].replace(":4,", ":5,", 1)]),
        "found node 5 in place of 5",
    ),
    "two nodes are swapped": (edit_lines(NODES, lambda lines: [lines[1], lines[0], *lines[2:]]), "in place of 0"),
    "a file too many": (lambda folder: (folder / "nodes" / "0001.jsonl").touch(), "unexpected files"),
    "a node has another type": (
        substitute(
            NODES,
            '"town","is_candidate":false,"attributes":{"name":"Ys"',
            '"person","is_candidate":false,"attributes":{"name":"Ys"',
        ),
        "4 nodes, 3 candidates of type person, schema.json says 3, 3",
    ),
    "a candidate is not listed": (
        edit_lines("candidate_ids.txt", lambda lines: lines[1:]),
        "candidate_ids.txt differs",
    ),
    "a flag is turned": (substitute(NODES, "true", "false"), "candidate_ids.txt differs"),
    "an attribute has changed": (substitute(NODES, "Ulm", "Ulf"), "node 2 differs from its source"),
    "an attribute is lost": (substitute(NODES, '"tags":[]', '"tag":[]'), "node 1 differs from its source"),
    "the keys are in another order": (
        substitute(NODES, '"node_id":0,"node_type":"person"', '"node_type":"person","node_id":0'),
        "node 0 has the keys",
    ),
    "a row is missing": (edit_lines(EDGES, lambda lines: lines[:-1]), "00.tsv: 2 rows, schema.json says 3"),
    "a row too many": (edit_lines(EDGES, lambda lines: [*lines, lines[-1]]), "00.tsv: 4 rows, schema.json says 3"),
    "two rows are swapped": (
        edit_lines(EDGES, lambda lines: [lines[0], lines[2], lines[1], lines[3]]),
        "00.tsv: rows differ from the source",
    ),
    "the schema counts other candidates": (
        edit_schema(lambda schema: schema.update(candidates=2)),
        "3 candidates, schema.json says 2",
    ),
    "the schema counts other candidates of a type": (
        edit_schema(lambda schema: schema["node_types"][0].update(candidates=2)),
        "3 nodes, 3 candidates of type person, schema.json says 3, 2",
    ),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_the_check_finds_that(name: str, tiny_export: Path, sample: Sample, make_graph: MakeGraph) -> None:
    edges = make_graph().edges
    check_export(tiny_export, sample, edges)
    damage, message = DAMAGES[name]
    damage(tiny_export)
    with pytest.raises(CheckFailed, match=re.escape(message)):
        check_export(tiny_export, sample, edges)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ([3, 5], "00.tsv: target [5] is no node"),
        ([-1, 0], "00.tsv: source [-1] is no node"),
        ([2, 0], "00.tsv: source 2 is a town, schema.json says person"),
        ([0, 2], "00.tsv: target 2 is a town, schema.json says person"),
    ],
)
def test_a_source_whose_rows_join_no_nodes_or_the_wrong_ones_is_refused(
    row: list[int], message: str, tmp_path: Path, make_graph: MakeGraph
) -> None:
    with pytest.raises(CheckFailed, match=re.escape(message)):
        write_export(make_graph(edges=[np.array([[0, 1], row]), np.array([[1, 2]])]), tmp_path / "x")
    assert not (tmp_path / "x").exists()


def sampled(length: int) -> list[int]:
    sample = Sample()
    for number in range(length):
        if number == sample.due:
            sample.take({"number": number})
    return [record["number"] for record in sample.records]


@pytest.mark.parametrize("length", [0, 1, 99, 100])
def test_a_short_stream_is_kept_whole(length: int) -> None:
    assert sampled(length) == list(range(length))


def test_a_sample_is_the_same_each_time_and_spread_evenly_over_the_stream() -> None:
    numbers = sampled(20_000)
    assert numbers == sampled(20_000)
    assert len(set(numbers)) == len(numbers) == SAMPLE_SIZE
    assert np.histogram(numbers, bins=4, range=(0, 20_000))[0].min() >= 10


def test_values_are_compared_as_json_holds_them() -> None:
    assert plain({"a": (1, float("nan"), {"b": [float("inf"), 2.5, True, None, "x"]})}) == {
        "a": [1, None, {"b": [None, 2.5, True, None, "x"]}]
    }
