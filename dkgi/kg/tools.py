"""The four graph tools over an index: get_schema, search, get_node, neighbors (paper, section 7).

>>> tools = graph_tools(index)                                             # doctest: +SKIP
>>> print(tools["search"].call({"query": "unsteady gait", "k": 1}, timeout_s=10).text)      # doctest: +SKIP
found 1 results
[1402] Ataxia (phenotype)  score 17.2
    Unsteady gait; A lack of order ...
>>> print(tools["neighbors"].call({"node_id": 1402, "relation": "is_a"}, timeout_s=10).text)    # doctest: +SKIP
[1402] Ataxia (phenotype): found 2 results
0. -is_a-> [88] Abnormality of movement
1. <-is_a- [1494] Gait ataxia
shown: 2 of 2

Signatures, defaults and limits are the paper's; what the model reads lies in prompts/tools. Types and ranges of arguments
are checked by whoever takes the call (dkgi/tools.py); what only the graph can tell is checked here, and comes back as an
error that teaches the right call.
Not covered: the ways to these tools: the agent loop, the socket (server.py), MCP (mcp.py).
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from dkgi.kg.index import Index, Link
from dkgi.kg.text import name_and_summary, snippet, words_of
from dkgi.prompt import read_part
from dkgi.tools import message
from dkgi.types import Tool, ToolOutput, ToolSpec

NAMES = ("get_schema", "search", "get_node", "neighbors")

SEARCH_K, NEIGHBORS_K = 5, 20
"""What `k` is where a call leaves it out."""

LONGEST_QUERY = 2_000
"""Characters. Each word costs time, and programs of agents call as well."""


def graph_tools(index: Index) -> dict[str, Tool]:
    """The four tools by name. Thread-safe."""
    graph = _Graph(index)
    return {name: GraphTool(_spec(name), getattr(graph, name)) for name in NAMES}


@dataclass(frozen=True, slots=True)
class GraphTool:
    spec: ToolSpec
    answer: Callable[..., str]

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        """Takes milliseconds, so `timeout_s` bounds nothing here."""
        try:
            return ToolOutput(self.answer(**args))
        except _BadCall as error:
            return ToolOutput(str(error), is_error=True)


class _BadCall(Exception):
    """A call that the graph cannot answer; the message teaches the right one."""


class _Graph:
    def __init__(self, index: Index) -> None:
        self._index = index

    def get_schema(self) -> str:
        return (self._index.export / "schema.json").read_text(encoding="utf-8")

    def search(self, query: str, k: int = SEARCH_K) -> str:
        _check_length("search", query)
        words = words_of(query)
        if not words:
            raise _BadCall(message("search_empty"))
        hits = self._index.search(query, k)
        if not hits:
            return message("search_none")
        lines = [message("search_found", found=len(hits))]
        for node_id, score in hits:
            head = message("search_line", **self._header(node_id), score=f"{score:.2f}")
            _, summary = name_and_summary(self._index.node(node_id).attributes, self._index.spec)
            lines.append(f"{head}\n    {snippet(summary, words)}" if summary else head)
        return "\n".join(lines)

    def get_node(self, node_id: int) -> str:
        self._check(node_id, "get_node")
        return orjson.dumps(self._index.node(node_id)._asdict()).decode()

    def neighbors(
        self, node_id: int, relation: str = "", node_type: str = "", query: str = "", k: int = NEIGHBORS_K
    ) -> str:
        self._check(node_id, "neighbors")
        _check_length("neighbors", query)
        schema = self._index.schema
        _check_name("no_relation", relation, (kind.name for kind in schema.relation_types))
        _check_name("no_node_type", node_type, (kind.name for kind in schema.node_types))
        found, links = self._index.neighbors(node_id, relation, node_type, query, k=k)
        if not links:
            unfiltered = self._index.neighbors(node_id, k=1).found
            none = "neighbors_none_left" if unfiltered else "neighbors_none"
            return message(none, **self._header(node_id), found=unfiltered)
        lines = [message("neighbors_found", **self._header(node_id), found=found)]
        for place, link in enumerate(links):
            name = self._index.name(link.node_id)
            lines.append(message("neighbors_line", place=place, arrow=_arrow(link), id=link.node_id, name=name))
        return "\n".join([*lines, message("neighbors_shown", shown=len(links), found=found)])

    def _header(self, node_id: int) -> dict[str, object]:
        return {"id": node_id, "name": self._index.name(node_id), "type": self._index.node_type(node_id)}

    def _check(self, node_id: int, tool: str) -> None:
        if not 0 <= node_id < self._index.schema.nodes:
            raise _BadCall(message("no_node", tool=tool, id=node_id, last=self._index.schema.nodes - 1))


def _check_length(tool: str, query: str) -> None:
    if len(query) > LONGEST_QUERY:
        raise _BadCall(message("query_long", tool=tool, length=len(query), most=LONGEST_QUERY))


def _check_name(fault: str, value: str, known: Iterable[str]) -> None:
    names = list(known)
    if value and value not in names:
        # As JSON, since a text of the model may hold what no file or socket can (half a surrogate pair).
        raise _BadCall(message(fault, value=json.dumps(value), known=", ".join(names)))


def _arrow(link: Link) -> str:
    return f"{'<' * link.incoming}-{link.relation}-{'>' * link.outgoing}"


def _spec(name: str) -> ToolSpec:
    return ToolSpec(**json.loads(read_part(f"tools/{name}.json")))
