"""Jails of restricted hosts: without /proc, without a user namespace; they are asked for by name and hold as well."""

import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.jail.command import Jail
from dkgi.jail.preflight import Hidden, probe, scan, self_check
from dkgi.jail.profile import SandboxSpec, agent_box, config, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.process import Lifeline
from dkgi.types import SandboxError, SetupError
from tests.jail.conftest import SPEC, Shell, make_graph, open_shell, policy, serving

NO_PROC = replace(SPEC, kind="nsjail_no_proc", proc=False)


@pytest.fixture(scope="module", params=["full_dkgi", "shell_only", "one_program"])
def without_proc(request: pytest.FixtureRequest, hidden: Hidden, home: Path) -> Iterator[CommandServer]:
    with serving(request.param, hidden, home / "no_proc", NO_PROC) as server:
        yield server


@pytest.fixture
def bare(without_proc: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    yield from open_shell(without_proc, folder, graph, tmp_path / "commands.jsonl")


def test_the_profiles_are_data() -> None:
    profiles = [load([f"sandbox={name}"]).sandbox for name in ("nsjail", "nsjail_no_proc", "nsjail_no_userns")]
    assert [(profile.proc, profile.user_namespace) for profile in profiles if isinstance(profile, SandboxSpec)] == [
        (True, True),
        (False, True),
        (True, False),
    ]
    assert load(["sandbox=nsjail_no_proc"]).axes["sandbox"] == "nsjail_no_proc"


def test_a_jail_without_proc_works_for_every_policy(bare: Shell, hidden: Hidden) -> None:
    assert bare("ls -d /proc 2>/dev/null; cat candidate_ids.txt; echo x > /scratch/x; cat /scratch/x") == "0\n1\n2\nx\n"
    for path in hidden.paths:
        assert "No such file" in bare(f"ls '{path}' 2>&1 || true")
    assert "started" not in bare("cat /bin/bash > /dev/shm/b; /dev/shm/b -c 'echo started' 2>&1; true")


def test_a_jail_without_proc_tells_its_versions(without_proc: CommandServer, folder: RunFolder, graph: Path) -> None:
    assert probe(without_proc, folder.new_attempt(graph))["ripgrep"] == "15.2.0"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("clone_newnet: true\niface_no_lo: true", "clone_newnet: false", "namespaces of the host: {'net:"),
        ("keep_caps: false", 'cap: "CAP_KILL"', "commands keep rights"),
        ("seccomp_string", "# seccomp_string", "Seccomp: 0"),
        ('dst: "/graph"\n  is_bind: true\n  rw: false', 'dst: "/graph"\n  is_bind: true\n  rw: true', "/graph is mounted writable"),
    ],
    ids=["net", "capability", "policy", "graph"],
)  # fmt: skip
def test_a_spoiled_jail_without_proc_is_refused(
    folder: RunFolder, hidden: Hidden, graph: Path, tmp_path: Path, old: str, new: str, said: str
) -> None:
    workspace = folder.new_attempt(graph)
    uid, box, host = workspace.scratch_dir.stat().st_uid, agent_box(NO_PROC, workspace), find_host()
    text = config(box, NO_PROC, host, uid=uid, hidden=hidden.paths)
    assert old in text
    (tmp_path / "cfg").write_text(text.replace(old, new))
    with Lifeline() as lifeline, pytest.raises(SandboxError) as error:
        self_check(Jail(tmp_path / "cfg", box, host.nsjail, uid, lifeline), hidden, tmp_path)
    folder.remove(workspace)
    assert said in str(error.value)


def test_a_jail_without_a_user_namespace_is_for_root(
    folder: RunFolder, hidden: Hidden, graph: Path, tmp_path: Path
) -> None:
    spec = replace(SPEC, kind="nsjail_no_userns", user_namespace=False)
    with RunFolder(tmp_path / "w") as own:
        if os.geteuid() != 0:
            with pytest.raises(SetupError, match=r"sandbox=nsjail_no_userns: only root .* use sandbox=nsjail"):
                CommandServer(own.path, spec, find_host(), hidden)
            return
        with CommandServer(own.path, spec, find_host(), hidden) as server:
            for shell in open_shell(server, folder, graph, tmp_path / "log"):
                ours = Path("/proc/self/ns/user").readlink()
                assert shell("readlink /proc/self/ns/user").strip() == str(ours)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount")
@pytest.mark.parametrize(
    ("options", "name", "said"),
    [
        ("noexec", "full_dkgi", "noexec.* set DKGI_DATA"),
        ("noexec", "one_program", "noexec.* set DKGI_DATA"),
        ("noexec", "shell_only", None),
        ("size=1m", "full_dkgi", "the disk is full; make room"),
        ("size=64m,nr_inodes=40", "full_dkgi", "the disk is full; make room"),
    ],
)
def test_a_disk_that_attempts_cannot_work_on_is_told(tmp_path: Path, options: str, name: str, said: str | None) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    try:
        subprocess.run(
            ["mount", "-t", "tmpfs", "-o", f"mode=755,{options}", "none", disk], check=True, capture_output=True
        )
    except subprocess.CalledProcessError:
        pytest.skip("this container mounts nothing")
    try:
        graph = make_graph(tmp_path / "graph")
        with (
            RunFolder(disk / "w") as own,
            CommandServer(own.path, SPEC, find_host(policy(name)), Hidden((), ())) as server,
        ):
            attempt = server.attempt(own.new_attempt(graph), tmp_path / "log")
            if said:
                with pytest.raises(SetupError, match=said):
                    attempt.__enter__()
            else:
                with attempt as commands:
                    assert commands.run(["/bin/bash", "-c", "true"], timeout_s=9).exit_code == 0
    finally:
        subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("name", ["nodes/0000.jsonl", "new", "edges/.hidden"])
def test_a_graph_that_holds_a_label_file_is_refused(tmp_path: Path, name: str) -> None:
    graph, labels = make_graph(tmp_path / "graph"), tmp_path / "labels"
    (labels / "hpo").mkdir(parents=True)
    (labels / "hpo" / "test.jsonl").write_text('{"node_ids":[1]}\n')
    hidden = Hidden((labels,), (), answers=(labels,))
    scan(graph, hidden)
    (graph / name).write_text('{"node_ids":[1]}\n')
    with pytest.raises(SetupError, match=r"agents would see .* holds what is in .*test.jsonl"):
        scan(graph, hidden)
    (graph / name).unlink()
    os.link(labels / "hpo" / "test.jsonl", graph / name)
    with pytest.raises(SetupError, match="agents would see"):
        scan(graph, hidden)


def test_a_graph_with_a_link_in_it_is_refused(tmp_path: Path) -> None:
    graph = make_graph(tmp_path / "graph")
    (graph / "l").symlink_to("/etc")
    with pytest.raises(SetupError, match="is a link"):
        scan(graph, Hidden((), ()))
