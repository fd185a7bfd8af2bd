"""Money: what a grid, its runs and their queries have spent, what is held for requests under way, and the caps.

>>> ledger = Ledger(cap_usd=5.0, prices=Prices(input=0.1, cached_input=0.01, cache_write=0.1, output=0.5))
>>> account = ledger.account(cap_usd=None)
>>> hold = account.hold(Usage(input_fresh=9000, output=32_000, requests=1), deadline=time.monotonic() + 60)
>>> hold.settle(Usage(input_fresh=8000, output=200, requests=1)).output
200

    grid = GridLedger(cap_usd=25.0, cap_tokens=None)    Ledger(cap_usd=5.0, prices=..., grid=grid) for each cell of it

At every moment settled + held <= cap, for each query, each run and the grid, as long as providers charge no more than the
bound that was held. Models without a price cost nothing, and no cap in dollars refuses them; one in tokens does.
Not covered: how large a bound is (exchange.py), what was spent before (runner.py reads it from the store).
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from dkgi import console
from dkgi.pricing import dollars
from dkgi.types import Account, Hold, ModelError, Prices, Usage

_WARN_AT = 0.8
_ROUNDING_USD = 1e-12


def _usd(amount: float) -> str:
    return f"${amount:,.4f}"


def _tokens(amount: float) -> str:
    return f"{amount:,.0f} tokens"


@dataclass(slots=True)
class _Purse:
    """One cap (None: none) under its key, what was spent of it and what is held, in the unit that `told` says."""

    key: str
    cap: float | None
    spent: float
    told: Callable[[float], str] = _usd
    held: float = 0.0
    warned: bool = False
    refusal: str = ""

    def never_has(self, amount: float) -> bool:
        return self.cap is not None and self.spent + amount > self.cap + _ROUNDING_USD

    def has(self, amount: float) -> bool:
        return self.cap is None or self.spent + self.held + amount <= self.cap + _ROUNDING_USD

    def warning(self) -> str:
        """What to say where most of it is spent, the first time; else an empty text."""
        if self.warned or self.cap is None or not 0 < _WARN_AT * self.cap <= self.spent:
            return ""
        self.warned = True
        return f"{self.told(self.spent)} of {self} are spent; when it is used up, raise it and the same command goes on"

    def refuse(self, amount: float) -> str:
        self.refusal = f"{self}: {self.told(self.spent)} are spent and the next request may cost {self.told(amount)}"
        return self.refusal

    def __str__(self) -> str:
        return f"{self.key}={self.cap:.12g}"


_Shares = Sequence[tuple[_Purse, float]]
"""What is taken from each purse."""


class GridLedger:
    """The money of a grid, shared by the ledgers of its cells, with one lock for all of them.

    `spent_usd` and `spent_tokens` are what counts against the caps from the start. Tokens are all input and output.
    """

    def __init__(
        self, cap_usd: float | None, cap_tokens: int | None, spent_usd: float = 0.0, spent_tokens: int = 0
    ) -> None:
        self.changed = threading.Condition()
        self.usd = _Purse("limits.usd_grid", cap_usd, spent_usd)
        self.tokens = _Purse("limits.tokens_grid", cap_tokens, spent_tokens, _tokens)

    @property
    def spent_usd(self) -> float:
        with self.changed:
            return self.usd.spent

    @property
    def spent_tokens(self) -> int:
        with self.changed:
            return round(self.tokens.spent)

    @property
    def held_usd(self) -> float:
        with self.changed:
            return self.usd.held

    @property
    def held_tokens(self) -> int:
        with self.changed:
            return round(self.tokens.held)

    @property
    def refused(self) -> dict[str, str]:
        """The caps of the grid that have refused a request of any cell, `limits.usd_grid` or `limits.tokens_grid`, each with why."""
        with self.changed:
            return {purse.key: purse.refusal for purse in (self.usd, self.tokens) if purse.refusal}


class Ledger:
    """The money of one run, shared by its threads. `spent_usd` is what counts against the cap from the start.

    With `grid` it is the run of one of a grid's cells; what the cell spent before is in the grid's ledger already.
    """

    def __init__(
        self,
        *,
        cap_usd: float | None,
        prices: Prices | None,
        spent_usd: float = 0.0,
        grid: GridLedger | None = None,
    ) -> None:
        self._run = _Purse("limits.usd_run", cap_usd, spent_usd)
        self._grid = grid or GridLedger(None, None)
        self._prices = prices
        self._changed = self._grid.changed
        self._refused: dict[str, str] = {}
        self._exhausted = False

    def account(self, *, cap_usd: float | None, spent_usd: float = 0.0) -> Account:
        """The account of one query, which has spent `spent_usd` in earlier attempts (part of the run's as well)."""
        return _Account(self, _Purse("limits.usd_query", cap_usd, spent_usd))

    @property
    def spent_usd(self) -> float:
        with self._changed:
            return self._run.spent

    @property
    def refused(self) -> dict[str, str]:
        """The caps that have refused a request of this run, by their keys (`limits.usd_run`, ...), each with why."""
        with self._changed:
            return dict(self._refused)

    @property
    def exhausted(self) -> bool:
        """A cap of the run or of the grid has refused a request of this run: no other query needs to be begun."""
        with self._changed:
            return self._exhausted

    @property
    def held_usd(self) -> float:
        with self._changed:
            return self._run.held

    def hold(self, query: _Purse, bound: Usage, deadline: float) -> Hold:
        bound = _at_the_dearest(bound, self._prices)
        shares = self._shares(query, bound)
        with self._changed:
            while True:
                for purse, amount in shares:
                    if amount and purse.never_has(amount):
                        self._refused[purse.key] = purse.refuse(amount)
                        self._exhausted = self._exhausted or purse is not query
                        raise ModelError(purse.refusal, kind="budget")
                if all(purse.has(amount) for purse, amount in shares if amount):
                    break
                left = deadline - time.monotonic()
                if left <= 0:
                    raise ModelError("time ran out while other requests held the money", kind="timeout")
                self._changed.wait(left)
            for purse, amount in shares:
                purse.held += amount
        return _Hold(self, query, bound, shares)

    def settle(self, query: _Purse, held: _Shares, usage: Usage) -> None:
        with self._changed:
            for (purse, amount), (_, used) in zip(held, self._shares(query, usage), strict=True):
                purse.held -= amount
                purse.spent += used
            warnings = [purse.warning() for purse in (self._run, self._grid.usd, self._grid.tokens)]
            self._changed.notify_all()
        for warning in filter(None, warnings):
            console.stderr().print(warning, soft_wrap=True)

    def _shares(self, query: _Purse, usage: Usage) -> _Shares:
        """What a usage takes from each purse, the narrowest first."""
        price = dollars(usage, self._prices) or 0.0
        tokens = usage.input_tokens + usage.output
        return [(query, price), (self._run, price), (self._grid.usd, price), (self._grid.tokens, tokens)]


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
    shares: _Shares

    def settle(self, usage: Usage | None) -> Usage:
        counted = replace(self.bound, complete=False) if usage is None else usage
        self.ledger.settle(self.purse, self.shares, counted)
        return counted


def _at_the_dearest(bound: Usage, prices: Prices | None) -> Usage:
    """The bound with all input in the bucket that costs most, since nobody knows yet what a cache takes or writes."""
    if prices is None or prices.cache_write <= prices.input:
        return bound
    return replace(bound, input_fresh=0, cache_read=0, cache_write=bound.input_tokens)
