"""The rule-based agent as a function of its history: no state, no crash whatever comes back, tokens counted."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.answer import parse_answer
from dkgi.models import open_models
from dkgi.models.heuristic import HeuristicSpec
from dkgi.tools import tool_spec
from dkgi.types import Item, Reply, Tool, ToolResult, ToolSpec, Usage, UserText
from tests.models.conftest import answer, converse, heuristic, prompt
from tests.models.films import QUESTIONS
from tests.places import free_place

ROOT = Path(__file__).parents[2]
OFFERED = [tool_spec("bash"), tool_spec("read")]
TWO_HOPS = QUESTIONS["two hops"][0]


def test_the_same_history_gets_the_same_reply(two_hops: list[Item], tools: dict[str, Tool]) -> None:
    for place, item in enumerate(two_hops):
        if isinstance(item, Reply):
            assert heuristic().reply(two_hops[:place], [tool.spec for tool in tools.values()]) == item


def test_conversations_do_not_disturb_each_other(tools: dict[str, Tool]) -> None:
    model = heuristic()
    one, other = (converse(QUESTIONS[shown][0], tools) for shown in ("denial", "text"))
    specs = [tool.spec for tool in tools.values()]
    for place in range(max(len(one), len(other))):
        for history in (one, other):
            if place < len(history) and isinstance(history[place], Reply):
                assert model.reply(history[:place], specs) == history[place]


def test_replies_do_not_depend_on_the_seed_of_hashes(tools: dict[str, Tool]) -> None:
    history = converse(QUESTIONS["text and names"][0], tools)
    results = [[item.text for item in history if isinstance(item, ToolResult)][:3], history[0]]
    program = (
        "import sys\nfrom dkgi.models.heuristic.agent import converse, play\nfrom dkgi.types import *\n"
        f"texts = {results[0]!r}\n"
        f"history = [UserText({prompt(QUESTIONS['text and names'][0])!r}), Reply(), ToolResult('a', 'read', texts[0]),"
        " ToolResult('b', 'read', texts[1]), Reply(), ToolResult('c', 'bash', texts[2])]\n"
        "print(play(history, converse))\n"
    )
    said = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3", "4")
    }
    assert len(said) == 1
    assert "show(0" in said.pop()


GARBAGE = {
    "nothing": "",
    "an error": "bash: python3: command not found\n[exit code 127]",
    "a cut": '{"reading": 0, "size": 3, "ids": [1, 2\n[... harness output limit: 9000 of 40000 bytes ...]\n7, 8]}',
    "other JSON": '[1]\n7\nnull\n{}\n{"nodes": 3}\n{"id": "x"}\n{"reading": [], "size": {}, "ids": 4, "looser": 0}',
    "wrong links": '{"start": 9, "end": 3, "nodes": [[1]]}\n{"start": 0, "end": 5, "nodes": [null, [1, 2, 3]]}',
    "wrong counts": '{"type": [], "attributes": {"a": [1]}, "words": {"film": "x"}}\n{"type": "film", "attributes": 3}',
    "half a schema": '{"node_types": [{"name": "film"}], "relation_types": []}',
    "deep JSON": "[" * 100_000,
    "200,000 lines": '{"id": 4, "score": 1, "is_candidate": true}\n' * 200_000,
    "no text": "\x00\ud800\uffff",
}


@pytest.mark.parametrize("kind", GARBAGE)
@pytest.mark.parametrize("good", [0, 2, 3, 4])
def test_garbage_from_the_tools_ends_in_a_valid_answer(kind: str, good: int, two_hops: list[Item]) -> None:
    """After `good` true results all the others are garbage."""
    true = [item for item in two_hops if isinstance(item, ToolResult)][:good]
    history: list[Item] = [UserText(prompt(TWO_HOPS))]
    for _ in range(10):
        reply = heuristic().reply(history, OFFERED)
        history.append(reply)
        if not reply.calls:
            break
        for call in reply.calls:
            text = true.pop(0).text if true else GARBAGE[kind]
            history.append(ToolResult(call.id, call.name, text, is_error=not true))
    assert not reply.calls
    parse_answer(reply.text, key="node_ids")


def test_a_node_whose_record_says_that_it_is_no_candidate_is_left_out(two_hops: list[Item]) -> None:
    history = two_hops[:-1]
    last = history[-1]
    assert isinstance(last, ToolResult)
    history[-1] = ToolResult(last.call_id, last.name, '{"id": 6, "type": "person", "is_candidate": false}')
    ids = parse_answer(heuristic().reply(history, OFFERED).text, key="node_ids").entries
    assert ids[0] == 8
    assert 6 not in ids


@pytest.mark.parametrize(
    "question", ["hello", "", "?", "Which?", "E", "'''\n\\", 'The "words" of "', "not " * 200, "Wie heißt der Film?"]
)
def test_a_question_that_means_nothing_here_gets_a_valid_answer(question: str, tools: dict[str, Tool]) -> None:
    parse_answer(answer(question, tools), key="node_ids")


def test_a_history_without_results_for_calls_goes_on() -> None:
    history: list[Item] = [UserText(prompt(TWO_HOPS)), Reply(), Reply(), Reply(), Reply()]
    parse_answer(heuristic().reply(history, OFFERED).text or '{"node_ids": []}', key="node_ids")


def test_four_characters_are_a_token_and_what_was_sent_before_is_cached() -> None:
    spec = ToolSpec("bash", "x" * 96, {})
    offered = (len("bash") + 96 + len("{}")) // 4
    history: list[Item] = [UserText("u" * 398)]
    one = heuristic().reply(history, [spec])
    said = sum(len(call.name) + len(call.arguments) for call in one.calls)
    assert one.usage == Usage(input_fresh=500 // 4, output=said // 4, requests=1)
    assert offered == 25
    history += [one, ToolResult("a", "read", "r" * 100), ToolResult("b", "read", "")]
    two = heuristic().reply(history, [spec])
    assert two.usage.cache_read == 500 // 4
    assert two.usage.input_tokens == (500 + said + 100 + 2 * len("read")) // 4


def test_the_configured_kind_opens_it() -> None:
    model = open_models(HeuristicSpec("heuristic", "heuristic", None)).model(free_place(3, attempt=2, seconds=0))
    assert model.reply([UserText(prompt("hello"))], OFFERED).calls
