"""The graph server over a real index: who may call what, how calls are counted and recorded, what goes wrong."""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from dkgi.jail.client import address
from dkgi.kg.index import Index
from dkgi.kg.remote import RemoteTool, ask
from dkgi.kg.server import LONGEST_REQUEST, GraphSeat, GraphServer
from dkgi.kg.tools import graph_tools
from dkgi.tools import GRAPH_TOOLS, run_call
from dkgi.toolserver import CONNECTIONS
from dkgi.types import SandboxError, ToolCall

ENGINE = '{"engine": "csr"}'


@pytest.fixture
def server(index: Index, tmp_path: Path) -> Iterator[GraphServer]:
    folder = tmp_path / "server"
    folder.mkdir(mode=0o700)
    with GraphServer(folder, graph_tools(index), ENGINE) as server:
        yield server


@pytest.fixture
def seat(server: GraphServer, tmp_path: Path) -> Iterator[GraphSeat]:
    with server.attempt(GRAPH_TOOLS, GRAPH_TOOLS, tmp_path / "calls.jsonl") as seat:
        yield seat


def token_of(seat: GraphSeat) -> str:
    return {name: path for path, name in seat.files}["token"].read_text()


def socket_of(seat: GraphSeat) -> Path:
    return {name: path for path, name in seat.files}["socket"]


def talk(path: Path, content: bytes) -> list[dict[str, Any]]:
    """What comes back for raw bytes on one connection, line by line."""
    with socket.socket(socket.AF_UNIX) as connection, address(path) as name:
        connection.settimeout(30)
        connection.connect(name)
        connection.sendall(content)
        connection.shutdown(socket.SHUT_WR)
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    return [json.loads(line) for line in received.splitlines()]


def recorded(tmp_path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tmp_path / "calls.jsonl").read_text().splitlines()]


def test_a_call_is_answered_counted_and_recorded_with_its_engine(seat: GraphSeat, tmp_path: Path) -> None:
    output = seat.tools["search"].call({"query": "boat", "k": 1}, timeout_s=30)
    assert output.text.startswith("found 1 results\n[0] The Long Boat (book)")
    assert seat.calls() == 1
    (line,) = recorded(tmp_path)
    assert (line["number"], line["tool"], line["arguments"]) == (1, "search", {"query": "boat", "k": 1})
    assert (line["is_error"], line["bytes"], line["engine"]) == (False, len(output.text.encode()), ENGINE)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("search", {"query": "boat", "k": 31}, "k must be 30 or less"),
        ("search", {"query": "boat", "k": 0}, "k must be 1 or more"),
        ("search", {"query": ""}, "holds no word"),
        ("search", {"query": "\ud800"}, "no word"),
        ("get_node", {"node_id": "seven"}, "node_id must be of type integer"),
        ("get_node", {"node_id": 10**9}, "no node"),
        ("neighbors", {"node_id": 0, "relation": "eats"}, "the relations are: wrote, cites, burnt"),
        ("neighbors", {"node_id": 0, "node_type": "cat"}, "book, person"),
    ],
)
def test_a_bad_call_is_an_error_that_teaches_and_counts(
    seat: GraphSeat, tool: str, arguments: dict[str, object], said: str
) -> None:
    output = seat.tools[tool].call(arguments, timeout_s=30)
    assert output.is_error
    assert said in output.text
    assert seat.calls() == 1


@pytest.mark.parametrize(
    ("text", "kept"),
    [('{"query": "boat", "k": 31}', {"query": "boat", "k": 31}), ('{"query": ', '{"query": '), ("[]", []), ("", "")],
)
def test_what_a_model_wrote_counts_however_wrong_it_is(
    seat: GraphSeat, tmp_path: Path, text: str, kept: object
) -> None:
    assert run_call(ToolCall("1", "search", text), seat.tools, timeout_s=30).is_error
    assert seat.calls() == 1
    (line,) = recorded(tmp_path)
    assert (line["arguments"], line["is_error"]) == (kept, True)


