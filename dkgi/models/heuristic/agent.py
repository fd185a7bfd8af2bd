"""The conversation that the heuristic leads, written as a generator of turns.

    turn = next(talk)                  # [Action("read", {"path": "DATA_FORMAT.txt"}), ...]
    turn = talk.send(["HOW THIS ...", ...])

`play` runs it over a history and gives what it says next; there is no other state.
Not covered: reading the question (question.py, interpretation.py), the programs' text (programs.py).
"""

import json
import math
import re
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import Any

from dkgi.models.heuristic import programs
from dkgi.types import Item, Reply, ToolCall, ToolResult, UserText


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
    """Rough first form: links names, ranks what is near them."""
    question = _question(prompt)
    yield [Action("read", {"path": "DATA_FORMAT.txt"}), Action("read", {"path": "schema.json"})]
    (output,) = yield [Action("bash", {"command": programs.run(programs.link(question))})]
    linked = [node[0] for span in _lines(output) if "nodes" in span for node in span["nodes"]]
    (output,) = yield [Action("bash", {"command": programs.run(programs.near(linked))})]
    ids = [line["id"] for line in _lines(output) if "id" in line]
    return json.dumps({"node_ids": ids[:20]})


def _question(prompt: str) -> str:
    found = re.search(r"^Question:\s*(.+?)(?:\n\n|\Z)", prompt, re.DOTALL | re.MULTILINE)
    return found[1].strip() if found else prompt


def _lines(output: str) -> list[dict[str, Any]]:
    """The JSON objects among the lines of an output; all else is left out."""
    found = []
    for line in output.splitlines():
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict):
            found.append(value)
    return found


def rank(costs: list[float], found: list[dict[str, Any]]) -> tuple[list[int], int]:
    """Nodes by how much the readings that have them weigh, and the reading that weighs most."""
    weights: dict[int, float] = {}
    for line in found:
        size, looser_sizes = line["size"], line["looser"]
        if not size:
            continue
        needed = sum(other != size for other in looser_sizes) / max(1, len(looser_sizes))
        weight = math.exp(costs[0] - costs[line["reading"]]) * (0.1 + 0.9 * needed**2)
        weights[line["reading"]] = weight if size <= 20 else weight * 20 / size
    scores: dict[int, float] = {}
    for line in found:
        for node in line["ids"]:
            scores[node] = scores.get(node, 0.0) + weights[line["reading"]]
    best = max(weights, key=lambda place: (weights[place], -place), default=-1)
    return sorted(scores, key=lambda node: (-scores[node], node)), best
