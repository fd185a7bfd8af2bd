"""The rule-based agent with graph tools: as functions, from programs, without neighbors, with nothing at all."""

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from dkgi.kg.index import Index, open_index
from dkgi.kg.server import GraphSeat, GraphServer
from dkgi.kg.text import IndexSpec
from dkgi.kg.tools import graph_tools
from dkgi.models.heuristic.graph_calls import Links, parse_hits, parse_links
from dkgi.paths import data_dir
from dkgi.tools import GRAPH_TOOLS, make_tools
from dkgi.types import Item, Reply, Tool
from tests.models.conftest import PlainShell, converse_after, prompt
from tests.models.films import QUESTIONS


@pytest.fixture(scope="session")
def index(film_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Index:
    return open_index(
        film_export, IndexSpec(names=("title", "name"), summary=("plot",)), tmp_path_factory.mktemp("cache")
    )


@pytest.fixture
def seat(index: Index, tmp_path: Path) -> Iterator[GraphSeat]:
    folder = tmp_path / "server"
    folder.mkdir()
    with (
        GraphServer(folder, graph_tools(index), "") as server,
        server.attempt(GRAPH_TOOLS, GRAPH_TOOLS, tmp_path / "calls.jsonl") as seat,
    ):
        yield seat


@pytest.fixture
def shell(seat: GraphSeat, tmp_path: Path) -> dict[str, Tool]:
    """bash in a folder that holds the client and nothing of the graph."""
    folder = tmp_path / "empty"
    folder.mkdir()
    for path, name in seat.files:
        os.link(path, folder / name)
    return make_tools(("bash", "read"), PlainShell(folder, tmp_path, count()), {})


def answer(history: list[Item]) -> list[int]:
    last = history[-1]
    assert isinstance(last, Reply)
    found: list[int] = json.loads(last.text)["node_ids"]
    return found


def asked_by_program(question: str) -> str:
    section = (data_dir("prompts") / "tools_graph_code.md").read_text()
    return prompt(question).replace("Files in /graph.", section)


@pytest.mark.parametrize("shown", QUESTIONS)
def test_the_right_answers_come_first_with_functions(shown: str, seat: GraphSeat) -> None:
    question, right = QUESTIONS[shown]
    assert set(answer(converse_after(prompt(question), dict(seat.tools)))[: len(right)]) == right


@pytest.mark.parametrize("shown", ["one hop by a certain relation", "denial", "two hops", "text and names"])
def test_programs_find_what_functions_find(shown: str, seat: GraphSeat, shell: dict[str, Tool]) -> None:
    question, right = QUESTIONS[shown]
    history = converse_after(asked_by_program(question), shell)
    assert set(answer(history)[: len(right)]) == right
    made = [call for item in history if isinstance(item, Reply) for call in item.calls]
    assert {call.name for call in made} == {"bash"}
    assert seat.calls() > len(made)
    assert answer(history) == answer(converse_after(prompt(question), dict(seat.tools)))


def test_without_neighbors_texts_are_found_and_every_reply_calls_or_answers(seat: GraphSeat) -> None:
    tools = {name: tool for name, tool in seat.tools.items() if name != "neighbors"}
    for question, _ in QUESTIONS.values():
        history = converse_after(prompt(question), tools)
        called = {call.name for item in history if isinstance(item, Reply) for call in item.calls}
        assert called <= set(tools)
        answer(history)
    found = answer(converse_after(prompt('Which films have "goat" in their plot?'), tools))
    assert found[0] == 3


def test_with_no_tools_there_is_one_reply_and_no_guess() -> None:
    history = converse_after(prompt("Which films star Ada Lund?"), {})
    assert len(history) == 2
    assert answer(history) == []


def test_outputs_that_are_no_lists_say_nothing() -> None:
    assert parse_hits("neighbors: k must be 20 or less\n[1] no hit\n    nothing") == []
    assert parse_links("", 1) == parse_links("get_node: there is no node 7", 1) == Links((), False)
    assert parse_links("[2] Drama (genre): no results", 1) == Links((), False)
    assert parse_links("[1] Drama (genre): no results", 1) == Links((), True)
