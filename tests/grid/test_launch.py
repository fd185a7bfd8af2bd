"""Options of the launchers, as a user gives them."""

import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.paths import data_dir
from tests.commands import dkgi

LAUNCHERS = ("worker", "slurm", "ray")


def test_every_launcher_of_the_configuration_composes() -> None:
    assert {path.stem for path in (data_dir("conf") / "hydra" / "launcher").glob("*.yaml")} == set(LAUNCHERS)
    for name in LAUNCHERS:
        done = dkgi(f"hydra/launcher={name}", "--cfg", "hydra", "-p", "hydra.launcher")
        assert done.returncode == 0, done.stderr
        assert f"hydra_plugins.dkgi_launchers.{name}." in done.stdout


@pytest.mark.parametrize(
    ("launcher", "option"),
    [
        ("worker", "n_jobs=many"),
        ("worker", "n_jobs=0"),
        ("worker", "n_jobs=1.5"),
        ("worker", "jail=5"),
        ("worker", "timeout_s=-1"),
        ("slurm", "cluster=other"),
        ("slurm", "mem_gb=much"),
        ("slurm", "timeout_min=0"),
        ("slurm", "partition=[a]"),
        ("slurm", "additional.account=[1]"),
        ("ray", "cpus_per_task=0"),
        ("ray", "address=null"),
    ],
)
def test_an_option_that_is_none_is_told_in_a_line_with_its_key(launcher: str, option: str, tmp_path: Path) -> None:
    given = f"{'+' if '.' in option.partition('=')[0] else ''}hydra.launcher.{option}"
    done = dkgi("-m", f"hydra/launcher={launcher}", given, "tools=full_dkgi,no_edges", DKGI_RUNS=str(tmp_path))
    assert done.returncode == 2, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dkgi: hydra.launcher.{option.partition('=')[0].partition('.')[0]}: ")


def test_an_option_that_no_launcher_has_is_told_in_a_line(tmp_path: Path) -> None:
    for given in ("hydra.launcher.jobs=3", "hydra/launcher=other", "+hydra.launcher.jobs=3"):
        done = dkgi("-m", given, "tools=full_dkgi,no_edges", DKGI_RUNS=str(tmp_path))
        assert done.returncode == 2, done.stderr
        (line,) = done.stderr.splitlines()
        assert "jobs" in line or "hydra/launcher" in line


def test_help_loads_neither_a_cluster_nor_what_a_grid_needs() -> None:
    program = """
import sys
from dkgi.__main__ import main
sys.argv = ["dkgi", "--help"]
try:
    main()
finally:
    loaded = {"ray", "submitit", "mlflow", "openai", "dkgi.grid.launch", "dkgi.grid", "dkgi.grid.cluster"} & set(sys.modules)
    print(sorted(loaded), file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=data_dir("conf").parent,
    )
    assert "limits" in done.stdout
    assert done.stderr.splitlines()[-1] == "[]"
