"""A jail that does not hold is found out before an agent works in it, and the message says why."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.jail.command import Jail
from dkgi.jail.diagnosis import Surroundings, cause
from dkgi.jail.preflight import Hidden, check_sources, probe, problems, self_check
from dkgi.jail.profile import Host, agent_box, config, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.process import Lifeline
from dkgi.types import SandboxError, SetupError, Workspace
from tests.jail.conftest import SPEC, make_graph

Check = Callable[..., None]


@pytest.fixture
def workspace(folder: RunFolder, tmp_path: Path) -> Workspace:
    return folder.new_attempt(make_graph(tmp_path / "graph"))


@pytest.fixture
def check(workspace: Workspace, hidden: Hidden, tmp_path: Path) -> Check:
    """The self-check in a jail whose configuration `change` has spoiled."""

    def check(change: Callable[[str], str] = str, hidden: Hidden = hidden, host: Host | None = None) -> None:
        host = host or find_host()
        uid = workspace.scratch_dir.stat().st_uid
        box = agent_box(SPEC, workspace)
        file = tmp_path / "jail.cfg"
        file.write_text(change(config(box, SPEC, host, uid=uid, hidden=hidden.paths)))
        with Lifeline() as lifeline:
            self_check(Jail(file, box, host.nsjail, uid, lifeline), hidden, tmp_path)

    return check


def swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text
        return text.replace(old, new)

    return change


def remount(target: str, writable: bool) -> Callable[[str], str]:
    pattern = rf'(dst: "{target}"\n  is_bind: true\n  rw: ){str(not writable).lower()}'
    return lambda text: re.sub(pattern, rf"\g<1>{str(writable).lower()}", text)


def test_the_real_profile_passes(check: Check) -> None:
    check()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (remount("/graph", True), "/graph is mounted writable"),
        (remount("/scratch/full_outputs", True), "/scratch/full_outputs is mounted writable"),
        (remount("/usr", True), "/usr is mounted writable"),
        (remount("/scratch", False), "/scratch or /tmp cannot be written"),
        (swap("clone_newnet: true\niface_no_lo: true", "clone_newnet: false"), "namespaces of the host: {'net:"),
        (swap("mode: ONCE", "mode: ONCE\nclone_newipc: false"), "namespaces of the host: {'ipc:"),
        (swap("domain != 1", "domain != 2"), "connecting to a port ends with"),
        (lambda text: re.sub("seccomp_string: .*", "", text), "Seccomp: 0"),
        (lambda text: re.sub("seccomp_string: .*", "disable_no_new_privs: true", text), "NoNewPrivs: 0"),
        (swap("keep_caps: false", 'cap: "CAP_KILL"'), "commands keep rights"),
        (swap('dst: "/graph"', 'dst: "/elsewhere"'), "chdir"),
    ],
    ids=[
        "graph",
        "outputs",
        "usr",
        "scratch",
        "net",
        "ipc",
        "sockets",
        "policy",
        "privileges",
        "capability",
        "no graph",
    ],
)
def test_a_spoiled_jail_is_refused(check: Check, change: Callable[[str], str], said: str) -> None:
    with pytest.raises(SandboxError) as error:
        check(change)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_a_hidden_folder_that_can_be_seen_is_refused(check: Check, hidden: Hidden) -> None:
    labels = hidden.private[0]
    extra = f'mount {{ src: "{labels}" dst: "{labels}" is_bind: true rw: false }}\n'
    with pytest.raises(SandboxError, match=f"{labels} can be seen"):
        check(lambda text: text + extra)


def test_a_hidden_folder_is_looked_for_under_its_real_name_too(check: Check, hidden: Hidden, tmp_path: Path) -> None:
    labels = hidden.private[0]
    (tmp_path / "link").symlink_to(labels)
    extra = f'mount {{ src: "{labels}" dst: "{labels}" is_bind: true rw: false }}\n'
    with pytest.raises(SandboxError, match=f"{labels} can be seen"):
        check(lambda text: text + extra, hidden=Hidden((tmp_path / "link",), ()))


def test_a_graph_file_that_agents_cannot_read_is_named(check: Check, workspace: Workspace) -> None:
    (workspace.graph_dir / "nodes" / "0000.jsonl").chmod(0)
    with pytest.raises(SandboxError, match=r"nodes/0000.jsonl cannot be read.*chmod -R a\+rX"):
        check()


def test_an_empty_graph_is_refused(check: Check, workspace: Workspace) -> None:
    for path in sorted(workspace.graph_dir.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(SandboxError, match="the graph's files cannot be read"):
        check()


def test_a_path_that_tells_the_experiments_name_is_refused(check: Check, hidden: Hidden, tmp_path: Path) -> None:
    check(hidden=replace(hidden, words=("grap", "rap", "full_dkgi")))
    with pytest.raises(SandboxError, match="holds the name Graph"):
        check(hidden=replace(hidden, words=("Graph",)))


def test_every_line_of_the_check_is_needed(
    check: Check, server: CommandServer, workspace: Workspace, tmp_path: Path
) -> None:
    uid = workspace.scratch_dir.stat().st_uid
    box, host = agent_box(SPEC, workspace), find_host()
    (tmp_path / "cfg").write_text(config(box, SPEC, host, uid=uid))
    script = (Path(__file__).parents[2] / "sandbox" / "self_check.sh").read_text()
    with Lifeline() as lifeline:
        jail = Jail(tmp_path / "cfg", box, host.nsjail, uid, lifeline)
        jail.run(["/bin/bash", "-c", script, "check"], tmp_path / "out", timeout_s=20)
        lines = (tmp_path / "out").read_text().splitlines()
        assert list(problems(lines, jail, Hidden((), ()))) == []
        for number, line in enumerate(lines):
            if not line.startswith("mount ") or " /graph " in line:
                assert list(problems(lines[:number] + lines[number + 1 :], jail, Hidden((), ()))), line


def test_a_jail_that_is_killed_is_no_fault_of_the_machine(check: Check, tmp_path: Path) -> None:
    dying = tmp_path / "nsjail"
    dying.write_text("#!/bin/sh\necho uid 1 1\nkill -9 $$\n")
    dying.chmod(0o755)
    with pytest.raises(SandboxError, match=r"^the jail was killed from outside$"):
        check(host=replace(find_host(), nsjail=dying))


def test_the_check_leaves_nothing_for_the_agent_to_find(
    server: CommandServer, folder: RunFolder, workspace: Workspace
) -> None:
    with server.attempt(workspace, Path("/dev/null")) as commands:
        result = commands.run(["/usr/bin/find", "/scratch", "/tmp", "-mindepth", "1"], timeout_s=20)
    assert result.output.read_text() == "/scratch/full_outputs\n"
    assert result.output.name == "0001.txt"
    assert {path.suffix for path in folder.path.iterdir()} <= {""}


def test_the_probe_tells_the_versions_of_what_agents_get(server: CommandServer, workspace: Workspace) -> None:
    versions = probe(server, workspace)
    assert set(versions) == {"bash", "ripgrep", "python"}
    assert versions["ripgrep"] == "15.2.0"


def test_a_jail_that_does_not_start_is_explained_in_one_line(
    folder: RunFolder, workspace: Workspace, tmp_path: Path
) -> None:
    nsjail = tmp_path / "nsjail"
    nsjail.write_text("#!/bin/sh\necho \"nsjail: /lib/libc.so.6: version 'GLIBC_2.34' not found\" >&2\nexit 1\n")
    nsjail.chmod(0o755)
    with RunFolder(tmp_path / "w") as own:
        host = replace(find_host(), nsjail=nsjail)
        with CommandServer(own.path, SPEC, host, Hidden((), ())) as server, pytest.raises(SetupError) as error:
            probe(server, workspace)
    assert str(error.value).startswith("sandbox: the C library is too old for nsjail")


def test_a_folder_that_agents_see_may_not_overlap_a_private_one(workspace: Workspace, tmp_path: Path) -> None:
    box = agent_box(SPEC, workspace)
    graph = workspace.graph_dir
    check_sources(box, Hidden((tmp_path / "labels",), (tmp_path,)))
    for private in (graph, graph / "nodes", graph.parent):
        with pytest.raises(SetupError, match="overlap"):
            check_sources(box, Hidden((private,), ()))
    with pytest.raises(SetupError, match="overlap"):
        check_sources(box, Hidden((), (graph / "nodes",)))
    (tmp_path / "link").symlink_to(graph)
    with pytest.raises(SetupError, match="overlap"):
        check_sources(box, Hidden((tmp_path / "link",), ()))


_USER = Surroundings(root=False, max_user_namespaces=96_000)
_FAILED = "[W] mount('/g' -> '/run/user/x'): Permission denied; [E] Failed to mount mandatory point: '/graph'"


@pytest.mark.parametrize(
    ("log", "output", "around", "said"),
    [
        ("", "nsjail: /lib/libc.so.6: version `GLIBC_2.34' not found", _USER, "glibc 2.34"),
        ("", "nsjail: error while loading shared libraries: libstdc++.so.6: cannot", _USER, "needs libstdc++.so.6"),
        ("[E] x", "", replace(_USER, max_user_namespaces=0), "sysctl user.max_user_namespaces"),
        ("[E] x", "", replace(_USER, unprivileged_userns_clone=0), "sysctl kernel.unprivileged_userns_clone=1"),
        ("[E] x", "", replace(_USER, apparmor_restrict_unprivileged_userns=1), "restrict_unprivileged_userns=0"),
        ("[E] x", "", Surroundings(root=True, sys_admin=False), "--cap-add SYS_ADMIN"),
        ("[E] x", "", replace(_USER, seccomp=True), "seccomp=unconfined"),
        ("[E] Failed to mount mandatory point: '/proc'", "", replace(_USER, seccomp=True), "systempaths=unconfined"),
        ("pidfd_getfd: Operation not permitted", "", replace(_USER, seccomp=True), "--cap-add SYS_PTRACE"),
        (_FAILED, "", Surroundings(root=True), "/g cannot be mounted: Permission denied"),
        ("[E] something new", "", _USER, "[E] something new"),
        ("", "", _USER, "nsjail printed nothing"),
    ],
)
def test_the_cause_names_the_remedy(log: str, output: str, around: Surroundings, said: str) -> None:
    message = cause(log, output, around)
    assert said in message
    assert "\n" not in message


def test_this_machines_surroundings_can_be_read() -> None:
    around = Surroundings.read()
    assert around.max_user_namespaces is None or around.max_user_namespaces >= 0
