"""What a worker's parent does for a worker that is not ours any more: raw connections with anything in them."""

import contextlib
import json
import os
import resource
import socket
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.jail.client import CommandClient
from dkgi.machine import Guard
from dkgi.meter import Ledger
from dkgi.models import open_models
from dkgi.paths import data_dir
from dkgi.seats import Seats
from dkgi.store import Cell, open_cell
from dkgi.types import CliBox, Prices
from dkgi.worker.channel import LONGEST_BODY, Channel
from dkgi.worker.server import WorkerServer
from tests.loopback import Loopback, Turn
from tests.models.films import write_films

KEY = "not-a-real-key-0123456789"
PRICES = Prices(input=1, cached_input=1, cache_write=1, output=1)
ANSWER = Turn(text='{"node_ids": [1]}', input=900, output=100)
BODY = {"model": "m", "messages": [{"role": "user", "content": "hello"}], "max_tokens": 1000}
THREADS = 2


@dataclass(frozen=True)
class Parent:
    """A cell with the queries 1 and 2, its server, and the money behind it."""

    server: WorkerServer
    cell: Cell
    ledger: Ledger
    seats: Seats

    def connect(self, timeout_s: float = 30) -> Channel:
        return Channel.connect(self.server.socket, timeout_s=timeout_s)

    def say(self, message: Mapping[str, Any], body: bytes = b"") -> dict[str, Any] | None:
        """The answer to a message on a connection of its own; None where there is none."""
        with self.connect() as channel, contextlib.suppress(ConnectionError):
            channel.send(message, body)
            answer = channel.receive()
            return answer[0] if answer else None
        return None

    def say_raw(self, content: bytes) -> bytes:
        with self.connect() as channel:
            with contextlib.suppress(OSError):
                channel.connection.sendall(content)
                channel.connection.shutdown(socket.SHUT_WR)
            try:
                return channel.connection.recv(1)
            except ConnectionError:
                return b""

    def seat(self, number: Any = 1, repeat: Any = 0) -> dict[str, Any] | None:
        return self.say({"token": self.server.token, "seat": [number, repeat]})

    @contextmanager
    def place(self, number: int = 1) -> Iterator[dict[str, Any]]:
        """A place that is open inside, as the worker is told of it."""
        self.cell.query_folder(number, 0).mkdir(parents=True, exist_ok=True)
        with self.connect() as channel:
            channel.send({"token": self.server.token, "seat": [number, 0]})
            answer = channel.receive()
            assert answer is not None
            yield answer[0]

    def ask(self, place: Mapping[str, Any], body: Any = BODY, **wanted: Any) -> dict[str, Any] | None:
        request = {"attempt": 1, "deadline": time.monotonic() + 30, "headers": {}} | wanted
        return self.say({"token": place["token"], "model": request}, json.dumps(body).encode())

    def works(self) -> bool:
        """Whether another request is served as if nothing had been."""
        with self.place(2) as place:
            told = CommandClient(Path(place["commands"]["socket"]), place["commands"]["token"]).run(
                ["/bin/bash", "-c", "echo works"], timeout_s=60
            )
            return told.output.read_text() == "works\n"


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder whose path does not hold a name of the experiment, as that of a test would."""
    folder = tmp_path_factory.mktemp("data") / "graphs" / "films-1"
    folder.parent.mkdir()
    write_films(folder)
    return folder


@contextmanager
def opened(
    export: Path, tmp_path: Path, url: str = "http://127.0.0.1:9/v1", *more: str, trusted: bool = True
) -> Iterator[Parent]:
    model = ["model=local", "model.model=m", f"model.base_url={url}", "model.key_variable=TEST_KEY", *more]
    experiment = load(["tools=full_dkgi", "tracking=none", "model.max_output_tokens=1000", *model])
    cell = open_cell(tmp_path / "runs", "c0ffee", {})
    ledger = Ledger(cap_usd=None, prices=PRICES)
    with Seats(experiment, export, export.parents[1], {}, "") as seats:
        todo = {(1, 0), (2, 0)}
        models, limits = open_models(experiment.model), experiment.limits
        visible = [data_dir("sandbox")]
        with WorkerServer(
            seats, cell, models, ledger, limits, PRICES, Guard(), todo=todo, threads=THREADS, visible=visible
        ) as server:
            if trusted:
                server.trust()
            yield Parent(server, cell, ledger, seats)


@pytest.fixture(autouse=True, scope="module")
def key() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TEST_KEY", KEY)
        yield


@pytest.fixture(scope="module")
def parent(export: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Parent]:
    with opened(export, tmp_path_factory.mktemp("parent")) as parent:
        yield parent


@pytest.fixture(autouse=True)
def no_thread_fails(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Nothing that a worker says ends a thread of its parent with an error of ours."""
    failed: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda told: failed.append(repr(told.exc_value)))
    yield
    assert failed == []


