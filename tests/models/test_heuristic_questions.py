"""The rule-based agent with real tools on a graph that it was not made for: what it understands, also without names."""

import json
from pathlib import Path

import pytest

from dkgi.answer import parse_answer
from dkgi.types import Item, Reply, Tool, UserText
from tests.models.conftest import answer, heuristic, prompt, tools_in
from tests.models.films import QUESTIONS
from tests.models.renaming import rename


def first(found: str, count: int) -> set[int]:
    return set(json.loads(found)["node_ids"][:count])


@pytest.mark.parametrize("shown", QUESTIONS)
def test_the_right_answers_come_first(shown: str, tools: dict[str, Tool]) -> None:
    question, right = QUESTIONS[shown]
    assert first(answer(question, tools), len(right)) == right


@pytest.fixture(scope="session")
def renamed(film_export: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("renamed") / "films"
    rename(film_export, folder)
    return folder


@pytest.mark.parametrize("shown", QUESTIONS)
def test_names_of_types_relations_and_attributes_do_not_matter(shown: str, renamed: Path, tmp_path: Path) -> None:
    question, right = QUESTIONS[shown]
    assert first(answer(question, tools_in(renamed, tmp_path)), len(right)) == right


def test_the_graph_is_read_through_the_tools_alone(two_hops: list[Item]) -> None:
    replies = [item for item in two_hops if isinstance(item, Reply)]
    assert [call.name for call in replies[0].calls] == ["read", "read"]
    assert all(call.name == "bash" and "python3 - <<'E'" in call.arguments for r in replies[1:] for call in r.calls)
    assert 4 <= len(replies) <= 8


def test_an_answer_holds_candidates_only_and_no_node_twice(tools: dict[str, Tool]) -> None:
    ids = parse_answer(answer("Which films were shown at Ulm Film Days?", tools), key="node_ids").entries
    assert len(ids) == len(set(ids))
    assert set(ids) <= set(range(14))


def test_the_key_of_the_answer_is_the_one_that_the_prompt_shows(two_hops: list[Item]) -> None:
    asked = UserText(prompt(QUESTIONS["two hops"][0]).replace("node_ids", "found"))
    assert set(json.loads(heuristic().reply([asked, *two_hops[1:-1]], []).text)) == {"found"}


def test_named_nodes_come_after_all_others(tools: dict[str, Tool]) -> None:
    ids = json.loads(answer("Which films were shown at Ulm Film Days, where Harbour Lights was shown?", tools))[
        "node_ids"
    ]
    assert ids[0] in (0, 4, 5)
    assert 1 not in ids[:-1]
