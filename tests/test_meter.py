"""Caps hold whatever threads do: settled and held money together never exceed them."""

import random
import threading
import time

import pytest

from dkgi.meter import Ledger
from dkgi.types import ModelError, Prices, Usage

PRICES = Prices(input=1.0, cached_input=0.1, cache_write=1.25, output=10.0)
PLAIN = Prices(input=1.0, cached_input=0.1, cache_write=1.0, output=10.0)


def soon() -> float:
    return time.monotonic() + 0.05


def later() -> float:
    return time.monotonic() + 30


def test_eight_threads_that_race_for_ten_cents_never_hold_more() -> None:
    ledger = Ledger(cap_usd=0.10, prices=PLAIN)
    over: list[float] = []
    ends: list[str] = []

    def work(seed: int) -> None:
        dice = random.Random(seed)
        account = ledger.account(cap_usd=None)
        try:
            while True:
                bound = Usage(input_fresh=dice.randrange(500, 2000), output=dice.randrange(10, 100), requests=1)
                hold = account.hold(bound, deadline=later())
                over.append(ledger.spent_usd + ledger.held_usd)
                used = Usage(input_fresh=dice.randrange(bound.input_fresh), output=dice.randrange(bound.output))
                hold.settle(None if dice.random() < 0.1 else used)
        except ModelError as error:
            ends.append(error.kind)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ends == ["budget"] * 8
    assert max(over) <= 0.10 + 1e-9
    assert ledger.spent_usd > 0.09


def test_a_request_waits_for_money_that_others_hold_and_is_not_refused() -> None:
    ledger = Ledger(cap_usd=0.001, prices=PLAIN)
    account = ledger.account(cap_usd=None)
    first = account.hold(Usage(output=80), deadline=later())
    with pytest.raises(ModelError) as caught:
        account.hold(Usage(output=80), deadline=soon())
    assert caught.value.kind == "timeout"
    threading.Timer(0.05, first.settle, [Usage(output=10)]).start()
    started = time.monotonic()
    account.hold(Usage(output=80), deadline=later()).settle(Usage(output=80))
    # It was woken, and did not find out at the end of its time.
    assert time.monotonic() - started < 15
    assert ledger.spent_usd == pytest.approx(0.0009)


def test_a_cap_of_a_query_binds_that_query_alone() -> None:
    ledger = Ledger(cap_usd=1.0, prices=PLAIN)
    poor, rich = ledger.account(cap_usd=0.001), ledger.account(cap_usd=0.1, spent_usd=0.05)
    with pytest.raises(ModelError, match=r"limits\.usd_query") as caught:
        poor.hold(Usage(output=200), deadline=later())
    assert caught.value.kind == "budget"
    assert list(ledger.refused) == ["limits.usd_query"]
    rich.hold(Usage(output=200), deadline=later()).settle(Usage(output=200))
    assert ledger.spent_usd == pytest.approx(0.002)


def test_what_was_spent_before_counts_against_the_cap() -> None:
    ledger = Ledger(cap_usd=1.0, prices=PLAIN, spent_usd=0.9995)
    with pytest.raises(ModelError, match=r"limits\.usd_run"):
        ledger.account(cap_usd=None).hold(Usage(output=100), deadline=later())


def test_a_bound_counts_all_input_at_its_dearest_and_is_what_an_unknown_request_used() -> None:
    ledger = Ledger(cap_usd=1.0, prices=PRICES)
    hold = ledger.account(cap_usd=None).hold(Usage(input_fresh=1000, output=10, requests=1), deadline=later())
    assert hold.bound == Usage(cache_write=1000, output=10, requests=1)
    assert ledger.held_usd == pytest.approx(0.00135)
    assert hold.settle(None) == Usage(cache_write=1000, output=10, requests=1, complete=False)
    assert ledger.spent_usd == pytest.approx(0.00135)
    assert ledger.held_usd == pytest.approx(0.0)


def test_a_model_without_a_price_is_never_refused() -> None:
    ledger = Ledger(cap_usd=0.0, prices=None)
    ledger.account(cap_usd=0.0).hold(Usage(output=10**9), deadline=soon()).settle(None)
    assert ledger.spent_usd == 0


def test_a_warning_comes_once_at_80_percent(capsys: pytest.CaptureFixture[str]) -> None:
    account = Ledger(cap_usd=0.01, prices=PLAIN).account(cap_usd=None)
    for _ in range(7):
        account.hold(Usage(output=100), deadline=later()).settle(Usage(output=100))
    assert capsys.readouterr().err == ""
    for _ in range(3):
        account.hold(Usage(output=100), deadline=later()).settle(Usage(output=100))
    assert capsys.readouterr().err.count("limits.usd_run=0.01") == 1
