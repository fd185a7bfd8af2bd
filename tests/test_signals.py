"""The signals that end a command, in processes of their own."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import dkgi

SIGNALS = [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
STOPPED = "dkgi: stopped; the same command goes on\n"
PROGRAM = """
import signal, sys
from dkgi import signals
number = {number}
{before}
with signals.watched():
{body}
"""
RUN = """
    try:
        signal.raise_signal(number)
        print("goes on")
    finally:
        print("cleans up")
"""
CLEANED_UP_TWICE = """
    try:
        signal.raise_signal(number)
    finally:
        signal.raise_signal(number)
        signal.raise_signal(signal.SIGTERM)
        print("cleans up")
"""
HELD = """
    with signals.held():
        with signals.held():
            signal.raise_signal(number)
        print("is made")
    print("goes on")
"""
IN_A_TEXT = """
    exec("signal.raise_signal(number)")
"""
IN_ANOTHER_THREAD = """
    import queue, threading
    threading.Timer(0.5, lambda: signal.pthread_kill(threading.get_ident(), number)).start()
    queue.SimpleQueue().get(timeout=10)
"""
AT_THE_END = """
    import atexit
    atexit.register(signal.raise_signal, number)
"""


Run = Callable[..., tuple[str, str, int]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command as users do, by `python -m`: what it printed, what it said on standard error, its exit code."""

    def run(number: int, body: str, before: str = "") -> tuple[str, str, int]:
        (tmp_path / "command.py").write_text(PROGRAM.format(number=int(number), body=body, before=before))
        done = subprocess.run(
            [sys.executable, "-m", "command"],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(Path(dkgi.__file__).parents[1])},
        )
        return done.stdout, done.stderr, done.returncode

    return run


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_lets_a_command_clean_up_and_has_its_exit_code(number: int, code: int, run: Run) -> None:
    assert run(number, RUN) == ("cleans up\n", STOPPED, code)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_signals_that_follow_do_not_cut_the_cleaning_up_short(number: int, code: int, run: Run) -> None:
    assert run(number, CLEANED_UP_TWICE) == ("cleans up\n", STOPPED, code)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_waits_for_the_end_of_what_must_not_be_cut(number: int, code: int, run: Run) -> None:
    assert run(number, HELD) == ("is made\n", STOPPED, code)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_in_what_a_library_executes_as_a_text_has_its_exit_code(number: int, code: int, run: Run) -> None:
    assert run(number, IN_A_TEXT) == ("", STOPPED, code)


@pytest.mark.parametrize(("number", "code"), SIGNALS)
def test_a_signal_that_reaches_another_thread_ends_the_wait_of_the_main_one(number: int, code: int, run: Run) -> None:
    assert run(number, IN_ANOTHER_THREAD) == ("", STOPPED, code)


@pytest.mark.parametrize("number", [number for number, _ in SIGNALS])
def test_a_signal_after_the_end_of_a_command_changes_nothing(number: int, run: Run) -> None:
    assert run(number, AT_THE_END) == ("", "", 0)


def test_a_run_under_nohup_outlives_its_terminal(run: Run) -> None:
    ignored = "signal.signal(signal.SIGHUP, signal.SIG_IGN)"
    assert run(signal.SIGHUP, RUN, before=ignored) == ("goes on\ncleans up\n", "", 0)
