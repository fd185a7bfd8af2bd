"""A worker whose parent ends: nothing that it notices then becomes the end of an attempt."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.harness import open_harness
from dkgi.listener import listen
from dkgi.models import open_models
from dkgi.runner import CellRun, answer_queries
from dkgi.store import Cell
from dkgi.types import Query, SandboxError, SetupError
from dkgi.worker.channel import Channel
from dkgi.worker.remote import RemoteParent

QUERY = Query(17, "test", "Which film has a boat?", False)
WORKSPACE = {
    **dict.fromkeys(("graph_dir", "scratch_dir", "tmp_dir", "outputs_dir"), "/nowhere"),
    **dict.fromkeys(("graph_at", "scratch_at", "outputs_at"), "/nowhere"),
    "client": [],
}
SEAT = {
    "token": "of the seat",
    "workspace": WORKSPACE,
    "commands": {"socket": "/nowhere", "token": "x"},
    "graph_tools": {},
    "calls": None,
    "programs": False,
}


@contextmanager
def parent(folder: Path, ends_at: Callable[[dict[str, object]], bool]) -> Iterator[Path]:
    """A parent that opens a place and ends, with all its connections, at the first request for which `ends_at` holds."""
    path = folder / "s"
    listener = listen(path, 0o666)
    channels: list[Channel] = []

    def end() -> None:
        with contextlib.suppress(OSError):  # it has ended by itself
            listener.shutdown(socket.SHUT_RDWR)
        for channel in channels:
            channel.cut()

    def serve(channel: Channel) -> None:
        with channel, contextlib.suppress(OSError):
            while (heard := channel.receive()) is not None:
                if ends_at(heard[0]):
                    end()
                channel.send(SEAT if "seat" in heard[0] else {"graph_calls": 0})

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                channels.append(Channel(listener.accept()[0]))
                threads.append(threading.Thread(target=serve, args=(channels[-1],)))
                threads[-1].start()

    threads = [threading.Thread(target=accept)]
    threads[0].start()
    yield path
    end()
    for thread in threads:
        thread.join(timeout=30)
    listener.close()


def work(path: Path, cell: Cell) -> None:
    experiment = load(["model=local", "model.base_url=http://127.0.0.1:1/v1", "tools=closed_book"])
    remote = RemoteParent(path, "token")
    run = CellRun(
        cell=cell,
        dataset="films",
        harness=open_harness(experiment.harness),
        models=open_models(experiment.model, transports=remote.transport),
        policy=experiment.tools,
        limits=experiment.limits,
        prices=None,
        ledger=remote.ledger,
        answer_key="node_ids",
        prompt=lambda query, workspace: query.text,
        seat=remote.seat,
        cancel=remote.cancel,
    )
    list(answer_queries(run, [(QUERY, 0)], threads=1))


@pytest.mark.parametrize("moment", ["seat", "model"])
def test_an_attempt_during_which_the_parent_ends_is_cut_off_and_no_try(tmp_path: Path, moment: str) -> None:
    cell = Cell(tmp_path / "cell")
    with parent(tmp_path, lambda request: moment in request) as path, pytest.raises(SetupError, match="is gone"):
        work(path, cell)
    assert [attempt.end for attempt in cell.attempts(17, 0)] == ([None] if moment == "model" else [])
    assert cell.result(17, 0) is None


@pytest.mark.parametrize(("ends", "raised"), [(False, SandboxError), (True, SetupError)])
def test_a_place_that_does_not_hold_is_told_from_a_parent_that_is_gone(
    tmp_path: Path, ends: bool, raised: type[Exception]
) -> None:
    cell = Cell(tmp_path / "cell")
    log = cell.query_folder(17, 0) / "commands.jsonl"
    with (
        parent(tmp_path, lambda request: ends and "seat" not in request) as path,
        pytest.raises(raised),
        RemoteParent(path, "token").seat(log),
    ):
        raise SandboxError("the jail was killed from outside")
