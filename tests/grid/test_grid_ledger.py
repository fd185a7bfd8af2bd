"""One ledger for all cells of a grid: its caps hold whatever the cells' threads do, and wherever they are cut off."""

import random
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.lines import Lines
from dkgi.meter import GridLedger, Ledger
from dkgi.models import open_models
from dkgi.models.provider import ProviderModel
from dkgi.pricing import dollars
from dkgi.types import ModelError, Place, Prices, Usage, UserText
from tests.loopback import Fault, Loopback, Turn
from tests.models.providers import BASH, provider

PLAIN = Prices(input=1.0, cached_input=0.1, cache_write=1.0, output=10.0)
CAP_USD, CAP_TOKENS = 0.10, 220_000
CELLS = 8


def soon() -> float:
    return time.monotonic() + 0.05


def later() -> float:
    return time.monotonic() + 30


def prices(cell: int) -> Prices:
    """A model's prices: each cell's is dearer than the one before; cache writes cost more in every other one."""
    each = 0.05 * (cell + 1)
    return Prices(input=each, cached_input=each / 10, cache_write=each * (1 + cell % 2), output=8 * each)


class Provider:
    """What the providers of all cells bill: anything up to the bound, whether or not the answer arrives."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.usd, self.tokens = 0.0, 0

    def bill(self, bound: Usage, cell: int, dice: random.Random) -> Usage:
        used = Usage(cache_write=dice.randint(0, bound.input_tokens), output=dice.randint(0, bound.output), requests=1)
        with self.lock:
            self.usd += dollars(used, prices(cell)) or 0.0
            self.tokens += used.input_tokens + used.output
        return used


def race(grid: GridLedger, bill: Provider, seed: int, *, cut_after: int | None) -> list[str]:
    """Two threads a cell that ask until a cap refuses; after so many requests all are cut off where they are."""
    left = threading.Semaphore(10**9 if cut_after is None else cut_after)
    cut = threading.Event()
    ends: list[str] = []
    most: list[tuple[float, int]] = []

    def work(cell: int, ledger: Ledger, dice: random.Random) -> None:
        account = ledger.account(cap_usd=None)
        while not cut.is_set():
            bound = Usage(input_fresh=dice.randrange(200, 1500), output=dice.randrange(10, 150), requests=1)
            try:
                hold = account.hold(bound, deadline=soon())
            except ModelError as error:
                if error.kind == "timeout":
                    continue
                ends.append(error.kind if ledger.exhausted else "not exhausted")
                return
            with grid.changed:
                most.append((grid.spent_usd + grid.held_usd, grid.spent_tokens + grid.held_tokens))
            used = bill.bill(hold.bound, cell, dice)
            time.sleep(dice.random() / 1000)
            if cut.is_set() or not left.acquire(blocking=False):
                cut.set()
                break
            hold.settle(None if dice.random() < 0.1 else used)
        ends.append("cut off")

    threads = []
    for cell in range(CELLS):
        ledger = Ledger(cap_usd=None, prices=prices(cell), grid=grid)
        for place in range(2):
            dice = random.Random(1000 * seed + 10 * cell + place)
            threads.append(threading.Thread(target=work, args=(cell, ledger, dice)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert max(usd for usd, _ in most) <= CAP_USD + 1e-9
    assert max(tokens for _, tokens in most) <= CAP_TOKENS
    return ends


@pytest.mark.parametrize("seed", range(6))
def test_cells_of_different_prices_that_are_cut_off_and_go_on_never_overrun_the_grids_caps(seed: int) -> None:
    bill, dice = Provider(), random.Random(seed)
    usd, tokens = 0.0, 0
    for life in range(3):
        grid = GridLedger(CAP_USD, CAP_TOKENS, usd, tokens)
        ends = race(grid, bill, 10 * seed + life, cut_after=dice.randrange(1, 60))
        assert len(ends) == 2 * CELLS
        assert "cut off" in ends
        # What has no answer counts at its bound when the grid goes on.
        usd, tokens = grid.spent_usd + grid.held_usd, grid.spent_tokens + grid.held_tokens
        assert bill.usd <= usd + 1e-9
        assert bill.tokens <= tokens
    grid = GridLedger(CAP_USD, CAP_TOKENS, usd, tokens)
    assert race(grid, bill, 10 * seed + 9, cut_after=None) == ["budget"] * 2 * CELLS
    assert set(grid.refused) <= {"limits.usd_grid", "limits.tokens_grid"}
    assert bill.usd <= grid.spent_usd + 1e-9 <= CAP_USD + 2e-9
    assert bill.tokens <= grid.spent_tokens <= CAP_TOKENS
    assert grid.held_usd == pytest.approx(0.0, abs=1e-12)
    assert grid.held_tokens == 0


def test_a_request_waits_for_money_that_another_cell_holds_and_is_woken_when_it_is_free() -> None:
    grid = GridLedger(0.001, None)
    first, second = (Ledger(cap_usd=None, prices=PLAIN, grid=grid).account(cap_usd=None) for _ in range(2))
    hold = first.hold(Usage(output=80), deadline=later())
    with pytest.raises(ModelError) as caught:
        second.hold(Usage(output=80), deadline=soon())
    assert caught.value.kind == "timeout"
    threading.Timer(0.05, hold.settle, [Usage(output=10)]).start()
    started = time.monotonic()
    second.hold(Usage(output=80), deadline=later()).settle(Usage(output=80))
    assert time.monotonic() - started < 15
    assert grid.spent_usd == pytest.approx(0.0009)
    assert grid.refused == {}


def test_what_the_grid_spent_before_counts_against_its_caps_and_no_cells() -> None:
    for grid, key in (
        (GridLedger(1.0, None, spent_usd=0.9995), "limits.usd_grid"),
        (GridLedger(None, 1000, spent_tokens=950), "limits.tokens_grid"),
    ):
        ledger = Ledger(cap_usd=0.01, prices=PLAIN, grid=grid)
        with pytest.raises(ModelError, match=key) as caught:
            ledger.account(cap_usd=None).hold(Usage(output=100), deadline=later())
        assert caught.value.kind == "budget"
        assert list(ledger.refused) == list(grid.refused) == [key]
        assert ledger.spent_usd == 0


def test_a_cap_in_tokens_bounds_a_model_without_a_price_and_one_in_dollars_does_not() -> None:
    grid = GridLedger(1.0, 1000, spent_usd=1.01)
    account = Ledger(cap_usd=0.0, prices=None, grid=grid).account(cap_usd=0.0)
    used = Usage(input_fresh=200, cache_read=300, cache_write=100, output=350, reasoning=200, requests=1)
    account.hold(Usage(input_fresh=600, output=400), deadline=soon()).settle(used)
    assert grid.spent_tokens == 950
    account.hold(Usage(output=50), deadline=soon()).settle(Usage(output=10))
    with pytest.raises(
        ModelError, match=r"^limits\.tokens_grid=1000: 960 tokens are spent and the next request may cost 50 tokens$"
    ):
        account.hold(Usage(output=50), deadline=soon())


def test_only_a_cell_that_was_refused_by_its_own_or_the_grids_cap_is_exhausted() -> None:
    grid = GridLedger(0.002, None)
    poor = Ledger(cap_usd=0.001, prices=PLAIN, grid=grid)
    dear, free = Ledger(cap_usd=None, prices=PLAIN, grid=grid), Ledger(cap_usd=None, prices=None, grid=grid)
    with pytest.raises(ModelError, match="usd_query"):
        poor.account(cap_usd=0.0001).hold(Usage(output=20), deadline=soon())
    assert not poor.exhausted
    with pytest.raises(ModelError, match="usd_run"):
        poor.account(cap_usd=None).hold(Usage(output=150), deadline=soon())
    assert (poor.exhausted, dear.exhausted, grid.refused) == (True, False, {})
    with pytest.raises(ModelError, match="usd_grid"):
        dear.account(cap_usd=None).hold(Usage(output=250), deadline=soon())
    free.account(cap_usd=None).hold(Usage(output=10**6), deadline=soon()).settle(None)
    assert (dear.exhausted, free.exhausted) == (True, False)
    assert list(grid.refused) == list(dear.refused) == ["limits.usd_grid"]
    assert list(poor.refused) == ["limits.usd_query", "limits.usd_run"]


def test_the_grid_warns_once_for_all_its_cells(capsys: pytest.CaptureFixture[str]) -> None:
    grid = GridLedger(0.01, 1200)
    accounts = [Ledger(cap_usd=None, prices=PLAIN, grid=grid).account(cap_usd=None) for _ in range(2)]
    for turn in range(7):
        accounts[turn % 2].hold(Usage(output=100), deadline=later()).settle(Usage(output=100))
    assert capsys.readouterr().err == ""
    for turn in range(3):
        accounts[turn % 2].hold(Usage(output=100), deadline=later()).settle(Usage(output=100))
    said = capsys.readouterr().err
    assert said.count("$0.0080 of limits.usd_grid=0.01 are spent") == 1
    assert said.count("1,000 tokens of limits.tokens_grid=1200 are spent") == 1
    assert len(said.splitlines()) == 2


# ------------------------------------------------------------------- over a socket

FAULTS: list[Fault | None] = [None, None, None, "cut_before", "cut_inside", "cut_after", "no_usage", "reset"]


def test_cells_that_race_over_one_line_pay_no_more_than_ten_cents_whatever_breaks(tmp_path: Path) -> None:
    """The server's own bill counts: also what it bills for answers that never arrive."""
    dice = random.Random(7)
    turns = [
        replace(Turn(text="hello", input=1000, output=dice.randrange(10, 90)), fault=dice.choice(FAULTS))
        for _ in range(2000)
    ]
    grid, lines = GridLedger(CAP_USD, None), Lines()
    kinds: list[str] = []

    def work(cell: int, ledger: Ledger, address: str, place: int) -> None:
        folder = tmp_path / f"{cell}-{place}"
        folder.mkdir()
        spec = provider(
            "openai_chat", model=f"model-{cell}", base_url=address, prices=prices(cell), max_output_tokens=100
        )
        source = open_models(spec, lines=lines)
        while True:
            # Too short a time for a second try, which would wait before it.
            account = ledger.account(cap_usd=None)
            model = source.model(Place(place, 0, 1, time.monotonic() + 1.2, folder, account))
            assert isinstance(model, ProviderModel)
            try:
                model.reply([UserText("hi")], [BASH])
            except ModelError as error:
                kinds.append(error.kind)
                if error.kind == "budget":
                    return

    with Loopback(list(turns)) as server:
        threads = []
        for cell in range(4):
            ledger = Ledger(cap_usd=None, prices=prices(cell), grid=grid)
            for place in range(2):
                threads.append(threading.Thread(target=work, args=(cell, ledger, server.url, place)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    billed = 0.0
    for request, turn in zip(server.requests, turns, strict=False):
        cell = int(request.body["model"].removeprefix("model-"))
        billed += dollars(Usage(input_fresh=turn.input, output=turn.output), prices(cell)) or 0.0
    assert kinds.count("budget") == 8
    assert 0.05 < billed <= grid.spent_usd + 1e-9 <= CAP_USD + 2e-9
    assert grid.held_usd == pytest.approx(0.0, abs=1e-12)
