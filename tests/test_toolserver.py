"""Tools on a socket: who may call them, for how long, and what a caller hears when they are gone."""

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dkgi.kg.remote import ask
from dkgi.runner import Seat
from dkgi.tools import make_tools
from dkgi.toolserver import Called, ToolServer
from dkgi.types import SandboxError, Tool, ToolSocket


@pytest.fixture
def tools(seat: Seat) -> dict[str, Tool]:
    return make_tools(("bash", "read"), seat.commands, {})


@pytest.fixture
def doors(tmp_path: Path) -> Iterator[ToolServer]:
    (tmp_path / "sockets").mkdir(mode=0o700)
    with ToolServer(tmp_path / "sockets") as server:
        yield server


def call(door: ToolSocket, tool: str, **arguments: Any) -> Any:
    return ask(door.path, {"token": door.token, "tool": tool, "arguments": arguments}, timeout_s=30)


def test_a_call_runs_in_the_jail_of_the_attempt_and_is_recorded(doors: ToolServer, tools: dict[str, Tool]) -> None:
    seen: list[Called] = []
    with doors.attempt(tools, call_s=30, record=seen.append) as door:
        assert call(door, "bash", command="pwd; exit 3") == {"text": "/graph\n[exit code 3]", "is_error": True}
        assert call(door, "read", path="candidate_ids.txt") == {"text": "0\n1\n2\n", "is_error": False}
    assert [(line.tool, line.is_error) for line in seen] == [("bash", True), ("read", False)]


def test_a_token_opens_the_tools_of_its_attempt_alone_and_while_it_lasts(
    doors: ToolServer, tools: dict[str, Tool]
) -> None:
    with doors.attempt({"read": tools["read"]}, call_s=30) as first, doors.attempt(tools, call_s=30) as second:
        assert "there is no tool named bash" in call(first, "bash", command="ls")["text"]
        assert not call(second, "bash", command="ls")["is_error"]
        assert call(ToolSocket(first.path, "guess"), "read", path="x") == {"refused": "unknown token"}
        assert call(ToolSocket(first.path, second.token), "read", path="x") == {"refused": "unknown token"}
    with pytest.raises(SandboxError, match="cannot be reached"):
        call(second, "bash", command="ls")


def test_a_call_ends_with_its_time(doors: ToolServer, tools: dict[str, Tool]) -> None:
    with doors.attempt(tools, call_s=0.5) as door:
        assert "the time allowed for this command was over" in call(door, "bash", command="sleep 20")["text"]


def test_who_waits_for_a_call_is_cut_off_when_the_attempt_ends(doors: ToolServer, tools: dict[str, Tool]) -> None:
    ended: list[float] = []

    def wait(door: ToolSocket) -> None:
        with pytest.raises(SandboxError):
            call(door, "bash", command="sleep 20")
        ended.append(time.monotonic())

    with doors.attempt(tools, call_s=30) as door:
        thread = threading.Thread(target=wait, args=(door,))
        thread.start()
        time.sleep(0.5)
        left = time.monotonic()
    thread.join(10)
    assert ended[0] - left < 5


def test_a_caller_hears_that_its_tools_are_gone(
    doors: ToolServer, tools: dict[str, Tool], cancel: Callable[[], None]
) -> None:
    with doors.attempt(tools, call_s=30) as door:
        cancel()
        assert "refused" in call(door, "bash", command="ls")
