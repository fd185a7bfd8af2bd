"""MCP: the shim with the official client and with raw lines, the HTTP server's object in one process."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.kg.index import Index
from dkgi.kg.mcp import main, make_server, serve_http, served
from dkgi.kg.server import GraphServer
from dkgi.kg.tools import graph_tools
from dkgi.paths import data_dir
from dkgi.tools import GRAPH_TOOLS
from dkgi.types import SetupError


@pytest.fixture
def shim(index: Index, tmp_path: Path) -> Iterator[list[str]]:
    """The command line that a client starts."""
    folder = tmp_path / "server"
    folder.mkdir()
    with (
        GraphServer(folder, graph_tools(index), "") as server,
        server.attempt((), GRAPH_TOOLS, tmp_path / "calls.jsonl") as seat,
    ):
        files = {name: str(path) for path, name in seat.files}
        yield [sys.executable, "-I", str(data_dir("sandbox") / "graph_mcp.py"), files["socket"], files["token"]]


def spoken(shim: list[str], *lines: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        shim, input="".join(f"{line}\n" for line in lines), capture_output=True, text=True, timeout=60, check=True
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def request(method: str, **params: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})


async def conversation(target: Any) -> tuple[list[str], list[tuple[str, bool]]]:
    from mcp.client import Client

    calls: list[tuple[str, dict[str, Any]]] = [
        ("search", {"query": "boat", "k": 1}),
        ("neighbors", {"node_id": 0, "relation": "eats"}),
        ("get_node", {"node_id": -1}),
    ]
    async with Client(target) as client:
        names = [tool.name for tool in (await client.list_tools()).tools]
        results = [await client.call_tool(name, arguments) for name, arguments in calls]
    return names, [(result.content[0].text, bool(result.is_error)) for result in results]  # type: ignore[union-attr]


def check(names: list[str], results: list[tuple[str, bool]]) -> None:
    assert names == list(GRAPH_TOOLS)
    assert [is_error for _, is_error in results] == [False, True, True]
    assert [
        said in text for said, (text, _) in zip(("[0] The Long Boat", "eats", "0 or more"), results, strict=True)
    ] == [True] * 3


def test_the_official_client_works_with_the_shim(shim: list[str]) -> None:
    from mcp.client.stdio import StdioServerParameters, stdio_client

    check(*asyncio.run(conversation(stdio_client(StdioServerParameters(command=shim[0], args=shim[1:])))))


def test_the_official_client_works_with_the_server_object(index: Index) -> None:
    check(*asyncio.run(conversation(make_server(graph_tools(index)))))


def test_the_shim_speaks_the_version_that_it_is_asked_for_if_it_knows_it(shim: list[str]) -> None:
    asked = ["2025-03-26", "1999-01-01"]
    answers = spoken(shim, *(request("initialize", protocolVersion=version) for version in asked))
    assert [answer["result"]["protocolVersion"] for answer in answers] == ["2025-03-26", "2025-11-25"]


def test_what_the_shim_cannot_answer_is_an_error_with_the_protocols_code(shim: list[str]) -> None:
    notification = json.dumps({"jsonrpc": "2.0", "method": "notifications/initialized"})
    listed = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": [1]})
    lines = ["{", notification, "[]", "{}", listed, request("resources/list"), request("tools/call"), request("ping")]
    codes = [answer.get("error", {}).get("code") for answer in spoken(shim, *lines)]
    assert codes == [-32700, -32600, -32600, -32602, -32601, -32602, None]


def test_a_faulty_configuration_is_told_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["dataset=nowhere"])
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith("dkgi: ")


def test_a_policy_is_served_its_own_tools_alone() -> None:
    assert served(load(["tools=retrieval_only"]).tools) == ("get_schema", "search", "get_node")
    assert served(load(["tools=graph_tools_code"]).tools) == GRAPH_TOOLS


def test_a_policy_without_graph_tools_is_not_served(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--stdio", "tools=closed_book"])
    assert exit_.value.code == 2
    assert "tools=closed_book: it has no graph tools to serve" in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "99999"])
def test_a_port_that_there_is_not_is_told(index: Index, capsys: pytest.CaptureFixture[str], port: str) -> None:
    with pytest.raises(SetupError, match=f"--port {port}: "):
        serve_http(graph_tools(index), int(port))
