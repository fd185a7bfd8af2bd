"""Money: what a run and its queries have spent, what is held for requests under way, and the caps on both.

>>> ledger = Ledger(cap_usd=5.0, prices=Prices(input=0.1, cached_input=0.01, cache_write=0.1, output=0.5))
>>> account = ledger.account(cap_usd=None)
>>> hold = account.hold(Usage(input_fresh=9000, output=32_000, requests=1), deadline=time.monotonic() + 60)
>>> hold.settle(Usage(input_fresh=8000, output=200, requests=1)).output
200

At every moment settled + held <= cap, for the run and for each query, as long as providers charge no more than the
bound that was held. Models without a price cost nothing and are never refused.
Not covered: how large a bound is (exchange.py), what was spent before (runner.py reads it from the store).
"""

import threading
import time
from dataclasses import dataclass, replace

from dkgi import console
from dkgi.pricing import dollars
from dkgi.types import Account, Hold, ModelError, Prices, Usage

_WARN_AT = 0.8
_ROUNDING_USD = 1e-12


@dataclass(slots=True)
class _Purse:
    """One cap (None: none), what was spent of it and what is held, in dollars."""

    cap: float | None
    spent: float
    held: float = 0.0

    def never_has(self, price: float) -> bool:
        return self.cap is not None and self.spent + price > self.cap + _ROUNDING_USD

    def has(self, price: float) -> bool:
        return self.cap is None or self.spent + self.held + price <= self.cap + _ROUNDING_USD


class Ledger:
    """The money of one run, shared by its threads. `spent_usd` is what counts against the cap from the start."""

    def __init__(self, *, cap_usd: float | None, prices: Prices | None, spent_usd: float = 0.0) -> None:
        self._run = _Purse(cap_usd, spent_usd)
        self._prices = prices
        self._changed = threading.Condition()
        self._warned = False
        self._refused: dict[str, str] = {}

    def account(self, *, cap_usd: float | None, spent_usd: float = 0.0) -> Account:
        """The account of one query, which has spent `spent_usd` in earlier attempts (part of the run's as well)."""
        return _Account(self, _Purse(cap_usd, spent_usd))

    @property
    def spent_usd(self) -> float:
        with self._changed:
            return self._run.spent

    @property
    def refused(self) -> dict[str, str]:
        """The caps that have refused a request, `limits.usd_run` or `limits.usd_query`, each with why."""
        with self._changed:
            return dict(self._refused)

    @property
    def held_usd(self) -> float:
        with self._changed:
            return self._run.held

    def hold(self, query: _Purse, bound: Usage, deadline: float) -> Hold:
        bound = _at_the_dearest(bound, self._prices)
        price = dollars(bound, self._prices) or 0.0
        purses = {"query": query, "run": self._run}
        with self._changed:
            while True:
                for name, purse in purses.items():
                    if price and purse.never_has(price):
                        refusal = self._refused[f"limits.usd_{name}"] = _refusal(name, purse, price)
                        raise ModelError(refusal, kind="budget")
                if not price or all(purse.has(price) for purse in purses.values()):
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ModelError("time ran out while other requests held the money", kind="timeout")
                self._changed.wait(left)
            for purse in purses.values():
                purse.held += price
        return _Hold(self, query, bound, price)

    def settle(self, query: _Purse, held: float, usage: Usage) -> None:
        cost = dollars(usage, self._prices) or 0.0
        with self._changed:
            for purse in (query, self._run):
                purse.held -= held
                purse.spent += cost
            cap, spent = self._run.cap, self._run.spent
            warn = cap is not None and 0 < _WARN_AT * cap <= spent and not self._warned
            self._warned = self._warned or warn
            self._changed.notify_all()
        if warn:
            console.stderr().print(
                f"${spent:,.4f} of limits.usd_run={cap:g} are spent; raise it and the same command goes on",
                soft_wrap=True,
            )


@dataclass(frozen=True, slots=True)
class _Account:
    ledger: Ledger
    purse: _Purse

    def hold(self, bound: Usage, *, deadline: float) -> Hold:
        return self.ledger.hold(self.purse, bound, deadline)


@dataclass(frozen=True, slots=True)
class _Hold:
    ledger: Ledger
    purse: _Purse
    bound: Usage
    price: float

    def settle(self, usage: Usage | None) -> Usage:
        counted = replace(self.bound, complete=False) if usage is None else usage
        self.ledger.settle(self.purse, self.price, counted)
        return counted


def _at_the_dearest(bound: Usage, prices: Prices | None) -> Usage:
    """The bound with all input in the bucket that costs most, since nobody knows yet what a cache takes or writes."""
    if prices is None or prices.cache_write <= prices.input:
        return bound
    return replace(bound, input_fresh=0, cache_read=0, cache_write=bound.input_tokens)


def _refusal(name: str, purse: _Purse, price: float) -> str:
    return f"limits.usd_{name}={purse.cap:g}: ${purse.spent:,.4f} are spent and the next request may cost ${price:,.4f}"
