"""The fault table of the exchange through every harness that asks a model: same end, same requests, same bill.

Native, Pi and Codex each ask a server of their own on loopback, at the same time; what is expected is written once.
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from dkgi.config import load
from dkgi.harness import open_harness
from dkgi.types import QueryResult, RunStop, SetupError
from tests.loopback import Loopback, Turn
from tests.one_query import Films, FilmsCell, films_cell, write_all

OK = Turn(text='{"node_ids": [4]}')
EACH = (1000 * 0.10 + 50 * 0.50) / 1_000_000
"""Dollars of a reply at luna's prices."""
MODELS = {"openai_responses": "luna", "openai_chat": "local", "anthropic_messages": "claude"}
END_S = 5.0
"""How much longer than its limit an attempt may take."""


@dataclass(frozen=True)
class Case:
    """What the server answers, and what is to come of it; `dollars` None: more than nothing, and marked as incomplete."""

    turns: Sequence[Turn]
    stop: str
    requests: int
    dollars: float | None
    error: str = ""
    wall_s: float = 60


def error(message: str, code: str | None = None) -> dict[str, dict[str, str | None]]:
    return {"error": {"message": message, "type": "invalid_request_error", "code": code}}


CASES = {
    "a reply": Case([OK], "answered", 1, EACH),
    "overload and a server's error before it": Case(
        [Turn(status=429, headers={"retry-after": "0"}, body=error("slow down")), Turn(status=503), OK],
        "answered",
        3,
        EACH,
    ),
    "cut once": Case([Turn(text=OK.text, fault="cut_inside"), OK], "answered", 2, None),
    "cut at the very end": Case([Turn(text=OK.text, fault="no_last_event"), OK], "answered", 2, None),
    "cut for good": Case([Turn(text=OK.text, fault="cut_inside")], "model_error", 3, None, "stream: "),
    "no figures": Case([Turn(text=OK.text, fault="no_usage")], "answered", 1, None),
    "a bad request": Case([Turn(status=400, body=error("no such field"))], "model_error", 1, 0, "bad_request: no such"),
    "a context that is too long": Case(
        [Turn(status=400, body=error("too long", "context_length_exceeded"))], "model_error", 1, 0, "context_overflow: "
    ),
    "a refusal": Case([Turn(text="I will not.", stop="refusal")], "refused", 1, EACH),
    "a filter": Case([Turn(text="Half of", stop="filter")], "refused", 1, EACH),
    "an answer that is cut short": Case([Turn(text='{"node_ids": [4', stop="length")], "bad_answer", 1, EACH, "not"),
    "a reply that says nothing": Case([Turn()], "model_error", 1, EACH, "empty: "),
    "silence": Case([Turn(fault="silence")], "time_limit", 1, None, wall_s=12),
    "a drip": Case([Turn(text=OK.text, fault="drip")], "time_limit", 1, None, wall_s=12),
}


@dataclass(frozen=True)
class Door:
    cell: FilmsCell
    server: Loopback

    def ask(self, case: Case) -> QueryResult | None:
        self.server.turns = list(case.turns)
        self.server.requests.clear()
        told = self.cell.ask("Which?", attempts=1, wall_s=case.wall_s)
        return told.result if told else None


def open_door(harness: str, wire: str, films: Films, folder: Path, stack: ExitStack) -> Door:
    """Skips where a program is not installed."""
    server = stack.enter_context(Loopback([OK]))
    options = [f"harness={harness}", f"model={MODELS[wire]}", "model.key_variable=null", "model.stream=true"]
    options.append(f"model.base_url={server.root if wire == 'anthropic_messages' else server.url}")
    try:
        open_harness((experiment := load(options)).harness).check(experiment.tools)
    except SetupError as reason:
        pytest.skip(str(reason))
    return Door(stack.enter_context(films_cell(options, films, folder)), server)


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    return write_all(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def doors(films: Films, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Door]]:
    """Each harness, asking a model behind the Responses wire."""
    with ExitStack() as stack:
        yield {
            name: open_door(name, "openai_responses", films, tmp_path_factory.mktemp("runs"), stack)
            for name in ("native", "pi", "codex")
        }


@pytest.fixture(scope="module")
def pi_doors(films: Films, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Door]]:
    """Pi, asking models behind the other wires."""
    with ExitStack() as stack:
        yield {
            wire: open_door("pi", wire, films, tmp_path_factory.mktemp("runs"), stack)
            for wire in ("openai_chat", "anthropic_messages")
        }


def check(case: Case, doors: dict[str, Door]) -> None:
    """Ask through all doors at once; each has to come to what is expected, in time, and leave nothing running."""
    begun = set(psutil.Process().children(recursive=True))
    with ThreadPoolExecutor() as pool:
        results = dict(zip(doors, pool.map(lambda door: door.ask(case), doors.values()), strict=True))
    came: dict[str, object] = {}
    for name, result in results.items():
        assert result is not None
        assert result.error.startswith(case.error) or case.error == "not", (name, result.error)
        assert result.wall_s <= case.wall_s + END_S, name
        complete = case.dollars is not None
        assert result.usage.complete is complete, name
        if doors[name].cell.run.prices and complete:
            # Some prices are other ones than luna's: then all that counts is whether it cost anything.
            assert (result.cost_usd or 0) > 0 if case.dollars else result.cost_usd == 0, name
        came[name] = (result.stops, len(doors[name].server.requests), result.usage.requests)
    assert came == dict.fromkeys(doors, ((case.stop,), case.requests, case.requests))
    assert set(psutil.Process().children(recursive=True)) - begun == set()


@pytest.mark.parametrize("name", CASES)
def test_a_fault_ends_alike_through_every_harness(name: str, doors: dict[str, Door]) -> None:
    case = CASES[name]
    check(case, doors)
    for door in doors.values():
        (result,) = [found for found in door.cell.run.cell.results() if found.number == door.cell.asked]
        if case.dollars is not None:
            assert result.cost_usd == pytest.approx(case.dollars, abs=1e-9)


@pytest.mark.parametrize("name", ["a reply", "cut at the very end", "a bad request", "a refusal"])
def test_a_fault_ends_alike_on_the_other_wires_of_pi(name: str, pi_doors: dict[str, Door]) -> None:
    check(CASES[name], pi_doors)


@pytest.mark.parametrize(
    ("turn", "stop", "said"),
    [
        (Turn(status=429, body=error("You exceeded your quota.", "insufficient_quota")), RunStop, "quota is used up"),
        (Turn(status=401, body=error("Incorrect API key")), SetupError, "a request without a key"),
        (Turn(status=404, body=error("no such model")), SetupError, "model.model, model.base_url: "),
    ],
    ids=["quota", "key", "model"],
)
def test_what_no_query_can_mend_stops_the_run_after_one_request(
    turn: Turn, stop: type[Exception], said: str, doors: dict[str, Door]
) -> None:
    for name, door in doors.items():
        with pytest.raises(stop, match=said):
            door.ask(Case([turn], "", 1, 0))
        assert len(door.server.requests) == 1, name


def test_a_query_without_money_is_put_off_and_nothing_is_sent(doors: dict[str, Door]) -> None:
    for name, door in doors.items():
        door.server.requests.clear()
        assert door.cell.ask("Which?", attempts=1, usd_query=0.000001) is None, name
        assert door.server.requests == [], name
