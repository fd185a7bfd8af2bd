"""The signals that end a run, in processes of their own."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

import dkgi

PROGRAM = """
import signal, sys
from dkgi import signals
{before}
signals.watch()
try:
    signal.raise_signal({number})
    print("goes on")
except KeyboardInterrupt as stop:
    print("cleans up", flush=True)
    sys.exit(signals.exit_code(stop))
"""


def run(number: int, before: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(number=int(number), before=before)
    checkout = Path(dkgi.__file__).parents[1]
    command = [sys.executable, "-c", program]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=checkout)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_lets_a_run_clean_up_and_has_its_exit_code(number: int, code: int) -> None:
    done = run(number)
    assert (done.stdout, done.stderr, done.returncode) == ("cleans up\n", "", code)


def test_a_run_under_nohup_outlives_its_terminal() -> None:
    done = run(signal.SIGHUP, before="signal.signal(signal.SIGHUP, signal.SIG_IGN)")
    assert (done.stdout, done.stderr, done.returncode) == ("goes on\n", "", 0)
