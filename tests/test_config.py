"""Every shipped option composes and checks out; every mistake is one line that names its key."""

import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.config import cell_id, load
from dkgi.paths import data_dir
from dkgi.types import SetupError

CONF = data_dir("conf")
GROUPS = sorted(
    folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name not in ("hydra", "experiment")
)
OPTIONS = sorted((path.parent.name, path.stem) for group in GROUPS for path in (CONF / group).glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
NEEDED = {"scripted": ["model.replies=replies.json"]}


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_shipped_option_composes_and_checks_out(group: str, option: str) -> None:
    experiment = load([f"{group}={option}", *NEEDED.get(option, [])])
    assert experiment.axes if group not in ("limits", "tracking") else experiment


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_every_shipped_experiment_composes_and_checks_out(name: str) -> None:
    load([f"experiment={name}"])


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("limits.wall_s=-3", "limits.wall_s"),
        ("limits.wall_s=soon", "limits.wall_s"),
        ("limits.max_turns=many", "limits.max_turns"),
        ("limits.attempts=0", "limits.attempts"),
        ("limit=0", "limit"),
        ("threads=0", "threads"),
        ("repeats=-1", "repeats"),
        ("retry=all", "retry"),
        ("dry_run=maybe", "dry_run"),
        ("+limits.usd=3", "limits.usd"),
        ("+typo=3", "typo"),
        ("dataset.split=[a]", "dataset.split"),
        ("dataset.name=../x", "dataset.name"),
        ("dataset.version=../x", "dataset.version"),
        ("limits.wall_s=nan", "limits.wall_s"),
        ("limits.wall_s=inf", "limits.wall_s"),
        ("limits.backoff_s=nan", "limits.backoff_s"),
        ("limits.max_turns=1000000000000000000000000", "limits.max_turns"),
        ("limit=true", "limit"),
        ("sandbox.memory_mb=-5", "sandbox.memory_mb"),
        ("sandbox.commands_at_once=0", "sandbox.commands_at_once"),
        ("model.prices.input=-1", "model.prices.input"),
        ("harness.context.keep_turns=-1", "harness.context.keep_turns"),
        ("model.name=''", "model.name"),
        ("prompt.answer_key=''", "prompt.answer_key"),
        ("tools.tools=bash", "tools.tools"),
        ("model=scripted", "model.replies"),
        ("harness.context.max_chars=x", "harness.context.max_chars"),
        ("model.prices.input=free", "model.prices.input"),
        ("model.name=${nowhere}", "model.name"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_key(override: str, named: str) -> None:
    with pytest.raises(SetupError) as caught:
        load([override])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{named}: ")


def test_several_faults_are_told_together() -> None:
    with pytest.raises(SetupError) as caught:
        load(["limit=0", "threads=0"])
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["limit", "threads"]


def test_a_value_that_looks_like_a_key_is_refused_and_not_shown() -> None:
    secret = "sk-" + "a1" * 12
    with pytest.raises(SetupError, match="looks like an API key") as caught:
        load([f"model.name={secret}"])
    assert secret not in str(caught.value)


def test_what_cannot_change_an_answer_is_not_part_of_a_cell() -> None:
    same = [
        "limit=3",
        "threads=9",
        "repeats=2",
        "retry=failed",
        "keep_scratch=true",
        "tracking=none",
        "sandbox.memory_mb=1234",
        "dataset.split=test-0.1",
    ]
    assert {cell_id(load([override]), {}) for override in same} == {cell_id(load([]), {})}


@pytest.mark.parametrize(
    "override",
    [
        "limits.wall_s=60",
        "limits.attempts=1",
        "dataset.split=val",
        "dataset.seed=8",
        "harness.context.keep_turns=3",
        "model.prices.input=1.0",
        "tools.section=task.md",
        "prompt.ranking=task.md",
    ],
)
def test_what_can_change_an_answer_or_its_price_makes_another_cell(override: str) -> None:
    assert cell_id(load([override]), {}) != cell_id(load([]), {})


def test_the_content_of_a_file_and_not_its_name_makes_a_cell(tmp_path: Path) -> None:
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(content)
    a, b, c = (cell_id(load(["model=scripted", f"model.replies={tmp_path / name}"]), {}) for name in "abc")
    assert a == b != c


def test_digests_of_prompts_export_and_labels_make_another_cell() -> None:
    assert cell_id(load([]), {"export": "a"}) != cell_id(load([]), {"export": "b"})


def dkgi(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    import os

    return subprocess.run(
        [sys.executable, "-m", "dkgi", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("arguments", [["limit=0"], ["model=scripted"], ["threads=x", "limit=y"]])
def test_a_wrong_command_line_exits_2_without_traceback_or_folder(arguments: list[str], tmp_path: Path) -> None:
    done = dkgi(*arguments, DKGI_RUNS=str(tmp_path / "runs"), DKGI_DATA=str(tmp_path / "data"))
    assert done.returncode == 2
    assert all(line.startswith("dkgi: ") for line in done.stderr.splitlines())
    assert done.stdout == ""
    assert list(tmp_path.iterdir()) == []


def test_a_key_on_the_command_line_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    secret = "sk-" + "b2" * 12
    done = dkgi(f"model.api_key={secret}", DKGI_RUNS=str(tmp_path / "runs"), DKGI_DATA=str(tmp_path / "data"))
    assert done.returncode == 2
    assert "model.api_key" in done.stderr
    assert secret not in done.stderr + done.stdout
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_option_lists_the_known_ones() -> None:
    done = dkgi("model=heuristik")
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("dkgi: ")
    assert "heuristic scripted" in line


@pytest.mark.parametrize(
    ("name", "content"), [("broken", "wall_s: [1"), ("tab", "wall_s:\t1\n\tx: 2"), ("bytes", "\xff")]
)
def test_a_file_of_the_user_that_is_no_yaml_is_one_line(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "limits").mkdir()
    (tmp_path / "limits" / f"{name}.yaml").write_bytes(content.encode("latin-1"))
    done = dkgi(f"limits={name}", DKGI_CONF=str(tmp_path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


def test_an_unknown_key_is_one_line_that_names_it() -> None:
    done = dkgi("limt=3")
    assert done.returncode == 2
    assert done.stderr.startswith("dkgi: Could not override 'limt'.")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("argument", "named"),
    [
        ("dataset=null", "dataset=null"),
        ("hydra.run.dir=/proc/x", "/proc/x"),
        ("hydra.run.dir=/proc", "/proc/.hydra"),
    ],
)
def test_what_hydra_has_no_error_for_is_one_line_that_names_it(argument: str, named: str, tmp_path: Path) -> None:
    done = dkgi(argument, DKGI_RUNS=str(tmp_path / "runs"), DKGI_DATA=str(tmp_path / "data"))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("dkgi: ")
    assert named in line


def test_help_is_one_screen_and_loads_nothing_heavy(tmp_path: Path) -> None:
    program = """
import sys
sys.argv = ["dkgi", "--help"]
try:
    from dkgi.__main__ import main
    main()
except SystemExit:
    pass
heavy = {"mlflow", "openai", "anthropic", "pandas", "numpy", "pydantic", "scipy", "httpx"} & set(sys.modules)
print("HEAVY", sorted(heavy))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    lines = done.stdout.splitlines()
    assert lines[-1] == "HEAVY []"
    assert len(lines) <= 30
    for group in GROUPS:
        assert any(group in line for line in lines)


def test_options_of_a_user_folder_come_before_the_shipped_ones(tmp_path: Path) -> None:
    (tmp_path / "limits").mkdir()
    (tmp_path / "limits" / "default.yaml").write_text("wall_s: 7.0\nmax_turns: 3\nattempts: 1\nbackoff_s: 0.0\n")
    done = dkgi("--cfg", "job", DKGI_CONF=str(tmp_path))
    assert "wall_s: 7.0" in done.stdout
