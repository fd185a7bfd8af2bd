"""Jails inside of an outer jail, as around a whole worker, hold what they hold outside."""

from pathlib import Path

import pytest

from tests.jail.outer import run_inside


@pytest.mark.parametrize(
    "tests",
    [
        ["tests/jail/test_programs.py", "-k", "named_programs or exec or loader or noexec or versions"],
        ["tests/jail/test_broker.py", "-k", "record_tells or memfd or sys.executable or outlives or limits"],
        ["tests/jail/test_attacks.py", "-k", "hosts_files or labels or graph_cannot"],
    ],
    ids=["shell_only", "one_program", "full_dkgi"],
)
def test_attacks_fail_in_a_nested_jail(tmp_path: Path, tests: list[str]) -> None:
    done = run_inside(tmp_path, tests)
    assert done.returncode == 0, done.stdout + (tmp_path / "outer.log").read_text()
    assert " passed" in done.stdout
    assert "skipped" not in done.stdout
