"""The graph tools for any MCP client: `python -m dkgi.kg.mcp dataset=hpo`.

    python -m dkgi.kg.mcp dataset=hpo                  streamable HTTP at http://127.0.0.1:8765/mcp
    python -m dkgi.kg.mcp --stdio dataset=hpo          on standard input and output, for clients that start their servers

All other arguments are those of `python -m dkgi`. HTTP needs the extra: pip install 'dkgi[mcp]'.
Not covered: access from other machines, which would need a check of who asks.
"""

import argparse
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dkgi import __version__
from dkgi.console import fail, stderr
from dkgi.kg.server import GraphServer
from dkgi.paths import cache_dir, data_dir
from dkgi.tools import GRAPH_TOOLS, run_call
from dkgi.types import SetupError, Tool, ToolCall, ToolOutput, ToolPolicy

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server

HOST, PORT = "127.0.0.1", 8765
_CALL_S = 60.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dkgi.kg.mcp", description="Serve a graph to MCP clients.")
    parser.add_argument("--stdio", action="store_true", help="speak on standard input and output instead of HTTP")
    parser.add_argument("--port", type=int, default=PORT, help=f"of {HOST}; 0: any that is free (default {PORT})")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE", help="as for python -m dkgi, e.g. dataset=hpo")
    options = parser.parse_intermixed_args(arguments)
    try:
        tools = open_tools(options.overrides)
        return serve_stdio(tools) if options.stdio else serve_http(tools, options.port)
    except SetupError as error:
        fail(error)
    except KeyboardInterrupt:
        return 130


def open_tools(overrides: list[str]) -> Mapping[str, Tool]:
    """The graph tools of a configuration, all four where no policy is named; graph and index are made where missing."""
    from hydra.errors import HydraException

    from dkgi.config import load
    from dkgi.dataset import prepare
    from dkgi.kg.index import open_index
    from dkgi.kg.tools import graph_tools

    try:
        experiment = load(overrides)
    except HydraException as error:
        raise SetupError(" ".join(str(error).split())) from None
    named = any(override.startswith("tools=") for override in overrides)
    spec, names = experiment.dataset, served(experiment.tools) if named else GRAPH_TOOLS
    dataset = prepare(spec, cache_dir())
    tools = graph_tools(open_index(dataset.export, spec.index, cache_dir()))
    return {name: tools[name] for name in names}


def served(policy: ToolPolicy) -> tuple[str, ...]:
    """The graph tools of a policy, its model's or its programs'. Raises SetupError where it has none."""
    if names := policy.client or tuple(name for name in policy.tools if name in GRAPH_TOOLS):
        return names
    raise SetupError(f"tools={policy.name}: it has no graph tools to serve; use tools=graph_tools")


def serve_stdio(tools: Mapping[str, Tool]) -> int:
    """Serve until standard input ends: the shim of sandbox/ on a server of its own."""
    with (
        tempfile.TemporaryDirectory() as folder,
        GraphServer(Path(folder), tools, "") as server,
        server.attempt((), tuple(tools), Path(folder) / "calls.jsonl") as seat,
    ):
        files = {name: str(path) for path, name in seat.files}
        shim = str(data_dir("sandbox") / "graph_mcp.py")
        return subprocess.run([sys.executable, shim, files["socket"], files["token"]], check=False).returncode


def serve_http(tools: Mapping[str, Tool], port: int) -> int:
    """Serve until interrupted. Raises SetupError where the extra is missing or the port is taken."""
    try:
        import uvicorn

        app = make_server(tools).streamable_http_app(json_response=True, stateless_http=True, host=HOST)
    except ImportError as error:
        raise SetupError(f"{error}; install it: pip install 'dkgi[mcp]'") from None
    config = uvicorn.Config(app, host=HOST, port=port, log_level="warning")
    listener = socket.socket()
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((HOST, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise SetupError(f"--port {port}: {error} on {HOST}; name another one, or 0 for any that is free") from None
    stderr().print(f"dkgi: http://{HOST}:{listener.getsockname()[1]}/mcp (Ctrl-C ends it)", soft_wrap=True)
    uvicorn.Server(config).run(sockets=[listener])
    return 0


def make_server(tools: Mapping[str, Tool]) -> "Server[Any]":
    """The protocol's server object, with these tools and nothing else."""
    import anyio.to_thread
    import mcp_types as types
    from mcp.server.lowlevel import Server

    listed = [
        types.Tool(name=spec.name, description=spec.description, input_schema=dict(spec.parameters))
        for spec in (tool.spec for tool in tools.values())
    ]

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        return types.ListToolsResult(tools=listed)

    async def call_tool(context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        # In a thread, since a search would hold up all other clients.
        output = await anyio.to_thread.run_sync(partial(_call, tools, params.name, params.arguments or {}))
        return types.CallToolResult(content=[types.TextContent(text=output.text)], is_error=output.is_error)

    return Server("dkgi", version=__version__, on_list_tools=list_tools, on_call_tool=call_tool)


def _call(tools: Mapping[str, Tool], name: str, arguments: Mapping[str, Any]) -> ToolOutput:
    return run_call(ToolCall("", name, json.dumps(arguments)), tools, timeout_s=_CALL_S)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
