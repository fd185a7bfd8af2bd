"""What agents read of the graph tools, word for word."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkgi.graph.export import SourceGraph, write_export
from dkgi.kg.index import Index, open_index
from dkgi.kg.text import IndexSpec
from dkgi.kg.tools import NAMES, graph_tools
from dkgi.tools import run_call
from dkgi.types import ToolCall, ToolOutput

Call = Callable[..., ToolOutput]


def caller(index: Index) -> Call:
    """Calls a tool as a harness does."""
    tools = graph_tools(index)

    def call(name: str, /, **args: Any) -> ToolOutput:
        return run_call(ToolCall("1", name, json.dumps(args)), tools, timeout_s=10)

    return call


@pytest.fixture
def call(index: Index) -> Call:
    return caller(index)


@pytest.fixture
def hub(make_library: Callable[..., SourceGraph], spec: IndexSpec, tmp_path: Path) -> Call:
    """A person who wrote forty books."""
    nodes = [(1, {"name": "Hub"}), *((0, {"title": f"Book of the lake {number}"}) for number in range(1, 41))]
    rows = [[0, number] for number in range(1, 41)]
    none = np.empty((0, 2), dtype=np.int64)
    write_export(make_library(nodes=nodes, edges=[np.array(rows), none, none]), tmp_path / "graphs" / "hub-1")
    return caller(open_index(tmp_path / "graphs" / "hub-1", spec, tmp_path))


def test_the_tools_are_those_of_the_paper_in_its_order(index: Index) -> None:
    tools = graph_tools(index)
    assert tuple(tools) == NAMES == ("get_schema", "search", "get_node", "neighbors")
    assert [tool.spec.name for tool in tools.values()] == list(tools)
    assert [list(tool.spec.parameters["properties"]) for tool in tools.values()] == [
        [],
        ["query", "k"],
        ["node_id"],
        ["node_id", "relation", "node_type", "query", "k"],
    ]


def test_search_shows_count_header_score_and_snippet(call: Call) -> None:
    assert call("search", query="keepers").text.splitlines() == [
        "found 1 results",
        "[1] Harbour Lights (book)  score 1.20",
        "    Lichter im Hafen; Two keepers quarrel by the lake.",
    ]


def test_a_node_without_a_summary_has_no_snippet_line(call: Call) -> None:
    assert [line[:30] for line in call("search", query="bremen").text.splitlines()] == [
        "found 1 results",
        "[2] Winter in Bremen (book)  s",
    ]


def test_search_returns_5_or_k(hub: Call) -> None:
    assert hub("search", query="lake").text.startswith("found 5 results\n")
    assert hub("search", query="lake", k=30).text.startswith("found 30 results\n")


def test_no_hit_is_no_error(call: Call) -> None:
    found = call("search", query="volcano")
    assert found.text.startswith("no results")
    assert not found.is_error


def test_get_node_is_the_record_in_compact_form(call: Call, export: Path) -> None:
    line = (export / "nodes" / "0000.jsonl").read_text().splitlines()[3]
    assert call("get_node", node_id=3).text == line
    assert " " not in json.loads(line)["node_type"]


def test_a_released_export_with_spaces_is_shown_compact(export: Path, spec: IndexSpec, tmp_path: Path) -> None:
    from dkgi.graph import manifest

    path = export / "nodes" / "0000.jsonl"
    compact = path.read_text().splitlines()
    path.write_text("".join(json.dumps(json.loads(line)) + "\n" for line in compact))
    manifest.write(manifest.of(export, {}), export)
    call = caller(open_index(export, spec, tmp_path))
    assert [json.loads(call("get_node", node_id=node).text) for node in range(6)] == list(map(json.loads, compact))
    assert '"node_id":0,"node_type":"book"' in call("get_node", node_id=0).text


def test_get_schema_is_the_file(call: Call, export: Path) -> None:
    assert call("get_schema").text == (export / "schema.json").read_text()


def test_neighbours_are_listed_with_arrows_names_and_counts(call: Call) -> None:
    assert call("neighbors", node_id=0).text.splitlines() == [
        "[0] The Long Boat (book): found 3 results",
        "0. <-wrote- [3] Ada Lund",
        "1. <-cites-> [1] Harbour Lights",
        "2. <-cites- [2] Winter in Bremen",
        "shown: 3 of 3",
    ]
    assert "0. -wrote-> [0] The Long Boat" in call("neighbors", node_id=3).text


def test_of_many_neighbours_20_or_k_are_shown_and_all_are_counted(hub: Call) -> None:
    lines = hub("neighbors", node_id=0).text.splitlines()
    assert lines[0] == "[0] Hub (person): found 40 results"
    assert lines[-2:] == ["19. -wrote-> [20] Book of the lake 20", "shown: 20 of 40"]
    assert hub("neighbors", node_id=0, k=2).text.splitlines()[-1] == "shown: 2 of 40"
    assert hub("neighbors", node_id=0, query="lake 33").text.splitlines()[1] == "0. -wrote-> [33] Book of the lake 33"


def test_neighbors_tells_no_links_from_none_left_by_filters(call: Call) -> None:
    assert call("neighbors", node_id=5).text == "[5]  (book): no results"
    left = call("neighbors", node_id=0, query="volcano")
    assert left.text == "[0] The Long Boat (book): no results under these filters; without them there are 3"
    assert not left.is_error


@pytest.mark.parametrize(
    ("name", "args", "taught"),
    [
        ("search", {"query": ""}, '{"query": "text"}'),
        ("search", {"query": " ?! "}, '{"query": "text"}'),
        ("search", {"query": "\ud800"}, '{"query": "text"}'),
        ("search", {}, "query is missing"),
        ("search", {"query": "lake", "k": 0}, "k must be 1 or more"),
        ("search", {"query": "lake", "k": 31}, "k must be 30 or less"),
        ("search", {"query": "lake", "k": "5"}, "k must be of type integer"),
        ("search", {"query": "lake", "n": 5}, "there is no argument n"),
        ("search", {"query": "a " * 1001}, "the query has 2002 characters, 2000 are the most"),
        ("neighbors", {"node_id": 0, "query": "a" * 2001}, "the query has 2001 characters, 2000 are the most"),
        ("get_node", {"node_id": "three"}, "node_id must be of type integer"),
        ("get_node", {"node_id": 1.5}, "node_id must be of type integer"),
        ("get_node", {"node_id": -1}, "node_id must be 0 or more"),
        ("get_node", {"node_id": 6}, "there is no node 6; IDs run from 0 to 5"),
        ("get_node", {"node_id": 10**40}, "IDs run from 0 to 5"),
        ("neighbors", {"node_id": 6}, "there is no node 6; IDs run from 0 to 5"),
        ("neighbors", {"node_id": 0, "k": 21}, "k must be 20 or less"),
        ("neighbors", {"node_id": 0, "relation": "read"}, 'no relation "read"; the relations are: wrote, cites, burnt'),
        ("neighbors", {"node_id": 0, "relation": "\ud800"}, "the relations are: wrote, cites, burnt"),
        ("neighbors", {"node_id": 0, "node_type": "town"}, 'no node type "town"; the node types are: book, person'),
        ("write", {}, "the tools are: get_schema, search, get_node, neighbors"),
    ],
)
def test_a_wrong_call_is_an_error_that_teaches_the_right_one(
    call: Call, name: str, args: dict[str, Any], taught: str
) -> None:
    output = call(name, **args)
    assert output.is_error
    assert taught in output.text
    output.text.encode()


def test_text_that_no_file_can_hold_finds_nothing(call: Call) -> None:
    assert "no results" in call("neighbors", node_id=0, query="\ud800").text
    assert call("search", query="lake \ud800").text.startswith("found ")


def test_a_query_may_have_2000_characters(call: Call) -> None:
    assert call("search", query=("lake " * 400).strip() + " ").text.startswith("found ")
    assert not call("neighbors", node_id=0, query="a " * 1000).is_error


def test_node_0_is_a_node(call: Call) -> None:
    assert not call("get_node", node_id=0).is_error
    assert not call("neighbors", node_id=0).is_error
