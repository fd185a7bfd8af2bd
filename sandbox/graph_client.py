"""The graph, one call at a time; every call returns text.

    import graph_client as graph

    print(graph.get_schema())
    print(graph.search("storm at sea", k=5))
    print(graph.get_node(17))
    print(graph.neighbors(17, relation="shown", node_type="festival", query="north", k=20))

A call that cannot be answered returns a text that says how to call. ConnectionError: the graph cannot be reached.
"""

import json
import os
import socket
import threading
import time
from pathlib import Path

_HERE = Path(__file__).resolve().parent
_PATIENCE_S = 120.0
_lock = threading.Lock()
_connection = None
_owner = 0


def get_schema():
    """What is in the graph: types, counts and the meaning of its words."""
    return _call("get_schema", {})


def search(query, k=5):
    """The nodes whose name and summary fit the words best, k of them."""
    return _call("search", {"query": query, "k": k})


def get_node(node_id):
    """The whole record of a node."""
    return _call("get_node", {"node_id": node_id})


def neighbors(node_id, relation="", node_type="", query="", k=20):
    """Nodes that an edge links to this one, in either direction; k of them, of a relation, a type, with words."""
    given = {"relation": relation, "node_type": node_type, "query": query}
    return _call("neighbors", {"node_id": node_id, "k": k, **{key: text for key, text in given.items() if text}})


def _call(tool, arguments):
    request = {"token": (_HERE / "token").read_text(), "tool": tool, "arguments": arguments}
    with _lock:
        answer = _exchange(json.dumps(request).encode() + b"\n")
    if "refused" in answer:
        raise ConnectionError(answer["refused"])
    return answer["text"]


def _connect(connection):
    """Wait while more programs connect than are let in."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            connection.connect(str(_HERE / "socket"))
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise ConnectionError("the graph cannot be reached: too many programs call it") from None
            time.sleep(0.05)


def _exchange(line):
    """One line there, one line back, on a connection of this process."""
    global _connection, _owner
    if _connection is None or _owner != os.getpid():
        _connection, _owner = socket.socket(socket.AF_UNIX), os.getpid()
        _connection.settimeout(_PATIENCE_S)
        try:
            _connect(_connection)
        except BaseException:
            _connection = None
            raise
    try:
        _connection.sendall(line)
        received = bytearray()
        while not received.endswith(b"\n"):
            block = _connection.recv(65536)
            if not block:
                raise ConnectionError("the graph cannot be reached any more")
            received += block
    except BaseException:
        # A late answer must not be taken for that of the next call.
        _connection.close()
        _connection = None
        raise
    return json.loads(received)
