"""Seats for requests: how many there are, who gets the next one, and that a wait ends."""

import threading
import time
from contextlib import ExitStack

import pytest

from dkgi.limiter import Limiter
from dkgi.types import ModelError


def later() -> float:
    return time.monotonic() + 30


def full(limiter: Limiter) -> ExitStack:
    stack = ExitStack()
    for _ in range(limiter.limit):
        stack.enter_context(limiter.seat(begun=True, deadline=later()))
    return stack


def grow(limiter: Limiter, answers: int) -> None:
    with full(limiter):
        for _ in range(answers):
            limiter.answered()


def test_the_limit_doubles_a_round_until_the_first_refusal_and_then_grows_by_one() -> None:
    limiter = Limiter()
    first = limiter.limit
    grow(limiter, 1)
    assert limiter.limit == first + 1
    limiter.refused(time.monotonic())
    cut = limiter.limit
    grow(limiter, 1)
    assert limiter.limit == cut
    for _ in range(3):
        grow(limiter, limiter.limit)
    assert cut + 1 <= limiter.limit <= cut + 3


def test_a_run_of_64_threads_loses_no_round_at_its_start() -> None:
    limiter, asked = Limiter(), ExitStack()
    with asked:
        for _ in range(64):
            asked.enter_context(limiter.seat(begun=False, deadline=time.monotonic()))


def test_a_limit_that_is_not_used_up_does_not_grow() -> None:
    limiter = Limiter()
    first = limiter.limit
    with limiter.seat(begun=True, deadline=later()):
        for _ in range(100):
            limiter.answered()
    assert limiter.limit == first


def test_refusals_of_one_round_cut_once_and_a_provider_that_answers_nothing_gets_one_request_at_a_time() -> None:
    limiter = Limiter()
    sent = time.monotonic()
    first = limiter.limit
    for _ in range(50):
        limiter.refused(sent)
    assert limiter.limit == first // 2
    for _ in range(20):
        limiter.refused(time.monotonic() + 1)
    assert limiter.limit == 1


def test_a_failing_provider_gets_no_more_for_a_while() -> None:
    limiter = Limiter()
    first = limiter.limit
    limiter.failed()
    grow(limiter, 100)
    assert limiter.limit == first


def test_queries_that_have_begun_go_before_new_ones() -> None:
    limiter = Limiter()
    order: list[str] = []
    queued = full(limiter)

    def wait(name: str, *, begun: bool) -> None:
        with limiter.seat(begun=begun, deadline=later()):
            order.append(name)
            time.sleep(0.01)

    threads = []
    for place in range(4):
        for name, begun in ((f"new {place}", False), (f"begun {place}", True)):
            threads.append(threading.Thread(target=wait, args=(name,), kwargs={"begun": begun}))
            threads[-1].start()
            time.sleep(0.02)
    limiter.refused(time.monotonic())
    for _ in range(10):
        limiter.refused(time.monotonic() + 1)
    queued.close()
    for thread in threads:
        thread.join(30)
    assert limiter.limit == 1
    assert order == [f"begun {n}" for n in range(4)] + [f"new {n}" for n in range(4)]


def test_a_wait_for_a_seat_ends_by_the_deadline_and_takes_no_seat() -> None:
    limiter = Limiter()
    with full(limiter):
        with pytest.raises(ModelError) as caught, limiter.seat(begun=True, deadline=time.monotonic() + 0.05):
            pass
        assert caught.value.kind == "timeout"
    with full(limiter):
        pass