def test_an_attempt_has_the_tools_of_its_policy_alone(server: GraphServer, tmp_path: Path) -> None:
    with server.attempt(("search",), (), tmp_path / "calls.jsonl") as seat:
        assert list(seat.tools) == ["search"]
        assert seat.files == ()
        tool = seat.tools["search"]
        assert isinstance(tool, RemoteTool)
        answer = ask(tool.socket, {"token": tool.token, "tool": "neighbors", "arguments": {"node_id": 0}}, timeout_s=30)
        assert answer == {"text": "there is no tool named neighbors; the tools are: search", "is_error": True}


def test_what_is_no_request_is_refused_and_the_connection_goes_on(seat: GraphSeat) -> None:
    good = json.dumps({"token": token_of(seat), "tool": "get_node", "arguments": {"node_id": 0}}).encode()
    bad = [b"", b"{", b"[]", b'{"tool": "search"}', b'{"token": "x", "tool": 7}', b'{"token": [], "tool": "search"}']
    answers = talk(socket_of(seat), b"\n".join([*bad, good, b""]))
    assert [set(answer) for answer in answers] == [{"refused"}] * len(bad) + [{"text", "is_error"}]


def test_a_request_that_is_too_long_is_an_error_that_the_agent_can_read(seat: GraphSeat) -> None:
    output = seat.tools["search"].call({"query": "x" * (LONGEST_REQUEST * 20)}, timeout_s=30)
    assert output.is_error
    assert str(LONGEST_REQUEST) in output.text


def test_nobody_else_is_let_in_and_nobody_after_the_attempt(server: GraphServer, tmp_path: Path) -> None:
    with server.attempt(("search",), ("search",), tmp_path / "calls.jsonl") as seat:
        tool = seat.tools["search"]
        assert talk(socket_of(seat), json.dumps({"token": "guess", "tool": "search"}).encode() + b"\n") == [
            {"refused": "unknown token"}
        ]
        with server.attempt((), ("search",), tmp_path / "others.jsonl") as other:
            request = json.dumps({"token": token_of(seat), "tool": "search"}).encode() + b"\n"
            assert talk(socket_of(other), request) == [{"refused": "unknown token"}]
    with pytest.raises(SandboxError, match="cannot be reached"):
        tool.call({"query": "boat"}, timeout_s=30)
    assert not any(path.exists() for path, _ in seat.files)


def test_who_floods_his_socket_keeps_nobody_else_from_the_graph(server: GraphServer, tmp_path: Path) -> None:
    with (
        ExitStack() as stack,
        server.attempt((), ("search",), tmp_path / "flood.jsonl") as flooded,
        server.attempt((), ("search",), tmp_path / "calls.jsonl") as seat,
    ):
        for _ in range(CONNECTIONS + 20):
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            with address(socket_of(flooded)) as name:
                connection.connect(name)
            connection.sendall(b'{"tok')
        refused = talk(socket_of(flooded), b"")
        assert refused == [{"refused": "this attempt has too many connections, or is over"}]
        request = {"token": token_of(seat), "tool": "search", "arguments": {"query": "boat"}}
        assert not ask(socket_of(seat), request, timeout_s=30)["is_error"]


