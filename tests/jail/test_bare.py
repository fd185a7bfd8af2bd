"""Without a sandbox: only on the user's word, only for policies that hold nothing back, and marked on every result."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.experiment import run
from dkgi.jail.bare import BareSpec
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import SetupError
from tests.jail.conftest import Shell, marked

SPEC = BareSpec(
    kind="none",
    i_accept_unsandboxed=True,
    wall_s=60,
    memory_mb=200,
    output_mb=1,
    commands_at_once=None,
    cpu_s=2,
    scratch_mb=20,
    scratch_files=200,
)
ACCEPTED = ["sandbox=none", "sandbox.i_accept_unsandboxed=true"]


@pytest.fixture
def bare(folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    with (
        RunFolder(tmp_path / "w") as own,
        CommandServer(own.path, SPEC, find_host(), Hidden((), ())) as server,
    ):
        workspace = own.new_attempt(graph).bare()
        with server.attempt(workspace, tmp_path / "log") as commands:
            yield Shell(commands, workspace, tmp_path / "log")


def test_it_needs_the_users_word() -> None:
    with pytest.raises(SetupError, match=r"sandbox.i_accept_unsandboxed: .* set it to true"):
        load(["sandbox=none"])
    assert load(ACCEPTED).axes["sandbox"] == "none"


@pytest.mark.parametrize("name", ["shell_only", "one_program", "no_edges"])
def test_it_is_refused_for_policies_that_hold_things_back(name: str) -> None:
    with pytest.raises(SetupError, match=f"{name} holds things back, which sandbox=none cannot; use sandbox=nsjail"):
        load([*ACCEPTED, f"tools={name}"])


def test_commands_find_graph_scratch_and_outputs_where_the_prompt_says(bare: Shell, graph: Path) -> None:
    place = bare.workspace
    assert (place.graph_at, place.scratch_at) == (str(graph), str(place.scratch_dir))
    assert bare("pwd; rg -c boat nodes; echo x > $HOME/x").split() == [str(graph), "nodes/0000.jsonl:1"]
    assert (place.scratch_dir / "x").read_text() == "x\n"
    first = bare.result("echo first")
    assert bare(f"cat {first.shown_at}/{first.output.name}") == "first\n"


def test_no_variable_of_ours_is_passed_on(bare: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    assert {line.partition("=")[0] for line in bare("env").splitlines()} <= {
        *("PATH", "HOME", "TMPDIR", "LC_ALL"),
        *("PWD", "SHLVL", "_"),
    }


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("exec -a bare-marker sleep 300", "time"),
        ("while :; do :; done", "cpu"),
        ("yes", "output"),
        ("python3 -c 'x = b\"1\" * (600 << 20); input()' < <(sleep 9)", "memory"),
        ("head -c 50000000 /dev/zero > $HOME/large; sleep 30", "scratch"),
    ],
)
def test_the_limits_hold(bare: Shell, command: str, limit: str) -> None:
    result = bare.result(command, timeout_s=0.5 if limit == "time" else 30)
    assert (result.killed_by, result.exit_code) == (limit, 137)
    assert marked("bare-marker") == []


def test_every_result_is_marked(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_DATA", str(data))
    monkeypatch.setenv("DKGI_RUNS", str(tmp_path / "runs"))
    assert run(load([*ACCEPTED, "limit=2", "tracking=none"])) == 0
    results = [json.loads(path.read_text()) for path in tmp_path.rglob("result.json")]
    assert [(result["sandboxed"], result["outcome"]) for result in results] == [(False, "scored")] * 2
    (manifest,) = (json.loads(path.read_text()) for path in tmp_path.rglob("manifest.json"))
    assert manifest["axes"]["sandbox"] == "none"
    assert manifest["config"]["sandbox"]["i_accept_unsandboxed"] is True
    assert not [path for path in (data / "w").iterdir() if path.is_dir() and os.listdir(path)]  # noqa: PTH208
