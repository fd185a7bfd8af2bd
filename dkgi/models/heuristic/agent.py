"""The conversation that the heuristic leads, written as a generator of turns.

    turn = next(talk)                  # [Action("read", {"path": "DATA_FORMAT.txt"}), ...]
    turn = talk.send(["HOW THIS ...", ...])

It reads the format and the schema, finds the names in the question, computes what each reading of the question gives,
loosens the best readings to find what comes next, looks at the records of the answers, and answers. `play` runs it over
a history and gives what it says next; there is no other state.
Not covered: what the question means (understanding.py), what programs can be written in (toolbox.py).
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from dkgi.models.heuristic.evidence import Finding, findings, json_lines, ranked
from dkgi.models.heuristic.reading import Reading, looser
from dkgi.models.heuristic.text import quotes_in
from dkgi.models.heuristic.toolbox import Toolbox, toolbox
from dkgi.models.heuristic.understanding import Understanding, strange_words, understand
from dkgi.types import Item, Reply, ToolCall, ToolResult, UserText

ANSWERS = 20
LOOSENED = 3
"""How many of the best readings are loosened."""


@dataclass(frozen=True, slots=True)
class Action:
    """A tool to be called."""

    tool: str
    arguments: dict[str, Any]


Talk = Generator[list[Action], list[str], str]


def play(history: Sequence[Item], begin: Callable[[str], Talk]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text and the calls of the next reply to `history`; `begin` makes the conversation for a prompt."""
    prompt = next((item.text for item in history if isinstance(item, UserText)), "")
    talk = begin(prompt)
    outputs: list[list[str]] = []
    for item in history:
        if isinstance(item, Reply):
            outputs.append([])
        elif isinstance(item, ToolResult) and outputs:
            outputs[-1].append(item.text)
    try:
        turn = next(talk)
        for texts in outputs:
            turn = talk.send(texts)
    except StopIteration as end:
        return end.value, ()
    calls = (
        ToolCall(f"call_{len(outputs)}_{place}", action.tool, json.dumps(action.arguments))
        for place, action in enumerate(turn)
    )
    return "", tuple(calls)


def converse(prompt: str) -> Talk:
    """One attempt, from the prompt to the JSON object that is its answer."""
    question = question_in(prompt)
    texts = yield [Action("read", {"path": "DATA_FORMAT.txt"}), Action("read", {"path": "schema.json"})]
    schema_text = "\n".join(texts[-1:])
    tools = toolbox("\n".join([prompt.replace(question, ""), *texts[:-1]]))
    quoted = [(start, end) for start, end, _ in quotes_in(question)]
    linked = yield [_command(tools.link(question, quoted, strange_words(question, schema_text)))]
    understood = understand(question, schema_text, tools.names(question, quoted, "\n".join(linked)))
    order: list[int] = []
    if understood.readings:
        order = yield from _by_reading(understood, tools)
    if not order or not understood.is_linked:
        found = yield [_command(tools.search(question, understood.named, understood.asked))]
        similar = [line["id"] for line in json_lines(found) if isinstance(line.get("id"), int)]
        # What texts alone give has no order of its own.
        order = list(dict.fromkeys([*(node for node in similar if node in order), *order, *similar]))
    order.sort(key=lambda node: node in understood.named)
    found = yield [_command(tools.check(order[: 2 * ANSWERS]))]
    refused = [line.get("id") for line in json_lines(found) if line.get("is_candidate") is False]
    answer = [node for node in order if node not in refused][:ANSWERS]
    return json.dumps({answer_key(prompt): answer})


def _by_reading(understood: Understanding, tools: Toolbox) -> Generator[list[Action], list[str], list[int]]:
    """Nodes in order of support: what the readings give, then what they give when one requirement is dropped."""
    possible = understood.readings
    ahead = [loose for reading in possible for loose in looser(reading)] if tools.at_once else []
    found = yield from _evaluate([*possible, *ahead], understood, tools)
    support = [finding for finding in found if finding.reading in possible]
    best = [finding.reading for finding in sorted(support, key=lambda finding: -finding.weight)[:LOOSENED]]
    wider = [loose for reading in best or possible for loose in looser(reading)]
    order = ranked(support)
    if len(order) < ANSWERS and wider:
        found = found if tools.at_once else (yield from _evaluate(wider, understood, tools))
        order += ranked([finding for finding in found if finding.reading in wider])
    return list(dict.fromkeys(order))


def _evaluate(
    possible: Sequence[Reading], understood: Understanding, tools: Toolbox
) -> Generator[list[Action], list[str], list[Finding]]:
    found = yield [_command(tools.evaluate([understood.expressions(reading) for reading in possible]))]
    return findings(possible, json_lines(found))


def _command(line: str) -> Action:
    return Action("bash", {"command": line})


def question_in(prompt: str) -> str:
    found = re.search(r"^Question:\s*(.+?)(?:\n\n|\Z)", prompt, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else prompt


def answer_key(prompt: str) -> str:
    found = re.search(r'\{"(\w+)": \[', prompt)
    return found[1] if found else "node_ids"