@pytest.mark.parametrize("token", ["", "wrong", "ü" * 32, None, 7, ["x"], "\udcff"])
def test_a_wrong_token_opens_nothing(token: Any, parent: Parent) -> None:
    assert parent.say({"token": token, "seat": [1, 0]}) is None
    requests: list[dict[str, Any]] = [{"bill": True}, {"model": {}}, {"program": {}}]
    for request in requests:
        assert parent.say({"token": token, **request}) == {"sandbox": "the attempt is over"}
    assert parent.say({"seat": [1, 0]}) is None


def test_a_places_token_opens_no_place_and_is_worth_nothing_after_its_end(parent: Parent) -> None:
    with parent.place() as place:
        assert parent.say({"token": place["token"], "seat": [2, 0]}) is None
        assert parent.say({"token": place["token"], "bill": True}) is not None
    deadline = time.monotonic() + 30
    while parent.say({"token": place["token"], "bill": True}) != {"sandbox": "the attempt is over"}:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    commands = CommandClient(Path(place["commands"]["socket"]), place["commands"]["token"])
    assert commands.run(["/bin/true"], timeout_s=5).killed_by == "cancelled"


@pytest.mark.parametrize(
    "entry", [(3, 0), (1, 1), (-1, 0), (10**9, 0), ("../..", 0), (1.5, 0), (None, 0), ([1], 0), (True, "x"), (2**70, 0)]
)
def test_there_are_places_for_queries_of_the_job_alone(entry: tuple[Any, Any], parent: Parent) -> None:
    told = parent.seat(*entry)
    assert told is None or "is none of this worker's" in told["sandbox"]
    assert parent.say({"token": parent.server.token, "seat": 5}) is None
    assert {folder.name for folder in parent.cell.folder.glob("queries/*")} <= {"1", "2"}
    assert parent.works()


MALFORMED = [
    b"",
    b"\n",
    b"{",
    b"[]\n",
    b"null\n",
    b'"token"\n',
    b"\xff\xfe\n",
    b"[" * 100_000 + b"\n",
    b'{"token": ' * 50_000 + b"\n",
    b'{"token": "x", "bytes": -1}\n',
    b'{"token": "x", "bytes": 1e9}\n',
    b'{"token": "x", "bytes": "9"}\n',
    b'{"token": "x", "bytes": %d}\n' % (LONGEST_BODY + 1),
    b"x" * (2**20 + 70_000),
    b"\0" * 5000 + b"\n",
]


@pytest.mark.parametrize("content", MALFORMED, ids=range(len(MALFORMED)))
def test_what_is_no_message_ends_its_connection_alone(content: bytes, parent: Parent) -> None:
    with parent.place() as place:
        parent.say_raw(content)
        for seat in (b'{"token": "%s", "seat": [1, 0]}\n', b'{"token": "%s", "seat": [1, 0]} x\n'):
            parent.say_raw(seat % parent.server.token.encode())
        assert parent.say({"token": place["token"], "bill": True}) is not None
    assert parent.works()


def test_bytes_behind_a_message_without_a_right_are_not_kept(parent: Parent) -> None:
    before = memory()
    held = []
    for _ in range(THREADS * 4):
        channel = parent.connect(2)
        with contextlib.suppress(OSError):
            line = json.dumps({"token": "wrong", "model": {}, "bytes": LONGEST_BODY}).encode() + b"\n"
            channel.connection.sendall(line + b"x" * LONGEST_BODY)
        held.append(channel)
    assert memory() - before < LONGEST_BODY
    for channel in held:
        channel.close()
    assert parent.works()


