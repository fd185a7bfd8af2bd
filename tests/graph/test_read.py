import json
from pathlib import Path

import numpy as np
import pytest

from dkgi.graph.read import Node, read_candidates, read_edges, read_nodes, read_schema
from dkgi.graph.views import make_view


def test_nodes_come_in_order_with_their_attributes(tiny_export: Path) -> None:
    nodes = list(read_nodes(tiny_export))
    assert [node.node_id for node in nodes] == [0, 1, 2, 3, 4]
    assert nodes[0] == Node(0, "person", True, {"name": "Ada", "height": 1.7, "tags": ["a", "b"]})


def test_released_exports_with_a_space_after_colons_and_commas_read_the_same(tiny_export: Path) -> None:
    compact = list(read_nodes(tiny_export))
    path = tiny_export / "nodes" / "0000.jsonl"
    path.write_text("".join(json.dumps(json.loads(line)) + "\n" for line in path.read_bytes().splitlines()))
    assert '"node_id": 0, "node_type"' in path.read_text()
    assert list(read_nodes(tiny_export)) == compact


def test_edges_are_arrays_in_stored_order(tiny_export: Path) -> None:
    schema = read_schema(tiny_export)
    rows = read_edges(tiny_export, schema.relation("knows"))
    assert rows.dtype == np.int64
    assert rows.tolist() == [[3, 0], [0, 1], [3, 0]]
    assert read_edges(tiny_export, schema.relation("lives_in")).shape == (1, 2)


@pytest.mark.parametrize("content", ["3\t0\n", "source_id\ttarget_id\n3\tx\n", "source_id\ttarget_id\n3\n3\t1\n"])
def test_a_malformed_edge_file_is_an_error(content: str, tiny_export: Path) -> None:
    (tiny_export / "edges" / "00.tsv").write_text(content)
    with pytest.raises(ValueError):  # noqa: PT011
        read_edges(tiny_export, read_schema(tiny_export).relation("knows"))


def test_candidates_are_an_array(tiny_export: Path) -> None:
    assert read_candidates(tiny_export).tolist() == [0, 1, 3]


def test_the_schema_of_a_view_without_edges_has_no_relations(tiny_export: Path, tmp_path: Path) -> None:
    make_view(tiny_export, tmp_path / "view", graph=True, edges=False, tools_line=True)
    schema = read_schema(tmp_path / "view")
    assert (schema.relation_types, schema.notes) == ((), ())
    assert schema.node_types == read_schema(tiny_export).node_types


def test_an_unknown_relation_is_a_key_error(tiny_export: Path) -> None:
    with pytest.raises(KeyError, match="hates"):
        read_schema(tiny_export).relation("hates")
