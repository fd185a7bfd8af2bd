"""Attempts wait while the machine is short of something, and one always runs."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import pytest

from dkgi.machine import GIB, Guard, Reading, read_machine, shortage

PLENTY = Reading(available=8 * GIB, total=16 * GIB, load=1.0, cores=2)
SHORT = Reading(available=GIB // 2, total=16 * GIB, load=1.0, cores=2)


@pytest.mark.parametrize(
    ("reading", "told"),
    [
        (PLENTY, ""),
        (Reading(GIB, 4 * GIB, 16.0, 2), ""),
        (Reading(GIB - 1, 4 * GIB, 0.0, 2), "1.0 of 4.0 GiB of memory are free"),
        (Reading(12 * GIB, 256 * GIB, 0.0, 2), "12.0 of 256.0 GiB of memory are free"),
        (Reading(13 * GIB, 256 * GIB, 0.0, 2), ""),
        (Reading(8 * GIB, 16 * GIB, 16.1, 2), "the load is 16 on 2 cores"),
        (Reading(8 * GIB, 16 * GIB, 16.1, 4), ""),
    ],
)
def test_what_the_machine_is_short_of(reading: Reading, told: str) -> None:
    assert shortage(reading) == told


def test_this_machine_can_be_read() -> None:
    reading = read_machine()
    assert 0 < reading.available <= reading.total
    assert reading.cores >= 1
    assert reading.load >= 0


def hold(guard: Guard, begun: threading.Event, leave: threading.Event, stopped: Callable[[], bool]) -> None:
    with guard.attempt(stopped):
        begun.set()
        assert leave.wait(30)


def test_one_attempt_always_runs_and_the_next_begins_when_it_has_ended() -> None:
    guard = Guard(lambda: SHORT)
    running = most = 0
    counting, stop = threading.Lock(), threading.Event()

    def work() -> None:
        nonlocal running, most
        with guard.attempt(stop.is_set):
            with counting:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with counting:
                running -= 1

    with ThreadPoolExecutor(8) as pool:
        waiting = wait([pool.submit(work) for _ in range(8)], timeout=30).not_done
        stop.set()
    assert not waiting
    assert most == 1


def test_attempts_run_side_by_side_while_nothing_is_short() -> None:
    guard, together = Guard(lambda: PLENTY), threading.Barrier(8, timeout=30)

    def work(_: int) -> None:
        with guard.attempt():
            together.wait()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_a_waiting_attempt_begins_when_the_shortage_is_over() -> None:
    readings = [SHORT]
    looked = threading.Event()

    def read() -> Reading:
        looked.set()
        return readings[0]

    guard = Guard(read)
    begun, leave = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool, guard.attempt():
        waiting = pool.submit(hold, guard, begun, leave, lambda: False)
        assert looked.wait(30)
        assert not begun.is_set()
        readings[0] = PLENTY
        assert begun.wait(30)
        leave.set()
        waiting.result(timeout=30)


def test_nobody_waits_once_the_work_is_stopped() -> None:
    looked, stop = threading.Event(), threading.Event()

    def read() -> Reading:
        looked.set()
        return SHORT

    guard = Guard(read)
    begun, leave = threading.Event(), threading.Event()
    with ThreadPoolExecutor(1) as pool, guard.attempt():
        waiting = pool.submit(hold, guard, begun, leave, stop.is_set)
        assert looked.wait(30)
        stop.set()
        leave.set()
        waiting.result(timeout=30)


def test_the_shortage_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    looks = threading.Semaphore(0)

    def read() -> Reading:
        looks.release()
        return SHORT

    guard, stop = Guard(read), threading.Event()
    begun, leave = threading.Event(), threading.Event()
    leave.set()
    with ThreadPoolExecutor(2) as pool, guard.attempt():
        waiting = [pool.submit(hold, guard, begun, leave, stop.is_set) for _ in range(2)]
        for _ in range(4):
            assert looks.acquire(timeout=30)
        stop.set()
        for each in waiting:
            each.result(timeout=30)
    assert capsys.readouterr().err.count("0.5 of 16.0 GiB of memory are free") == 1
