"""MCP over standard input and output for the graph server: `python3 graph_mcp.py SOCKET TOKEN_FILE`.

    {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "search", "arguments": {"query": "storm"}}}

Standard library alone, so that it starts at once wherever an agent's program starts it. Each line becomes one request on
the socket; lists and answers are the server's own.
Not covered: resources, prompts, notifications; the graph has none.
"""

import json
import os
import socket
import sys
from pathlib import Path

VERSIONS = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
PATIENCE_S = 120.0
METHOD_NOT_FOUND, INVALID_REQUEST, INVALID_PARAMS, PARSE_ERROR, INTERNAL = -32601, -32600, -32602, -32700, -32603


class Fault(Exception):
    """An error of the protocol: its code and its message."""


def main():
    path, token = Path(sys.argv[1]), Path(sys.argv[2]).read_text(encoding="ascii")
    for line in sys.stdin:
        try:
            message = json.loads(line)
        except ValueError as error:
            say({"id": None, "error": {"code": PARSE_ERROR, "message": str(error)}})
            continue
        if not isinstance(message, dict) or "method" not in message:
            say({"id": None, "error": {"code": INVALID_REQUEST, "message": "not a request"}})
            continue
        if "id" not in message:
            continue
        try:
            params = message.get("params") or {}
            if not isinstance(params, dict):
                raise Fault(INVALID_PARAMS, "params must be an object")
            say({"id": message["id"], "result": result(message["method"], params, path, token)})
        except Fault as fault:
            say({"id": message["id"], "error": {"code": fault.args[0], "message": fault.args[1]}})
        except OSError as error:
            say({"id": message["id"], "error": {"code": INTERNAL, "message": f"the graph cannot be reached: {error}"}})


def say(message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)


def result(method, params, path, token):
    if method == "initialize":
        asked = params.get("protocolVersion")
        version = asked if asked in VERSIONS else VERSIONS[-1]
        about = {"name": "graph", "version": "1"}
        return {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": about}
    if method == "ping":
        return {}
    if method == "tools/list":
        specs = ask(path, {"token": token, "tools": True})["tools"]
        return {
            "tools": [
                {"name": spec["name"], "description": spec["description"], "inputSchema": spec["parameters"]}
                for spec in specs
            ]
        }
    if method == "tools/call":
        if not isinstance(params.get("name"), str):
            raise Fault(INVALID_PARAMS, "name is missing")
        request = {"token": token, "tool": params["name"], "arguments": params.get("arguments") or {}}
        answer = ask(path, request)
        return {"content": [{"type": "text", "text": answer["text"]}], "isError": answer["is_error"]}
    raise Fault(METHOD_NOT_FOUND, f"there is no method {method}")


def ask(path, request):
    # By way of its folder a socket is found however long its path is; the kernel takes 107 bytes.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(PATIENCE_S)
            connection.connect(f"/proc/self/fd/{folder}/{path.name}")
            connection.sendall(json.dumps(request).encode() + b"\n")
            connection.shutdown(socket.SHUT_WR)
            received = b"".join(iter(lambda: connection.recv(65536), b""))
    finally:
        os.close(folder)
    if not received.endswith(b"\n"):
        raise Fault(INTERNAL, "the graph cannot be reached any more")
    answer = json.loads(received)
    if "refused" in answer:
        raise Fault(INTERNAL, answer["refused"])
    return answer


if __name__ == "__main__":
    main()