def memory() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_thousands_of_connections_leave_descriptors_for_everybody_else(parent: Parent) -> None:
    most = 16 + 6 * THREADS
    many = min(2000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 3)
    with parent.place() as place:
        before = threading.active_count()
        deadline = time.monotonic() + 30
        held: list[Channel] = []
        while len(held) < many:
            with contextlib.suppress(BlockingIOError):  # so many wait that the kernel takes no more
                held.append(parent.connect())
        while sum(is_open(channel) for channel in held) > most:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert threading.active_count() - before <= most
        for channel in held:
            channel.close()
        while threading.active_count() > before:
            assert time.monotonic() < deadline
            time.sleep(0.02)
        assert parent.say({"token": place["token"], "bill": True}) is not None
    assert parent.works()


def is_open(channel: Channel) -> bool:
    channel.connection.setblocking(False)
    try:
        return channel.connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_half_open_connections_hold_nobody_up_and_end_with_the_server(export: Path, tmp_path: Path) -> None:
    with opened(export, tmp_path) as parent:
        held = [parent.connect() for _ in range(6)]
        for channel, content in zip(held, (b"", b"{", b'{"token": "', b'{"token": "x"', b"\xff", b" "), strict=True):
            channel.connection.sendall(content)
        with parent.place() as place:
            line = {"token": place["token"], "model": {"attempt": 1, "deadline": 1.0, "headers": {}}, "bytes": 1000}
            cut = parent.connect()
            cut.connection.sendall(json.dumps(line).encode() + b"\n{")
            assert parent.works()
            begun = threading.active_count()
            cut.close()
    assert threading.active_count() < begun
    for channel in held:
        assert not is_open(channel)
        channel.close()


def test_a_worker_that_is_not_trusted_gets_no_place(export: Path, tmp_path: Path) -> None:
    with opened(export, tmp_path, trusted=False) as parent, parent.connect(1) as channel:
        channel.send({"token": parent.server.token, "seat": [1, 0]})
        with pytest.raises(TimeoutError):
            channel.receive()


def test_a_worker_has_no_more_places_at_a_time_than_threads(parent: Parent) -> None:
    with parent.place(1), parent.place(2), parent.connect() as third:
        third.send({"token": parent.server.token, "seat": [1, 0]})
        third.connection.settimeout(1)
        with pytest.raises(TimeoutError):
            third.receive()
    assert parent.works()


# ------------------------------------------------------------------- requests to the provider


def test_a_request_keeps_the_key_the_host_the_path_and_the_model(export: Path, tmp_path: Path) -> None:
    with Loopback([ANSWER]) as server, opened(export, tmp_path, server.url) as parent:
        hostile = {
            "authorization": "Bearer mine",
            "host": "elsewhere.example",
            "x-api-key": "mine",
            "content-length": "5",
            "transfer-encoding": "chunked",
            "content-type": "text/evil",
            "cookie": "a=b",
            "proxy-authorization": "x",
        }
        with parent.place() as place:
            told = parent.ask(place, headers=hostile, path="/v1/files", url="http://elsewhere.example", method="DELETE")
            assert told is not None
            assert told["usage"]["output"] == 100
            bodies: list[Any] = [
                {**BODY, "model": "dearer"},
                {**BODY, "n": 9},
                {},
                [],
                "text",
                5,
                None,
                {"model": ["m"]},
            ]
            for body in bodies:
                told = parent.ask(place, body)
                assert told is not None
                assert told["model_error"]["kind"] == "bad_request"
        (request,) = server.requests
    assert request.path == "/v1/chat/completions"
    assert request.body == BODY
    sent = {name: request.headers.get(name) for name in hostile}
    assert sent == dict.fromkeys(hostile) | {
        "authorization": f"Bearer {KEY}",
        "host": server.root.removeprefix("http://"),
        "content-length": str(len(request.raw)),
        "content-type": "application/json",
    }


WRONG: list[dict[str, Any]] = [
    {"headers": {"accept": "a\r\nauthorization: x"}},
    {"headers": {"accept": "ü\0"}},
    {"headers": {"accept": 5}},
    {"headers": ["accept"]},
    {"headers": None},
    {"attempt": 0},
    {"attempt": -1},
    {"attempt": "../1"},
    {"attempt": None},
    {"deadline": "nan"},
    {"deadline": "inf"},
    {"deadline": None},
    {"deadline": {}},
]


def test_a_malformed_request_costs_nothing_and_ends_alone(export: Path, tmp_path: Path) -> None:
    with Loopback([ANSWER]) as server, opened(export, tmp_path, server.url) as parent:
        with parent.place() as place:
            for wanted in WRONG:
                told = parent.ask(place, **wanted)
                assert told is None or "content_type" not in told, wanted
                assert server.requests == []
                assert parent.ledger.held_usd == 0
            assert parent.ask(place) is not None
            assert len(server.requests) == 1
        assert parent.works()