def test_a_connection_is_cut_off_when_its_attempt_ends(server: GraphServer, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(30)
        with server.attempt((), ("get_schema",), tmp_path / "calls.jsonl") as seat:
            with address(socket_of(seat)) as name:
                connection.connect(name)
            connection.sendall(json.dumps({"token": token_of(seat), "tool": "get_schema"}).encode() + b"\n")
            received = b""
            while not received.endswith(b"\n"):
                received += connection.recv(65536)
        assert connection.recv(1) == b""


def test_64_clients_at_once_are_all_served(seat: GraphSeat) -> None:
    served = [0] * 64

    def work(number: int) -> None:
        for k in range(1, 11):
            output = seat.tools["search"].call({"query": "lake boat winter", "k": k}, timeout_s=120)
            served[number] += not output.is_error and output.text.startswith("found")

    threads = [threading.Thread(target=work, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=300)
    assert served == [10] * 64
    assert seat.calls() == 640


def test_a_path_longer_than_the_kernel_takes_is_no_hindrance(index: Index, tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with (
        GraphServer(folder, graph_tools(index), ENGINE) as server,
        server.attempt(("get_node",), (), tmp_path / "calls.jsonl") as seat,
    ):
        assert not seat.tools["get_node"].call({"node_id": 0}, timeout_s=30).is_error


def test_a_request_for_the_tools_lists_their_specifications(seat: GraphSeat) -> None:
    answer = ask(socket_of(seat), {"token": token_of(seat), "tools": True}, timeout_s=30)
    assert [spec["name"] for spec in answer["tools"]] == list(GRAPH_TOOLS)
    assert seat.calls() == 0


# ------------------------------------------------------------------- the client module


@pytest.fixture
def client_folder(seat: GraphSeat, tmp_path: Path) -> Path:
    """The files as a jail shows them, here without one."""
    folder = tmp_path / "client"
    folder.mkdir()
    for path, name in seat.files:
        if name == "socket":
            os.link(path, folder / name)
        else:
            shutil.copyfile(path, folder / name)
    return folder


def python(folder: Path, program: str, flags: Sequence[str] = ()) -> str:
    done = subprocess.run(
        [sys.executable, *flags, "-c", f"import graph_client as graph\n{program}"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )
    return done.stdout + done.stderr


def test_programs_make_the_same_calls_and_get_the_same_texts(
    client_folder: Path, seat: GraphSeat, tmp_path: Path
) -> None:
    program = "\n".join(
        [
            "calls = [graph.get_schema(), graph.search('boat', k=2), graph.get_node(0)]",
            "calls += [graph.neighbors(0), graph.neighbors(0, relation='wrote', node_type='person', query='ada', k=3)]",
            "import json; print(json.dumps(calls))",
        ]
    )
    printed = json.loads(python(client_folder, program))
    arguments: list[tuple[str, dict[str, object]]] = [
        ("get_schema", {}),
        ("search", {"query": "boat", "k": 2}),
        ("get_node", {"node_id": 0}),
        ("neighbors", {"node_id": 0}),
        ("neighbors", {"node_id": 0, "relation": "wrote", "node_type": "person", "query": "ada", "k": 3}),
    ]
    assert printed == [seat.tools[name].call(args, timeout_s=30).text for name, args in arguments]
    assert [line["tool"] for line in recorded(tmp_path)[:5]] == [name for name, _ in arguments]


def test_a_bad_call_of_a_program_returns_its_lesson_as_text(client_folder: Path) -> None:
    assert "k must be 30 or less" in python(client_folder, "print(graph.search('boat', k=99))")


def test_threads_and_forks_of_a_program_may_call(client_folder: Path, seat: GraphSeat) -> None:
    program = """
import os, threading
graph.search("boat")
threads = [threading.Thread(target=lambda: [graph.get_node(n) for n in range(5)]) for _ in range(4)]
[thread.start() for thread in threads], [thread.join() for thread in threads]
child = os.fork()
right = all(graph.get_node(n % 5).startswith('{"node_id":%d,' % (n % 5)) for n in range(child > 0, 100 + (child > 0)))
if child == 0:
    os._exit(not right)
print(right, os.wait()[1])
"""
    assert python(client_folder, program) == "True 0\n"
    assert seat.calls() == 221


def test_a_program_waits_where_more_connect_than_are_let_in(client_folder: Path) -> None:
    (client_folder / "socket").unlink()
    with ExitStack() as stack:
        listener = stack.enter_context(socket.socket(socket.AF_UNIX))
        waiting = []
        with address(client_folder / "socket") as name:
            listener.bind(name)
            listener.listen(0)
            with suppress(BlockingIOError):
                while True:
                    waiting.append(stack.enter_context(socket.socket(socket.AF_UNIX)))
                    waiting[-1].setblocking(False)
                    waiting[-1].connect(name)
        pool = stack.enter_context(ThreadPoolExecutor(1))
        printed = pool.submit(python, client_folder, "print(graph.get_schema())")
        time.sleep(1)
        assert not printed.done()
        for _ in waiting[1:]:
            listener.accept()[0].close()
        connection = stack.enter_context(listener.accept()[0])
        assert json.loads(connection.recv(4096))["tool"] == "get_schema"
        connection.sendall(b'{"text": "let in", "is_error": false}\n')
        assert printed.result(30) == "let in\n"


def test_a_server_that_is_gone_is_a_connection_error(client_folder: Path, server: GraphServer) -> None:
    server.close()
    assert "ConnectionRefusedError" in python(client_folder, "graph.get_node(1)")
