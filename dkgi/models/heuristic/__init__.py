"""A rule-based agent that plays the part of a language model: no key, no cost, the same reply every time.

>>> heuristic = Heuristic(HeuristicSpec(kind="heuristic", name="heuristic", prices=None))
>>> heuristic.model(place).reply([UserText(prompt)], tools).calls[0].arguments
'{"path": "DATA_FORMAT.txt"}'

It knows nothing but the history that it is given: agent.py is a conversation written as a generator, which every reply
plays again from the start. Tokens are counted as four characters each.
Not covered: what it says and runs (agent.py).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dkgi.types import Item, Model, Place, Prices, Reply, ToolResult, ToolSpec, Usage

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class HeuristicSpec:
    """From conf/model/heuristic.yaml."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["heuristic"]
    name: str
    prices: Prices | None


class Heuristic:
    """Models that are all alike: nothing depends on the query's number, the attempt or the time."""

    def __init__(self, spec: HeuristicSpec) -> None:
        self.spec = spec

    def model(self, place: Place) -> Model:
        return _Player()


@dataclass(frozen=True, slots=True)
class _Player:
    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        from dkgi.models.heuristic.agent import converse, play
        from dkgi.models.heuristic.graph_talk import lead_graph

        names = [tool.name for tool in tools]
        text, calls = play(history, lambda prompt: lead_graph(prompt, names) or converse(prompt))
        said = len(text) + sum(len(call.name) + len(call.arguments) for call in calls)
        return Reply(text=text, calls=calls, usage=_usage(history, tools, said))


def _usage(history: Sequence[Item], tools: Sequence[ToolSpec], said: int) -> Usage:
    """What the request had that the attempt's request before it had too counts as read from a cache."""
    earlier = max((place for place, item in enumerate(history) if isinstance(item, Reply)), default=None)
    offered = sum(len(tool.name) + len(tool.description) + len(str(tool.parameters)) for tool in tools)
    whole = (offered + sum(map(_length, history))) // CHARACTERS_PER_TOKEN
    cached = 0 if earlier is None else (offered + sum(map(_length, history[:earlier]))) // CHARACTERS_PER_TOKEN
    return Usage(input_fresh=whole - cached, cache_read=cached, output=said // CHARACTERS_PER_TOKEN, requests=1)


def _length(item: Item) -> int:
    calls = item.calls if isinstance(item, Reply) else ()
    name = len(item.name) if isinstance(item, ToolResult) else 0
    return len(item.text) + name + sum(len(call.name) + len(call.arguments) for call in calls)