def test_no_output_cap_of_a_worker_makes_room_under_a_cap_of_the_run(export: Path, tmp_path: Path) -> None:
    slow = Turn(text="x", input=900, output=100, delay_s=1.0)
    with Loopback([slow]) as server, opened(export, tmp_path, server.url) as parent:
        for stated in (-(10**6), -1, True, 10**30):
            with parent.place() as place:
                asking = threading.Thread(target=parent.ask, args=(place, {**BODY, "max_tokens": stated}))
                asking.start()
                held = []
                while asking.is_alive():
                    held.append(parent.ledger.held_usd)
                    time.sleep(0.01)
            assert min(held) >= 0
            assert stated == 10**30 or max(held) >= 0.001


def test_money_that_a_dead_workers_request_holds_is_settled(export: Path, tmp_path: Path) -> None:
    slow = Turn(text="x", input=900, output=100, delay_s=1.5)
    with Loopback([slow]) as server, opened(export, tmp_path, server.url) as parent:
        with parent.place() as place:
            request = {"attempt": 1, "deadline": time.monotonic() + 30, "headers": {}}
            channel = parent.connect()
            channel.send({"token": place["token"], "model": request}, json.dumps(BODY).encode())
            deadline = time.monotonic() + 20
            while not parent.ledger.held_usd:
                assert time.monotonic() < deadline
                time.sleep(0.01)
            channel.close()  # the worker is gone, with its request and its place
        while parent.ledger.held_usd:
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert parent.ledger.spent_usd == pytest.approx(0.001)
    assert len(server.requests) == 1


def test_one_attempts_requests_go_one_at_a_time(export: Path, tmp_path: Path) -> None:
    slow = Turn(text="x", input=900, output=100, delay_s=0.3)
    with Loopback([slow]) as server, opened(export, tmp_path, server.url) as parent:
        with parent.place() as place:
            asking = [threading.Thread(target=parent.ask, args=(place,)) for _ in range(4)]
            for thread in asking:
                thread.start()
            for thread in asking:
                thread.join()
        assert server.most_at_once == 1
        assert len(server.requests) == 4


def test_a_model_that_sends_nothing_cannot_be_asked(export: Path, tmp_path: Path) -> None:
    experiment = load(["tools=full_dkgi", "tracking=none"])
    cell = open_cell(tmp_path / "runs", "c0ffee", {})
    ledger = Ledger(cap_usd=None, prices=None)
    with (
        Seats(experiment, export, export.parents[1], {}, "") as seats,
        WorkerServer(
            seats,
            cell,
            None,
            ledger,
            experiment.limits,
            None,
            Guard(),
            todo={(1, 0), (2, 0)},
            threads=THREADS,
            visible=[],
        ) as server,
    ):
        server.trust()
        parent = Parent(server, cell, ledger, seats)
        with parent.place() as place:
            assert parent.ask(place) is None
        assert parent.works()


# ------------------------------------------------------------------- programs


def test_a_program_shows_nothing_that_its_worker_does_not_see(export: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret\n")
    with opened(export, tmp_path, "http://127.0.0.1:9/v1", "harness=pi") as parent, parent.place() as place:
        for source in (tmp_path / "secret", Path("/etc/shadow"), Path("/"), export.parents[1] / "labels"):
            box = CliBox(((source, "/run/x"),), "/run/home", "/run/home", (("PATH", "/usr/bin:/bin"),), 60, 400)
            program = {"box": asdict(box), "argv": ["/bin/cat", "/run/x"]}
            told = parent.say(json.loads(json.dumps({"token": place["token"], "program": program}, default=str)))
            assert told is not None
            assert "is nothing that the worker sees itself" in told["refused"]
        forms: list[Any] = [None, 5, {}, {"box": {}, "argv": []}, {"box": "x", "argv": ["/bin/true"]}]
        for form in forms:
            told = parent.say({"token": place["token"], "program": form})
            assert told is None or "refused" in told
        assert parent.works()


def test_without_an_external_harness_no_program_is_started(parent: Parent) -> None:
    with parent.place() as place:
        box = CliBox((), "/run/home", "/run/home", (), 60, 400)
        program = {"box": asdict(box), "argv": ["/bin/true"]}
        assert parent.say({"token": place["token"], "program": program}) is None
    assert parent.works()
