"""The conversation that the heuristic leads, written as a generator of turns.

    turn = next(talk)                  # [Action("read", {"path": "DATA_FORMAT.txt"}), ...]
    turn = talk.send(["HOW THIS ...", ...])

It reads the format and the schema, finds the names in the question, computes what each reading of the question gives,
loosens the best readings to find what comes next, looks at the records of the answers, and answers. `play` runs it over
a history and gives what it says next; there is no other state.
Not covered: understanding the question (question.py, interpretation.py), the programs' text (programs.py).
"""

import json
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from dkgi.models.heuristic import programs
from dkgi.models.heuristic.evidence import Finding, findings, ranked, text_attributes
from dkgi.models.heuristic.interpretation import readings
from dkgi.models.heuristic.reading import Reading, expression, looser
from dkgi.models.heuristic.schema import Schema, parse_schema
from dkgi.models.heuristic.text import Text, quotes_in
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


def play(history: Sequence[Item]) -> tuple[str, tuple[ToolCall, ...]]:
    """The text and the calls of the next reply to `history`."""
    prompt = next((item.text for item in history if isinstance(item, UserText)), "")
    talk = converse(prompt)
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
    question = _question(prompt)
    texts = yield [Action("read", {"path": "DATA_FORMAT.txt"}), Action("read", {"path": "schema.json"})]
    schema = parse_schema("\n".join(texts[-1:]))
    found = yield from _run(programs.link(question, [(start, end) for start, end, _ in quotes_in(question)]))
    links = [line for line in found if "nodes" in line]
    named = [node[0] for link in links for node in link["nodes"]]
    order: list[int] = []
    if schema is not None:
        order = yield from _by_reading(question, links, schema, text_attributes(found, question))
    if not order:
        found = yield from _run(programs.search(question, named))
        order = [line["id"] for line in found if "id" in line]
    order = [*(node for node in order if node not in named), *(node for node in order if node in named)]
    found = yield from _run(programs.check(order[: 2 * ANSWERS]))
    refused = {line["id"] for line in found if line.get("is_candidate") is False}
    answer = [node for node in order if node not in refused][:ANSWERS]
    return json.dumps({_answer_key(prompt): answer})


def _by_reading(
    question: str, links: list[dict[str, Any]], schema: Schema, keys: dict[str, list[str]]
) -> Generator[list[Action], list[str], list[int]]:
    """Nodes in order of support: what the readings give, then what they give when one requirement is dropped."""
    possible = readings(Text.of(question, links, schema), schema, frozenset(keys))
    if not possible:
        return []
    support = yield from _evaluate(possible, schema, keys)
    best = sorted(support, key=lambda finding: -finding.weight)[:LOOSENED]
    wider = [loose for finding in best for loose in looser(finding.reading)]
    if not best:
        wider = [loose for reading in possible for loose in looser(reading)]
    order = ranked(support)
    if len(order) < ANSWERS and wider:
        order += ranked((yield from _evaluate(wider, schema, keys)))
    return list(dict.fromkeys(order))


def _evaluate(
    possible: list[Reading], schema: Schema, keys: dict[str, list[str]]
) -> Generator[list[Action], list[str], list[Finding]]:
    wholes = [
        (expression(reading, schema, keys), [expression(loose, schema, keys) for loose in looser(reading)])
        for reading in possible
    ]
    found = yield from _run(programs.evaluate(wholes))
    return findings(possible, found)


def _run(program: str) -> Generator[list[Action], list[str], list[dict[str, Any]]]:
    """Runs a program in one turn: the JSON objects among the lines of its output; all else is left out."""
    texts = yield [Action("bash", {"command": programs.run(program)})]
    found = []
    for line in "\n".join(texts).splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def _question(prompt: str) -> str:
    found = re.search(r"^Question:\s*(.+?)(?:\n\n|\Z)", prompt, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else prompt


def _answer_key(prompt: str) -> str:
    found = re.search(r'\{"(\w+)": \[', prompt)
    return found[1] if found else "node_ids"
