"""Cells that ask one provider share its seats and what is told of its faults; other providers have a line of their own."""

import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from dkgi.lines import Lines
from dkgi.models import open_models
from dkgi.types import ModelError, Reply, UserText
from tests.loopback import Loopback, Turn
from tests.models.providers import KEY, provider
from tests.places import free_place

GOOD = Turn(text="hello")


@pytest.fixture(autouse=True)
def _keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    monkeypatch.setenv("DKGI_OTHER_KEY", KEY)


def ask(lines: Lines, address: str, folder: Path, *, variable: str = "DKGI_TEST_KEY", model: str = "model-1") -> Reply:
    spec = provider("openai_chat", base_url=address, key_variable=variable, model=model)
    return open_models(spec, lines=lines).model(free_place(folder=folder, seconds=2)).reply([UserText("hi")], [])


def test_cells_on_one_provider_wait_for_the_same_seats_and_those_on_another_do_not(tmp_path: Path) -> None:
    lines = Lines()
    with Loopback([GOOD]) as server, Loopback([GOOD]) as other, ExitStack() as seats:
        limiter = lines.to(server.url, "DKGI_TEST_KEY").limiter
        for _ in range(limiter.limit):
            seats.enter_context(limiter.seat(begun=True, deadline=time.monotonic() + 60))
        for model, address in (("model-1", server.url), ("model-2", f"{server.url}/")):
            with pytest.raises(ModelError, match="other requests were under way"):
                ask(lines, address, tmp_path, model=model)
        assert server.requests == []
        assert ask(lines, server.url, tmp_path, variable="DKGI_OTHER_KEY").text == "hello"
        assert ask(lines, other.url, tmp_path).text == "hello"
        seats.close()
        assert ask(lines, server.url, tmp_path).text == "hello"


def test_a_refusal_of_one_cells_request_slows_all_cells_on_the_provider(tmp_path: Path) -> None:
    lines = Lines()
    with Loopback([Turn(status=429, body={"error": {"message": "slow down"}}), GOOD]) as server:
        limiter = lines.to(server.url, "DKGI_TEST_KEY").limiter
        first = limiter.limit
        ask(lines, server.url, tmp_path, model="model-2")
        assert limiter.limit < first


def test_a_fault_of_the_provider_is_told_once_for_all_cells(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = Lines()
    with Loopback([Turn(status=400, body={"error": {"message": "no such field"}})]) as server:
        for model in ("model-1", "model-2"):
            with pytest.raises(ModelError):
                ask(lines, server.url, tmp_path, model=model)
    assert capsys.readouterr().err == "openai_chat: bad_request: no such field\n"
