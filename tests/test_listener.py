"""Sockets that serve a thread a connection: who may connect, how many at a time, and what is left after the end."""

import resource
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from dkgi.jail.client import address
from dkgi.listener import Listener
from dkgi.types import SetupError

MOST = 3


def echo(connection: socket.socket) -> None:
    while said := connection.recv(100):
        if said == b"fail":
            raise BrokenPipeError
        connection.sendall(said)


@contextmanager
def listening(path: Path, serve: Callable[[socket.socket], None] = echo) -> Iterator[Listener]:
    with closing(Listener(path, serve, mode=0o600, most=MOST, full=b"full")) as listener:
        yield listener


def connected(path: Path) -> socket.socket:
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    with address(path) as name:
        connection.connect(name)
    return connection


def said(connection: socket.socket, content: bytes) -> bytes:
    try:
        connection.sendall(content)
        return connection.recv(100)
    except ConnectionError:  # it was closed before what it was sent was read
        return b""


@pytest.mark.parametrize("mode", [0o600, 0o666])
def test_the_socket_has_its_mode_whatever_the_umask(mode: int, tmp_path: Path) -> None:
    with closing(Listener(tmp_path / "door", echo, mode=mode)):
        assert stat.S_IMODE((tmp_path / "door").stat().st_mode) == mode


def test_one_connection_too_many_hears_so_and_a_place_is_free_again_once_one_is_left(tmp_path: Path) -> None:
    with listening(tmp_path / "door"), ExitStack() as stack:
        held = [stack.enter_context(connected(tmp_path / "door")) for _ in range(MOST)]
        assert [said(one, b"hello") for one in held] == [b"hello"] * MOST
        with connected(tmp_path / "door") as another:
            assert another.recv(100) == b"full"
            assert another.recv(100) == b""
        assert said(held[0], b"fail") == b""
        with connected(tmp_path / "door") as another:
            assert said(another, b"hello") == b"hello"


def test_closing_cuts_everybody_off_and_serves_nobody_any_more(tmp_path: Path) -> None:
    ended = threading.Semaphore(0)

    def serve(connection: socket.socket) -> None:
        echo(connection)
        ended.release()

    with listening(tmp_path / "door", serve) as listener, ExitStack() as stack:
        held = [stack.enter_context(connected(tmp_path / "door")) for _ in range(MOST)]
        assert [said(one, b"hello") for one in held] == [b"hello"] * MOST
        listener.close()
        assert [one.recv(100) for one in held] == [b""] * MOST
        assert all(ended.acquire(timeout=20) for _ in held)
        assert list(tmp_path.iterdir()) == []
        listener.close()


def test_who_connects_in_the_moment_of_the_end_is_not_kept_waiting(tmp_path: Path) -> None:
    for _ in range(30):
        with listening(tmp_path / "door") as listener:
            held = [connected(tmp_path / "door") for _ in range(MOST)]
            closer = threading.Thread(target=listener.close)
            closer.start()
            for one in held:
                with one:
                    assert said(one, b"") in (b"", b"full")
            closer.join()


def test_a_client_waits_while_descriptors_are_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with listening(tmp_path / "door"), socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(20)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
        try:
            connection.connect("door")
            time.sleep(0.2)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert said(connection, b"hello") == b"hello"


def test_a_client_hears_that_there_is_no_thread_for_it_and_the_next_one_is_served(tmp_path: Path) -> None:
    with listening(tmp_path / "door"):
        threading.stack_size(2**47)  # more than can be had, so that no thread starts
        try:
            for _ in range(MOST + 1):
                with connected(tmp_path / "door") as connection:
                    assert connection.recv(100) == b"full"
        finally:
            threading.stack_size(0)
        with connected(tmp_path / "door") as connection:
            assert said(connection, b"hello") == b"hello"


def test_a_folder_that_can_hold_no_socket_is_named(tmp_path: Path) -> None:
    with pytest.raises(SetupError, match=r"absent: No such file or directory; set DKGI_DATA to a folder"):
        Listener(tmp_path / "absent" / "door", echo, mode=0o600)
