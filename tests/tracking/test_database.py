"""The database is made once, whole, and in place, whoever asks for it and whoever dies over it."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from dkgi import tracking
from dkgi.tracking import run_table
from dkgi.tracking.glance import logged_queries
from dkgi.types import SetupError

CONNECT = "import sys, pathlib; from dkgi import tracking; print(tracking.connect(pathlib.Path(sys.argv[1]))[1])"


def environment(**extra: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(Path(tracking.__file__).parents[2])} | extra


def test_two_processes_may_open_a_fresh_store_at_once(tmp_path: Path) -> None:
    runs = tmp_path / "new" / "runs"
    command = [sys.executable, "-c", CONNECT, str(runs)]
    started = [subprocess.Popen(command, stdout=-1, stderr=-1, text=True, env=environment()) for _ in range(2)]
    ended = [(*process.communicate(timeout=120), process.returncode) for process in started]
    assert ended == [(ended[0][0], "", 0)] * 2
    assert {path.name for path in runs.iterdir()} <= {"mlflow.db", "mlflow.db-wal", "mlflow.db-shm", ".mlflow.lock"}


INTERRUPTED = """
import pathlib, signal, sys
from dkgi import signals, tracking

class Finder:
    def find_spec(self, name, *_):
        if name == "alembic.command":
            signal.raise_signal(signal.SIGTERM)

sys.meta_path.insert(0, Finder())
with signals.watched():
    try:
        tracking.connect(pathlib.Path(sys.argv[1]))
    finally:
        print(tracking.connect(pathlib.Path(sys.argv[1]))[1])
"""


def test_a_signal_while_the_database_is_made_leaves_it_usable_for_the_way_out(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n", "dkgi: stopped; the same command goes on\n", 143)


def test_what_the_environment_says_of_mlflow_changes_nothing(tmp_path: Path, mlflow_tables: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    foreign = {"MLFLOW_RUN_ID": "f" * 32, "MLFLOW_TRACKING_URI": "http://10.0.0.1:1", "MLFLOW_EXPERIMENT_NAME": "x"}
    script = CONNECT + "; import os; print(*(name for name in os.environ if name in sys.argv[2:]))"
    command = [sys.executable, "-c", script, str(tmp_path), *foreign]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(**foreign), cwd="/", timeout=120)
    assert (done.stdout, done.stderr, done.returncode) == ("1\n\n", "", 0)


def test_importing_the_tracking_does_not_load_mlflow() -> None:
    script = (
        "import sys, dkgi.tracking, dkgi.relog, dkgi.ui; print([m for m in ('mlflow', 'pandas') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=environment(), timeout=60)
    assert done.stdout == "[]\n"


def test_a_half_made_database_is_made_anew(tmp_path: Path) -> None:
    (tmp_path / "mlflow.new").write_bytes(b"SQLite format 3\0 cut off")
    tracking.connect(tmp_path)
    assert not (tmp_path / "mlflow.new").exists()


@pytest.mark.parametrize("content", [b"no database", b""])
def test_an_unusable_database_is_one_line_with_the_way_out(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "mlflow.db").write_bytes(content or b"SQLite format 3\0" + bytes(84))
    with pytest.raises(SetupError) as error:
        tracking.connect(tmp_path)
    assert str(tmp_path / "mlflow.db") in str(error.value)
    assert "python -m dkgi.relog" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_runs_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="tracking=none"):
        tracking.connect(tmp_path / "file" / "runs")


def test_a_database_of_a_moved_folder_is_refused(tmp_path: Path, mlflow_tables: Path) -> None:
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    tracking.connect(tmp_path / "old")
    (tmp_path / "old").rename(tmp_path / "new")
    with pytest.raises(SetupError, match=r"was made for .*/old"):
        tracking.connect(tmp_path / "new")


def test_the_run_table_that_the_ui_opens_is_in_the_experiment(tmp_path: Path, mlflow_tables: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    client, experiment = tracking.connect(tmp_path)
    view = json.loads(client.get_experiment(experiment).tags["mlflow.sharedViewState.dkgi"])
    assert view == json.loads(run_table.state())
    assert view["searchFilter"] == "tags.`dkgi.kind` = 'cell'"
    assert view["orderByKey"] in view["selectedColumns"]
    assert run_table.address(5000, experiment).endswith("/experiments/1/runs?viewStateShareKey=dkgi")


def test_a_look_without_mlflow_finds_nothing_where_there_is_no_database(tmp_path: Path, mlflow_tables: Path) -> None:
    assert logged_queries(tmp_path, "5d1f0c9a7e42") == {}
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "mlflow.db").write_bytes(b"no database")
    assert logged_queries(tmp_path, "5d1f0c9a7e42") == {}
    (tmp_path / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    assert logged_queries(tmp_path, "5d1f0c9a7e42") == {}


def test_runs_are_found_by_a_tag_through_an_index(tmp_path: Path, mlflow_tables: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(mlflow_tables.read_bytes())
    tracking.connect(tmp_path)
    with contextlib.closing(sqlite3.connect(tmp_path / "mlflow.db")) as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT run_uuid FROM tags WHERE key = ? AND value = ?", ("a", "b")
        )
        assert "INDEX dkgi_tags (key=? AND value=?)" in plan.fetchall()[0][3]
