"""Every harness under every tool policy, with each model that needs no key: it answers, or says in one line why not.

Harnesses and policies are those of conf/; a new file there is tested without a change here. What does not go together
is a table, so that nothing drops out of the suite by an error of its own.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.harness import open_harness
from dkgi.paths import data_dir
from dkgi.types import SetupError
from tests.composed import composed
from tests.models.films import QUESTIONS
from tests.one_query import Films, Told, films_cell, write_all

HARNESSES = sorted(path.stem for path in (data_dir("conf") / "harness").glob("*.yaml"))
POLICIES = sorted(path.stem for path in (data_dir("conf") / "tools").glob("*.yaml"))
WITHOUT_MODEL = ("bm25", "dense", "hybrid")
WITHOUT_FILES = ("closed_book", "graph_tools", "graph_tools_code", "retrieval_only")
CANNOT = {
    **{(name, policy): "reads the node files" for name in WITHOUT_MODEL for policy in WITHOUT_FILES},
    ("codex", "shell_only"): "is a programming language; use harness=",
    ("codex", "one_program"): "is a programming language; use harness=",
}
"""What does not go together, and words of the reason that is given."""

QUESTION, RIGHT = QUESTIONS["one hop by a certain relation"]
CALLS: dict[str, tuple[dict[str, Any], str]] = {
    "bash": ({"command": "echo $((6 * 7)) > /scratch/sum; cat /scratch/sum; ls -A /graph"}, "42\n"),
    "read": ({"path": "/scratch/sum"}, "42"),
    "get_schema": ({}, "lead_role"),
    "search": ({"query": "lighthouse"}, "Harbour Lights"),
    "get_node": ({"node_id": 3}, "The Quiet Orchard"),
    "neighbors": ({"node_id": 9}, "The Long Boat"),
}
"""A call of each tool, and what its result must hold."""
OFFERED = {("codex", "graph_tools_code"): ("get_schema", "search", "get_node", "neighbors")}
"""What programs call, where that is what a model without a server is offered instead of the policy's own tools."""
ANSWER = '{"node_ids": [3, 0]}'
FINDS = {"full_dkgi", "shell_only", "one_program", "graph_tools", "graph_tools_code"}
"""Policies under which the question can be answered."""


@pytest.fixture(scope="session")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    return write_all(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Writes a script that calls each of some tools once, one a turn, and answers; gives its options."""

    def write(*tools: str) -> list[str]:
        turns: list[dict[str, Any]] = [
            {"text": f"Now {name}.", "calls": [{"name": name, "arguments": CALLS[name][0]}], "usage": {"output": 5}}
            for name in tools
        ]
        path = tmp_path / "replies.json"
        path.write_text(json.dumps({"*": [[*turns, {"text": ANSWER, "usage": {"output": 7}}]]}))
        return ["model=scripted", f"model.replies={path}"]

    return write


def opened(harness: str, policy: str, *more: str) -> list[str]:
    """The options of a pair that goes together; the others raise here, and end the test, as they should.

    Skips where a program is not installed.
    """
    options = [f"harness={harness}", f"tools={policy}", *more]
    model = [] if harness in WITHOUT_MODEL else ["model=heuristic"]
    try:
        open_harness((experiment := composed(*options, *model)).harness).check(experiment.tools)
    except SetupError as error:
        if "install" in str(error):
            pytest.skip(str(error))
        raise
    return options


def refused(harness: str, policy: str) -> bool:
    """Whether the pair does not go together; then its reason is one line, which names what to change."""
    if (harness, policy) not in CANNOT:
        return False
    with pytest.raises(SetupError) as caught:
        opened(harness, policy)
    reason = str(caught.value)
    assert "\n" not in reason
    assert CANNOT[harness, policy] in reason
    assert reason.startswith(("tools.", "tools="))
    return True


def check_answered(told: Told) -> None:
    result = told.result
    assert (result.outcome, result.stops, result.error) == ("scored", ("answered",), "")
    assert result.flags == ()
    assert told.steps[0].type == "user"
    # Codex tells of its surroundings as a user, too.
    assert sum(step.text.count(QUESTION) for step in told.steps if step.type == "user") == 1
    assert told.steps[-1].text == result.final_answer


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("harness", HARNESSES)
def test_a_pair_answers_with_the_rule_based_agent_or_says_why_not(
    harness: str, policy: str, films: Films, tmp_path: Path
) -> None:
    if refused(harness, policy):
        return
    model = [] if harness in WITHOUT_MODEL else ["model=heuristic"]
    with films_cell([*opened(harness, policy), *model], films, tmp_path) as cell:
        told = cell.ask(QUESTION)
    assert told is not None
    if harness in WITHOUT_MODEL:
        assert told.result.outcome == "scored"
        return
    check_answered(told)
    assert policy not in FINDS or set(told.result.node_ids[:2]) == RIGHT
    assert told.result.usage.output > 0


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("harness", [name for name in HARNESSES if name not in WITHOUT_MODEL])
def test_a_pair_does_what_a_script_says_and_shows_its_results(
    harness: str, policy: str, films: Films, script: Any, tmp_path: Path
) -> None:
    if refused(harness, policy):
        return
    options = opened(harness, policy)
    tools = OFFERED.get((harness, policy)) or composed(f"tools={policy}").tools.tools
    with films_cell([*options, *script(*tools)], films, tmp_path) as cell:
        told = cell.ask(QUESTION)
    assert told is not None
    check_answered(told)
    assert told.result.node_ids == (3, 0)
    results = [step.text for step in told.steps if step.type == "tool_result"]
    assert len(results) == len(tools)
    for name, result in zip(tools, results, strict=True):
        assert CALLS[name][1] in result, name
    assert (told.result.turns, told.result.usage.output) == (len(tools) + 1, 5 * len(tools) + 7)
    assert told.result.graph_calls == sum(name in films.tools for name in tools)


@pytest.mark.parametrize("policy", ["full_dkgi", "graph_tools", "graph_tools_code"])
@pytest.mark.parametrize(("harness", "version"), [("pi", "0.73.1"), ("codex", "0.171.0")])
def test_the_other_version_of_a_program_answers_as_well(
    harness: str, version: str, policy: str, films: Films, tmp_path: Path
) -> None:
    options = opened(harness, policy, f"harness.version={version}")
    with films_cell([*options, "model=heuristic"], films, tmp_path) as cell:
        told = cell.ask(QUESTION)
    assert told is not None
    check_answered(told)
    assert set(told.result.node_ids[:2]) == RIGHT


@pytest.mark.parametrize("harness", WITHOUT_MODEL)
@pytest.mark.parametrize("model", ["heuristic", "scripted"])
def test_a_baseline_takes_no_model(harness: str, model: str) -> None:
    options = ["model.replies=nowhere"] if model == "scripted" else []
    with pytest.raises(SetupError, match=f"model={model}: harness={harness} asks no model") as caught:
        load([f"harness={harness}", f"model={model}", *options])
    assert "\n" not in str(caught.value)
