"""Calls of graph tools, made as functions or from a program, and what their outputs say.

>>> parse_links("[3] Drama (genre): found 1 results\\n0. <-is_a- [11] Sea drama\\nshown: 1 of 1", 3)
Links(links=(Link(relation='is_a', node=11, outgoing=False, name='Sea drama'),), complete=True)

A conversation asks for calls in batches; `as_functions` and `as_programs` turn a batch into what the model says, and back.
Not covered: which calls are made (graph_talk.py).
"""

import json
import re
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any

from dkgi.models.heuristic.agent import Action
from dkgi.models.heuristic.evidence import json_lines

SIZES = {"get_schema": (1, 17_000), "search": (4, 4_200), "get_node": (4, 4_000), "neighbors": (8, 2_000)}
"""Calls that a program makes, and characters of each output that it prints: so many are shown to it whole."""

_HIT = re.compile(r"^\[(\d+)\] (.*) \(([^()]*)\)  score [\d.]+$")
_HEAD = re.compile(r"^\[(\d+)\] .*: (?:found (\d+) results|no results.*)$")
_LINK = re.compile(r"^\d+\. (<?)-(\S+)-(>?) \[(\d+)\] (.*)$")


@dataclass(frozen=True, slots=True)
class Call:
    tool: str
    arguments: tuple[tuple[str, Any], ...] = ()

    @staticmethod
    def of(tool: str, **arguments: Any) -> "Call":
        return Call(tool, tuple(arguments.items()))


Batches = Generator[list[Call], list[str], Any]
"""A conversation that asks for batches of calls and gets their outputs."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that a search found; `texts` are its name and what is shown of its summary, part by part."""

    node: int
    type: str
    texts: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Link:
    relation: str
    node: int
    outgoing: bool
    name: str


@dataclass(frozen=True, slots=True)
class Links:
    """Neighbours that were listed; `complete` where there are no others under the same filters."""

    links: tuple[Link, ...]
    complete: bool


def parse_hits(output: str) -> list[Hit]:
    found: list[Hit] = []
    for line in output.splitlines():
        if match := _HIT.match(line):
            found.append(Hit(int(match[1]), match[3], (match[2],)))
        elif found and line.startswith("    "):
            hit = found[-1]
            found[-1] = Hit(hit.node, hit.type, (*hit.texts, *(part.strip(" .") for part in line.split(";"))))
    return found


def parse_links(output: str, node: int) -> Links:
    """The neighbours of `node`; none, and not complete, where the output is none of its neighbours."""
    first, *rest = output.splitlines() or [""]
    head = _HEAD.match(first)
    if head is None or int(head[1]) != node:
        return Links((), False)
    links = []
    for line in rest:
        if match := _LINK.match(line):
            ways = [way for way, mark in ((False, match[1]), (True, match[3])) if mark]
            links += [Link(match[2], int(match[4]), way, match[5]) for way in ways]
    return Links(tuple(links), len({link.node for link in links}) >= int(head[2] or 0))


def parse_node(output: str) -> dict[str, Any]:
    """The record of a node, or what there is of it; empty where the output is none."""
    try:
        record = json.loads(output)
    except ValueError:
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("attributes"), dict) else {}


Lead = Callable[[list[Call]], Generator[list[Action], list[str], list[str]]]
"""Has a batch of calls made, and gives their outputs in order."""


def as_functions(calls: list[Call]) -> Generator[list[Action], list[str], list[str]]:
    """Each call is a tool call of the model."""
    outputs = yield [Action(call.tool, dict(call.arguments)) for call in calls]
    return outputs


def as_programs(module: str) -> Lead:
    """Programs make the calls, each some of them, through the client module of that name."""

    def lead(calls: list[Call]) -> Generator[list[Action], list[str], list[str]]:
        size = min(SIZES[call.tool][0] for call in calls)
        parts = [calls[start : start + size] for start in range(0, len(calls), size)]
        outputs = yield [Action("bash", {"command": program(module, part)}) for part in parts]
        found: list[str] = []
        for part, output in zip(parts, outputs, strict=True):
            texts = {line.get("call"): line.get("text") for line in json_lines([output])}
            found += [str(texts.get(place, "")) for place in range(len(part))]
        return found

    return lead


def program(module: str, calls: Sequence[Call]) -> str:
    """A command line that makes the calls and prints each output as a JSON line."""
    listed = "".join(f"    ({call.tool!r}, {dict(call.arguments)!r}),\n" for call in calls)
    shown = max(SIZES[call.tool][1] for call in calls)
    return (
        f"python3 - <<'E'\nimport json\nimport {module} as graph\n\ncalls = [\n{listed}]\n"
        "for place, (name, arguments) in enumerate(calls):\n"
        f"    text = getattr(graph, name)(**arguments)[:{shown}]\n"
        '    print(json.dumps({"call": place, "text": text}, ensure_ascii=False))\nE'
    )
