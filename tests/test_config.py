"""Every shipped option composes and checks out; every mistake is one line that names its key."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.config import cell_id, load
from dkgi.paths import data_dir
from dkgi.types import SetupError
from tests.commands import dkgi
from tests.composed import composed

CONF = data_dir("conf")
GROUPS = sorted(
    folder.name for folder in CONF.iterdir() if folder.is_dir() and folder.name not in ("hydra", "experiment")
)
OPTIONS = sorted((path.parent.name, path.stem) for group in GROUPS for path in (CONF / group).glob("*.yaml"))
EXPERIMENTS = sorted(path.stem for path in (CONF / "experiment").glob("*.yaml"))
PROVIDERS = ("luna", "astra", "claude")
NEEDED = {
    "model=scripted": ["model.replies=replies.json"],
    "model=local": ["model.base_url=http://127.0.0.1:8000/v1"],
    "model=replay": ["model.cell=5d1f"],
    "model=no_model": ["harness=bm25"],
    "prompt=id_probe": ["tools=closed_book"],
    "prompt=name_probe": ["tools=closed_book"],
    "sandbox=none": ["sandbox.i_accept_unsandboxed=true"],
}


@pytest.fixture
def recorded_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_RUNS", str(tmp_path))
    folder = tmp_path / "cells" / "5d1f00000000"
    folder.mkdir(parents=True)
    (folder / "manifest.json").write_text(json.dumps({"axes": composed().axes}))


@pytest.mark.usefixtures("recorded_cell")
@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_shipped_option_composes_and_checks_out(group: str, option: str) -> None:
    experiment = load([f"{group}={option}", *NEEDED.get(f"{group}={option}", [])])
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
        ("+tools.max_turns=0", "tools.max_turns"),
        ("+tools.client=search", "tools.client"),
        ("model=no_model", "model=no_model"),
        ("dataset.index.engine=other", "dataset.index.engine"),
        ("+tools.programs=[bash]", "tools.python_starts"),
        ("+tools.python_starts=1", "tools.python_starts"),
        ("+tools={programs: [bash, python3], python_starts: 0}", "tools.programs"),
        ("+tools={programs: [bash], python_starts: -1}", "tools.python_starts"),
        ("+tools.programs=bash", "tools.programs"),
        ("sandbox.cpu_s=0", "sandbox.cpu_s"),
        ("sandbox.kind=landlock", "sandbox.kind"),
        ("model=scripted", "model.replies"),
        ("harness.context.max_chars=x", "harness.context.max_chars"),
        ("model.prices.input=free", "model.prices.input"),
        ("model.name=${nowhere}", "model.name"),
        ("model=local", "model.base_url"),
    ],
)
def test_a_wrong_value_is_one_line_that_names_its_key(override: str, named: str) -> None:
    with pytest.raises(SetupError) as caught:
        load([override])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("override", "named"),
    [
        ("model.base_url=127.0.0.1:8000/v1", "model.base_url"),
        ("model.base_url=ftp://127.0.0.1/v1", "model.base_url"),
        ("model.base_url=https://me:secret@example.org/v1", "model.base_url"),
        ("model.base_url='https://example.org/v1?key=secret'", "model.base_url"),
        ("model.max_output_tokens=0", "model.max_output_tokens"),
        ("model.stream=sometimes", "model.stream"),
        ("model.kind=openai", "model.kind"),
        ("model.key_variable=secret-4711", "model.key_variable"),
        ("+model.api_key=secret", "model.api_key"),
    ],
)
def test_a_wrong_value_of_a_provider_is_one_line_that_names_its_key(override: str, named: str) -> None:
    with pytest.raises(SetupError) as caught:
        load(["model=luna", override])
    (line,) = str(caught.value).splitlines()
    assert line.startswith(f"{named}: ")
    assert "secret" not in line


def test_several_faults_are_told_together() -> None:
    with pytest.raises(SetupError) as caught:
        load(["limit=0", "threads=0"])
    assert [line.split(":")[0] for line in str(caught.value).splitlines()] == ["limit", "threads"]


def test_a_value_that_looks_like_a_key_is_refused_and_not_shown() -> None:
    secret = "sk-" + "a1" * 12
    with pytest.raises(SetupError, match="looks like an API key") as caught:
        load([f"model.name={secret}"])
    assert secret not in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["experiment=id_probe", "tools=full_dkgi"],
            "prompt=id_probe asks without a look at the graph, tools=full_dkgi",
        ),
        (["prompt=name_probe", "tools=graph_tools_code"], "prompt=name_probe asks without a look at the graph"),
        (["prompt=rg", "tools=graph_tools"], "prompt=rg speaks of the graph's files, tools=graph_tools shows none"),
    ],
)
def test_a_prompt_that_does_not_fit_the_policy_is_refused(overrides: list[str], said: str) -> None:
    with pytest.raises(SetupError) as caught:
        load(overrides)
    assert said in str(caught.value)


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
        "limits.usd_run=70",
        "limits.usd_query=1",
        "limits.usd_grid=70",
        "limits.tokens_grid=5000",
    ]
    assert {cell_id(load([override]), {}) for override in same} == {cell_id(composed(), {})}


def test_a_grid_may_cost_25_dollars_and_as_many_tokens_as_a_whole_paper_takes() -> None:
    limits = load(["limits.tokens_grid=20000000000"]).limits
    assert (limits.usd_grid, limits.tokens_grid, composed().limits.tokens_grid) == (25.0, 20_000_000_000, None)
    for override in ("limits.usd_grid=-1", "limits.tokens_grid=-1", "limits.tokens_grid=2e12", "limits.usd_grid=nan"):
        with pytest.raises(SetupError, match=override.split("=")[0]):
            load([override])


@pytest.mark.parametrize("override", ["model.key_variable=OTHER", "model.stream=false", "model.source=elsewhere"])
def test_how_a_provider_is_reached_is_not_part_of_a_cell(override: str) -> None:
    assert cell_id(load(["model=luna", override]), {}) == cell_id(composed("model=luna"), {})


@pytest.mark.parametrize(
    ("harness", "override", "same"),
    [
        ("pi", "harness.memory_mb=2000", True),
        ("codex", "harness.memory_mb=2000", True),
        ("codex", "harness.scratch_mb=2000", True),
        ("codex", "harness.cannot=[]", True),
        ("codex", "harness.version=0.171.0", False),
        ("codex", "harness.like=gpt-6-astra", False),
    ],
)
def test_what_a_program_may_use_is_not_part_of_a_cell_and_which_one_it_is_is(
    harness: str, override: str, same: bool
) -> None:
    own = cell_id(load([f"harness={harness}", override]), {})
    assert (own == cell_id(composed(f"harness={harness}"), {})) is same


@pytest.mark.parametrize(
    "override",
    ["model.model=other", "model.base_url=http://other/v1", "model.effort=low", "model.max_output_tokens=99"],
)
def test_what_a_provider_is_asked_makes_another_cell(override: str) -> None:
    assert cell_id(load(["model=luna", override]), {}) != cell_id(composed("model=luna"), {})


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
    assert cell_id(load([override]), {}) != cell_id(composed(), {})


def test_the_content_of_a_file_and_not_its_name_makes_a_cell(tmp_path: Path) -> None:
    for name, content in (("a", "1"), ("b", "1"), ("c", "2")):
        (tmp_path / name).write_text(content)
    a, b, c = (cell_id(load(["model=scripted", f"model.replies={tmp_path / name}"]), {}) for name in "abc")
    assert a == b != c


def test_digests_of_prompts_export_and_labels_make_another_cell() -> None:
    assert cell_id(composed(), {"export": "a"}) != cell_id(composed(), {"export": "b"})


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
    listed = line.partition("'model':")[2].partition(";")[0].split()
    assert listed == [option for group, option in OPTIONS if group == "model"]


@pytest.mark.parametrize(
    ("name", "content"), [("broken", "wall_s: [1"), ("tab", "wall_s:\t1\n\tx: 2"), ("bytes", "\xff")]
)
def test_a_file_of_the_user_that_is_no_yaml_is_one_line(name: str, content: str, tmp_path: Path) -> None:
    (tmp_path / "limits").mkdir()
    (tmp_path / "limits" / f"{name}.yaml").write_bytes(content.encode("latin-1"))
    done = dkgi(f"limits={name}", DKGI_CONF=str(tmp_path))
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("multirun", [[], ["-m"]])
def test_a_list_of_options_in_brackets_is_refused_with_the_way_to_write_a_sweep(multirun: list[str]) -> None:
    done = dkgi(*multirun, "tools=[full_dkgi,no_edges]", "dry_run=true")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("dkgi: tools=[full_dkgi,no_edges]: ")
    assert "-m tools=full_dkgi,no_edges" in done.stderr


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
heavy = {"mlflow", "openai", "anthropic", "pandas", "numpy", "pydantic", "scipy", "httpx2", "zstandard"} & set(sys.modules)
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


@pytest.mark.parametrize("model", PROVIDERS)
def test_a_missing_key_exits_2_and_names_its_variable_before_there_is_any_folder(model: str, tmp_path: Path) -> None:
    variable = composed(f"model={model}").model_dump()["model"]["key_variable"]
    environment = {"DKGI_RUNS": str(tmp_path / "runs"), "DKGI_DATA": str(tmp_path / "data"), variable: " "}
    done = dkgi(f"model={model}", **environment)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"dkgi: model={model}: {variable} is not set")
    assert list(tmp_path.iterdir()) == []


def test_a_provider_is_priced_and_its_source_is_dated() -> None:
    for model in PROVIDERS:
        spec = composed(f"model={model}").model_dump()["model"]
        assert all(price > 0 for price in spec["prices"].values())
        assert spec["source"]
