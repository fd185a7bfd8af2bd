"""Grids whose workers are in odd places, are not to be trusted, or say what they should not."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import dkgi
from dkgi.store import cells
from tests.grid.test_grid import manifest
from tests.logged import logged_runs

ROOT = Path(dkgi.__file__).parents[1]
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(data: Path, tmp_path: Path) -> Run:
    """Runs a grid of one small cell."""

    def run(*arguments: str, python: Path | str = sys.executable, cwd: Path | str = ROOT, **environment: str) -> Any:
        command = [str(python), "-m", "dkgi", "-m", "tools=no_edges", "limit=1", "model=heuristic", "tracking=none"]
        folders = {"DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
        return subprocess.run(
            [*command, *arguments],
            capture_output=True,
            text=True,
            timeout=180,
            check=False,
            cwd=cwd,
            env={**os.environ, **folders, **environment},
        )

    return run


def outcomes(runs: Path) -> list[str]:
    return [result.outcome for cell in cells(runs) for result in cell.results()]


def packages() -> str:
    """Where everything that dkgi needs is installed."""
    return os.pathsep.join(path for path in sys.path if path.endswith("site-packages"))


# ------------------------------------------------------------------- places


def test_a_command_given_at_home_shows_a_worker_nothing_of_home(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    (home / "bin").symlink_to("/usr/bin")
    done = run(cwd=home, HOME=str(home), PYTHONPATH=f"{ROOT}:{ROOT / 'launchers'}")
    assert done.returncode == 0, done.stderr
    assert outcomes(tmp_path / "runs") == ["scored"]


def test_a_worker_that_sees_a_hidden_path_is_not_trusted_and_nothing_is_run(run: Run, tmp_path: Path) -> None:
    home = tmp_path / "home"
    (home / ".ssh").mkdir(parents=True)
    done = run(HOME=str(home), PYTHONPATH=f"{home}:{ROOT}:{ROOT / 'launchers'}")
    assert done.returncode == 1
    assert f" failed: its worker could see {home / '.ssh'}, and was not trusted with the cell; " in done.stderr
    assert "Traceback" not in done.stderr
    assert outcomes(tmp_path / "runs") == []
    assert list((tmp_path / "runs").rglob("commands.jsonl")) == []


def test_a_folder_of_packages_that_holds_labels_behind_a_link_is_not_shown(
    run: Run, data: Path, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place, shown = tmp_path_factory.mktemp("place"), tmp_path / "shown"
    for name in ("graphs", "indexes", "queries", "tools"):
        if (data / name).exists():
            (place / name).symlink_to(data / name)
    shutil.copytree(data / "labels", shown / "labels")
    (place / "labels").symlink_to(shown / "labels")
    spy = tmp_path / "spy"
    spy.mkdir()
    (spy / "sitecustomize.py").write_text(f"import os, sys; print(os.path.exists({str(shown)!r}), file=sys.stderr)")
    done = run(DKGI_DATA=str(place), PYTHONPATH=f"{spy}:{shown}:{ROOT}:{ROOT / 'launchers'}")
    assert done.returncode == 0, done.stderr
    (log,) = (tmp_path / "runs").rglob("worker.log")
    assert log.read_text().splitlines()[0] == "False"


@pytest.mark.parametrize("wheel", [False, True], ids=["checkout", "wheel"])
def test_an_environment_in_odd_places_works(wheel: bool, run: Run, tmp_path: Path) -> None:
    """Python at home behind two links, its environment inside of a checkout beside the results, or a wheel in it."""
    checkout, home = tmp_path / "checkout", tmp_path / "home"
    (home / ".local" / "bin").mkdir(parents=True)
    (home / ".local" / "bin" / "python3").symlink_to(Path(sys.executable).resolve())
    checkout.mkdir()
    subprocess.run(
        [home / ".local" / "bin" / "python3", "-m", "venv", "--without-pip", "--symlinks", checkout / ".venv"],
        check=True,
    )
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(checkout / ".venv")}))
    into = site if wheel else checkout
    shutil.copytree(ROOT / "dkgi", into / "dkgi")
    for name in ("conf", "prompts", "sandbox"):
        shutil.copytree(ROOT / name, into / "dkgi" / "_data" / name if wheel else checkout / name)
    shutil.copytree(ROOT / "launchers" / "hydra_plugins", into / "hydra_plugins")
    if not wheel:
        shutil.copy(ROOT / "pyproject.toml", checkout)
    added = [*packages().split(os.pathsep), *([] if wheel else [str(checkout)])]
    (site / "packages.pth").write_text("\n".join(added) + "\n")
    place = {"HOME": str(home), "PYTHONPATH": "", "DKGI_RUNS": str(checkout / "mlruns")}
    done = run(python=checkout / ".venv" / "bin" / "python", cwd=checkout, **place)
    assert done.returncode == 0, done.stderr
    assert outcomes(checkout / "mlruns") == ["scored"]


def test_results_where_python_is_are_refused_in_a_line(run: Run, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
    site = Path(sysconfig.get_path("purelib", "venv", {"base": str(venv)}))
    (site / "packages.pth").write_text("\n".join([*packages().split(os.pathsep), str(ROOT), str(ROOT / "launchers")]))
    runs = site.parent / "mlruns"
    done = run(python=venv / "bin" / "python", PYTHONPATH="", DKGI_RUNS=str(runs))
    assert done.returncode == 2
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("dkgi: ")]
    assert "where Python is, holds results or labels: set DKGI_RUNS and DKGI_DATA to other folders" in line
    assert "Traceback" not in done.stderr


# ------------------------------------------------------------------- without a jail, and what a worker may say


@pytest.mark.usefixtures("runs")
def test_a_grid_without_jails_works_and_is_recorded_so(run: Run, tmp_path: Path) -> None:
    done = run("hydra.launcher.jail=false", "tracking=mlflow", "tracking.traces=false")
    assert done.returncode == 0, done.stderr
    assert outcomes(tmp_path / "runs") == ["scored"]
    assert manifest(tmp_path)["jail"] is False
    (told,) = [run.data.tags for run in logged_runs(tmp_path / "runs") if run.data.tags["dkgi.kind"] == "grid"]
    assert told["dkgi.jail"] == "no"


TURNED = """
import json, os, sys
if "dkgi.worker.run" in sys.orig_argv:
    job = json.loads(sys.stdin.buffer.readline())
    way, (number, repeat) = job["experiment"]["limits"]["max_turns"], (job["todo"][0][0]["number"], job["todo"][0][1])
    folder = f"{job['cell']}/queries/{number}/{repeat}"
    os.makedirs(folder)
    from dkgi.files import dump_json
    from dkgi.types import QueryResult, Usage

    def write(number):
        result = QueryResult("x", number, repeat, "hpo", "test", True, "?", "scored", ("answered",), 0, "", (1,), Usage(),
                             Usage(), None, 1.0, 1, 0, 0, 1.0)
        with open(f"{folder}/result.json", "wb") as file:
            file.write(dump_json(result))

    said = json.dumps({"finished": [number, repeat]})
    if way == 101:
        said = json.dumps({"sees": ""})
    elif way == 102:
        said = '{"ended": "", "error": ' + "[" * 1000 + "]" * 1000 + "}"
    elif way == 103:
        os.mkfifo(f"{folder}/result.json")
    elif way == 104:
        write(10**6)
        open(f"{folder}/steps.jsonl", "w").close()
    elif way == 105:
        write(number)
    elif way == 106:
        os.unlink(f"{job['cell']}/worker.log")
        os.symlink("/dev/null", f"{job['cell']}/worker.log")
    os.write(1, said.encode() + b"\\n")
    os._exit(0)
"""
WAYS = range(101, 107)


def test_whatever_a_worker_says_or_leaves_behind_fails_its_own_cell_alone(run: Run, tmp_path: Path) -> None:
    spy = tmp_path / "spy"
    spy.mkdir()
    cells = f"limits.max_turns={','.join(map(str, WAYS))}"
    (spy / "sitecustomize.py").write_text(TURNED)
    done = run(cells, PYTHONPATH=f"{spy}:{ROOT}:{ROOT / 'launchers'}")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert all(f"max_turns={way}: failed" in done.stderr for way in WAYS)
    (spy / "sitecustomize.py").unlink()
    done = run("limits.max_turns=106,107")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert all(told in done.stderr for told in ("max_turns=106: failed", "max_turns=107: done"))
