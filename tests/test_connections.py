"""Connections against real sockets that do not behave."""

import gzip
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from dkgi.connections import Connections, SendError
from dkgi.exchange import Exchange, Provider
from dkgi.meter import Ledger
from dkgi.types import ModelError, Place
from tests.loopback import Loopback, Turn


@contextmanager
def raw_server(*replies: bytes, reads: bool = True) -> Iterator[str]:
    """Sends fixed bytes, one connection after the other, and closes; `reads=False`: never reads what is sent to it."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        kept = []

        def serve() -> None:
            for reply in replies:
                connection, _ = listener.accept()
                if not reads:
                    kept.append(connection)
                    continue
                with connection:
                    while b"\r\n\r\n" not in connection.recv(65_536, socket.MSG_PEEK):
                        pass
                    connection.recv(65_536)
                    with suppress(ConnectionError):
                        connection.sendall(reply)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        thread.join(10)
        for connection in kept:
            connection.close()


def http(body: bytes, head: str = "") -> bytes:
    return f"HTTP/1.1 200 OK\r\ncontent-length: {len(body)}\r\n{head}\r\n".encode() + body


def test_a_connection_is_used_again() -> None:
    connections = Connections()
    with Loopback([Turn(text="hello")]) as server:
        before = threading.active_count()
        for _ in range(5):
            reply = connections.send(
                "POST", f"{server.url}/responses", [(b"content-length", b"2")], b"{}", deadline=time.monotonic() + 10
            )
            assert reply.status == 200
        # The server has a thread a connection.
        assert threading.active_count() == before + 1


def test_the_deadline_holds_against_a_body_that_comes_fast_and_never_ends() -> None:
    head = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n"
    with raw_server(head + b"1\r\n:\r\n" * 5_000_000) as root:
        started = time.monotonic()
        with pytest.raises(SendError) as caught:
            Connections().send("POST", root, [(b"content-length", b"2")], b"{}", deadline=started + 0.3)
        assert time.monotonic() - started < 5.3
    assert caught.value.phase == "body"


def test_a_server_that_does_not_read_is_left_by_the_deadline() -> None:
    with raw_server(b"", reads=False) as root:
        started = time.monotonic()
        content = b"x" * 50_000_000
        with pytest.raises(SendError) as caught:
            Connections().send("POST", root, [(b"content-length", b"50000000")], content, deadline=started + 0.5)
        assert time.monotonic() - started < 5.5
    assert caught.value.phase == "head"


@pytest.mark.parametrize("reply", [b"", b"this is no HTTP\n", b"HTTP/1.1 200 OK\r\ncontent-length: x\r\n\r\n"])
def test_what_is_no_http_is_a_send_error(reply: bytes) -> None:
    with raw_server(reply) as root, pytest.raises(SendError) as caught:
        Connections().send("POST", root, [(b"content-length", b"2")], b"{}", deadline=time.monotonic() + 10)
    assert caught.value.phase == "head"


def test_a_header_that_cannot_be_sent_is_not_shown_and_nothing_is_sent() -> None:
    headers = [(b"authorization", b"Bearer sk-fake\n0123456789"), (b"content-length", b"2")]
    with Loopback([Turn()]) as server, pytest.raises(SendError) as caught:
        Connections().send("POST", server.url, headers, b"{}", deadline=time.monotonic() + 10)
    assert caught.value.phase == "connect"
    assert "sk-fake" not in str(caught.value)
    assert server.requests == []


def test_a_proxy_of_the_environment_is_used_and_no_proxy_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    def send(host: str) -> int:
        url = f"http://{host}/v1/responses"
        headers = [(b"host", host.encode()), (b"content-length", b"2")]
        return Connections().send("POST", url, headers, b"{}", deadline=time.monotonic() + 10).status

    with Loopback([Turn(text="hello")]) as proxy:
        monkeypatch.setenv("http_proxy", proxy.root)
        assert send("provider.invalid") == 200
        assert proxy.requests[0].path == "http://provider.invalid/v1/responses"
        monkeypatch.setenv("no_proxy", "provider.invalid")
        with pytest.raises(SendError) as caught:
            send("provider.invalid")
    assert caught.value.phase == "connect"


GOOD = b'{"choices": [{"finish_reason": "stop"}], "usage": {"prompt_tokens": 9, "completion_tokens": 2}}'


def ask(tmp_path: Path, root: str) -> bytes:
    import httpx2

    exchange = Exchange(Provider("openai_chat", None, 100, backoff_s=0.001))
    account = Ledger(cap_usd=None, prices=None).account(cap_usd=None)
    transport = exchange.transport(Place(1, 0, 1, time.monotonic() + 20, tmp_path, account))
    with httpx2.Client(transport=transport) as client:
        return client.post(f"{root}/v1/chat/completions", json={"messages": []}).content


def test_a_packed_reply_that_nobody_asked_for_is_unpacked(tmp_path: Path) -> None:
    with raw_server(http(gzip.compress(GOOD), "content-encoding: gzip\r\n")) as root:
        assert ask(tmp_path, root) == GOOD


def test_a_reply_that_cannot_be_unpacked_is_tried_again(tmp_path: Path) -> None:
    with raw_server(http(b"no gzip at all", "content-encoding: gzip\r\n"), http(GOOD)) as root:
        assert ask(tmp_path, root) == GOOD


def test_a_redirection_is_an_answer_that_is_not_tried_again(tmp_path: Path) -> None:
    moved = b"HTTP/1.1 301 Moved\r\nlocation: https://elsewhere.invalid/\r\ncontent-length: 0\r\n\r\n"
    with raw_server(moved) as root, pytest.raises(ModelError) as caught:
        ask(tmp_path, root)
    assert caught.value.kind == "bad_request"
