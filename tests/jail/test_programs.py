"""A closed set of programs: they start, and nothing else does, whatever an agent tries."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.jail.command import Jail
from dkgi.jail.preflight import Hidden, check_programs, probe, program_problems
from dkgi.jail.profile import agent_box, config, find_host
from dkgi.jail.programs import Programs, find_programs
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.process import Lifeline
from dkgi.types import SandboxError, SetupError, Workspace
from tests.jail.conftest import SPEC, Shell, open_shell, policy

NAMES = list(load(["tools=shell_only"]).tools.programs or ())
RIPGREP = find_host().ripgrep


@pytest.fixture(scope="module")
def closed(
    shell_only: CommandServer, folder: RunFolder, graph: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Shell]:
    """A shell with fifteen programs; in its scratch lie interpreters that may be executed, as if one had been brought in."""
    for shell in open_shell(shell_only, folder, graph, tmp_path_factory.mktemp("log") / "commands.jsonl"):
        for name in ("python3", "sh", "mawk"):
            for place in (shell.workspace.scratch_dir, shell.workspace.tmp_dir):
                if found := shutil.which(name):
                    shutil.copy(Path(found).resolve(), place / name)
                    (place / name).chmod(0o755)
        (shell.workspace.scratch_dir / "script").write_text("#!/scratch/python3\nprint('started')\n")
        (shell.workspace.scratch_dir / "script").chmod(0o755)
        yield shell


def test_the_policy_has_the_papers_fifteen_programs() -> None:
    names = "rg cat sed head tail wc cut sort comm ls find pwd xargs echo bash"
    assert policy("shell_only").programs == policy("one_program").programs == tuple(names.split())
    assert (policy("shell_only").python_starts, policy("one_program").python_starts) == (0, 1)


def test_the_named_programs_work(closed: Shell) -> None:
    command = """
set -e; cd nodes; pwd; /usr/bin/pwd; cat 0000.jsonl | wc -l; rg -o boat; sed -n '1s/.*/sed/p' 0000.jsonl
printf '2\\n1\\n' | sort | head -n 1; printf '1\\n2\\n' | tail -n 1; comm -12 <(echo both) <(echo both)
echo a,b | cut -d, -f2; ls ..; find .. -name '*.tsv'; echo x y | xargs -n1 /usr/bin/echo; bash -c 'echo $((6 * 7))'
"""
    printed = "/graph/nodes /graph/nodes 1 0000.jsonl:boat sed 1 2 both b candidate_ids.txt edges nodes ../edges/00.tsv x y 42"
    assert " ".join(closed(command).split()) == printed


def test_nothing_else_in_the_jail_can_be_executed(closed: Shell) -> None:
    found = closed(
        "find / -path /proc -prune -o -path /scratch -prune -o -path /tmp -prune -o -type f -perm /111 -print"
    )
    programs = {path for path in found.split() if ".so" not in path}
    assert programs == {f"/usr/bin/{name}" for name in NAMES}


def test_every_place_that_can_be_written_is_without_programs(closed: Shell) -> None:
    lines = [line.split() for line in closed("cat /proc/self/mountinfo").splitlines()]
    writable = {line[4]: line[5].split(",") for line in lines if "rw" in line[5].split(",")}
    assert {"/scratch", "/tmp", "/dev/shm"} <= set(writable)
    assert all("noexec" in options for target, options in writable.items())


PYTHON = """-c 'print("started")'"""
LOADER = "$(echo /lib*/ld-linux* /lib/ld-linux*)"


@pytest.mark.parametrize(
    "attack",
    [
        f"python3 {PYTHON}",
        f"/usr/bin/python3 {PYTHON}",
        f"/usr/bin/python3.11 {PYTHON}",
        "perl -e 'print \"started\"'",
        "awk 'BEGIN { print \"started\" }'",
        "node -e 'console.log(\"started\")'",
        "sh -c 'echo started'",
        "/bin/sh -c 'echo started'",
        "env echo started",
        "busybox echo started",
        f"find . -maxdepth 0 -exec python3 {PYTHON} ';'",
        f"find . -maxdepth 0 -execdir /usr/bin/python3 {PYTHON} ';'",
        f"echo | xargs python3 {PYTHON}",
        f"echo | xargs /usr/bin/python3 {PYTHON}",
        f"for l in {LOADER}; do $l /usr/bin/python3 {PYTHON}; done",
        f"for l in {LOADER}; do $l /usr/bin/python3.11 {PYTHON}; done",
        f"/scratch/python3 {PYTHON}",
        f"/tmp/python3 {PYTHON}",
        f"exec /scratch/python3 {PYTHON}",
        f"PATH=/scratch:$PATH python3 {PYTHON}",
        f"cat /scratch/python3 > /dev/shm/p; /dev/shm/p {PYTHON}",
        f"for l in {LOADER}; do $l /scratch/python3 {PYTHON}; done",
        f"for l in {LOADER}; do $l /tmp/mawk 'BEGIN {{ print \"started\" }}'; done",
        f"cat /scratch/python3 > /dev/shm/p; for l in {LOADER}; do $l /dev/shm/p {PYTHON}; done",
        f"for l in {LOADER}; do $l --library-path /scratch /scratch/sh -c 'echo started'; done",
        f"for l in {LOADER}; do $l --preload /scratch/python3 /usr/bin/echo started | sed s/started/preloaded/; done",
        "/scratch/script",
        "bash -c /scratch/script",
        "cp /usr/bin/bash /scratch/b && /scratch/b -c 'echo started'",
        "enable -f /scratch/python3 print && echo started",
        "enable -f /usr/lib/bash/truefalse true && echo started",
        "sed '1e /scratch/sh -c \"echo started\"' candidate_ids.txt",
        "sed 's/.*/echo started/e' candidate_ids.txt",
        "sed -n '1!d;e echo started' candidate_ids.txt",
        "sort --compress-program=/scratch/sh -S 1k <(find / 2>/dev/null) && echo done | sed s/done/none/",
        "rg --pre /scratch/sh boat nodes | sed -n s/.*started.*/started/p",
        "rg --search-zip --pre python3 boat",
        "rg --hostname-bin /scratch/script --hyperlink-format 'x{host}' boat nodes",
        f"exec -a python3 /proc/self/exe {PYTHON}",
        f"/proc/1/root/usr/bin/python3 {PYTHON}",
        f"/proc/self/cwd/../usr/bin/python3 {PYTHON}",
        "coproc /scratch/sh -c 'echo started'; cat <&${COPROC[0]}",
        "hash -p /scratch/python3 cat; cat -c 'print(\"started\")'",
        "BASH_ENV=/scratch/script bash -c true",
        "command -p python3 -c 'print(\"started\")'",
        "mapfile -C '/scratch/sh -c \"echo started\"' -c 1 < candidate_ids.txt",
        "trap '/scratch/sh -c \"echo started\"' EXIT; exit",
        "ls --hyperlink=always > /dev/null; find . -fprintf /scratch/out '%p' ; /scratch/out; echo",
        "LD_PRELOAD=/scratch/python3 LD_AUDIT=/scratch/python3 cat <<< x | sed -n s/started/started/p",
        f"exec 5</scratch/python3; /proc/self/fd/5 {PYTHON}",
        f"ln -s /scratch/python3 /tmp/l; /tmp/l {PYTHON}",
        # Machine code written into a running program's memory needs no file that may be executed.
        "exec 3<>/proc/self/mem && echo started",
        "exec 3>/proc/$$/mem && echo started",
        "exec 3<>/proc/1/mem && echo started",
        "exec 3<>/proc/self/task/$$/mem && echo started",
        "echo 0 > /proc/self/clear_refs && echo started",
        "cat /lib*/*/libc.so.6 > /scratch/libc.so.6; LD_LIBRARY_PATH=/scratch /usr/bin/echo started",
        "LD_LIBRARY_PATH=/scratch GCONV_PATH=/scratch LOCPATH=/scratch LC_ALL=x.X cat <<< x | sed -n s/started/started/p",
        "exec 3<>/dev/tcp/127.0.0.1/22 && echo started",
        "exec 3<>/dev/mem && echo started",
    ],
)
def test_no_other_program_can_be_started(closed: Shell, attack: str) -> None:
    """The word `started` comes from the attack's program alone: what errors quote of the command is not printed."""
    assert "started" not in closed(f"{{ {attack}\n}} 2>/dev/null; true").split()


def test_python_text_can_still_be_read_and_written_but_not_run(closed: Shell) -> None:
    assert closed(
        "echo 'print(1)' > /scratch/p.py; cat /scratch/p.py; python3 /scratch/p.py 2>/dev/null; echo $?"
    ).split("\n") == [
        "print(1)",
        "127",
        "",
    ]


# ------------------------------------------------------------------- the check of the programs


@pytest.fixture
def workspace(folder: RunFolder, graph: Path) -> Iterator[Workspace]:
    workspace = folder.new_attempt(graph)
    yield workspace
    folder.remove(workspace)


@pytest.fixture
def check(workspace: Workspace, tmp_path: Path) -> Callable[..., None]:
    """The check in a jail whose configuration `change` has spoiled, or whose programs are not those of the policy."""

    def check(change: Callable[[str], str] = str, names: list[str] = NAMES) -> None:
        host = find_host(replace(policy("shell_only"), programs=tuple(names)))
        uid = workspace.scratch_dir.stat().st_uid
        box = agent_box(SPEC, workspace)
        (tmp_path / "cfg").write_text(change(config(box, SPEC, host, uid=uid)))
        with Lifeline() as lifeline:
            jail = Jail(tmp_path / "cfg", box, host.nsjail, uid, lifeline)
            check_programs(jail, find_programs(NAMES, RIPGREP), tmp_path)

    return check


def test_the_check_passes_and_leaves_nothing(check: Callable[..., None], workspace: Workspace) -> None:
    check()
    assert [path.name for place in (workspace.scratch_dir, workspace.tmp_dir) for path in place.iterdir()] == [
        "full_outputs"
    ]


def test_a_program_too_few_is_found(check: Callable[..., None]) -> None:
    with pytest.raises(SandboxError, match="/usr/bin/comm does not start"):
        check(names=[name for name in NAMES if name != "comm"])


def test_a_program_too_many_is_found(check: Callable[..., None]) -> None:
    with pytest.raises(SandboxError, match="/usr/bin/tac is a program beyond"):
        check(names=[*NAMES, "tac"])


def test_a_program_that_can_be_started_is_found(check: Callable[..., None]) -> None:
    with pytest.raises(SandboxError, match="/usr/bin/env could be started"):
        check(names=[*NAMES, "env"])


@pytest.mark.parametrize("place", ["/scratch", "/tmp", "/dev/shm"])
def test_a_place_from_which_programs_start_is_found(check: Callable[..., None], place: str) -> None:
    def spoil(text: str) -> str:
        head, mark, tail = text.partition(f'dst: "{place}"\n')
        assert mark
        return head + mark + tail.replace("noexec: true", "noexec: false", 1)

    with pytest.raises(SandboxError, match=f"{place} could be started"):
        check(spoil)


def test_silence_is_a_failure() -> None:
    programs = Programs(("bash",), ())
    assert list(program_problems([], programs))
    assert list(program_problems(["starts /usr/bin/bash"], programs)) == ["the check of the programs did not finish"]
    assert list(program_problems(["starts /usr/bin/bash", "done"], programs)) == []


def test_the_versions_are_those_of_the_programs_that_there_are(shell_only: CommandServer, workspace: Workspace) -> None:
    assert set(probe(shell_only, workspace)) == {"bash", "ripgrep"}


# ------------------------------------------------------------------- bad input


def test_an_unknown_program_is_named() -> None:
    for name in ("no-such-program", "../bin/cat", ""):
        with pytest.raises(SetupError, match=r"tools.programs: there is no program .*install it or take it out"):
            find_programs(["bash", name], RIPGREP)


def test_a_set_without_a_shell_is_refused() -> None:
    with pytest.raises(SetupError, match="bash is not among them"):
        find_programs(["cat"], RIPGREP)


def test_a_script_is_refused() -> None:
    with pytest.raises(SetupError, match="is a script"):
        find_programs(["bash", "ldd"], RIPGREP)


def test_a_multi_call_binary_is_refused(tmp_path: Path) -> None:
    box = tmp_path / "busybox"
    shutil.copy("/usr/bin/cat", box)
    (tmp_path / "rg").symlink_to(box)
    with pytest.raises(SetupError, match=r"many programs in one, it is busybox.*install the single programs"):
        find_programs(["bash", "rg"], (tmp_path / "rg").resolve())


def test_one_file_under_two_names_is_refused() -> None:
    with pytest.raises(SetupError, match="many programs in one, it is bash as well"):
        find_programs(["bash", "rg"], Path("/usr/bin/bash").resolve())


def test_a_jail_of_few_programs_hides_what_any_jail_hides(closed: Shell, hidden: Hidden) -> None:
    for path in hidden.paths:
        assert "No such file" in closed(f"ls '{path}' 2>&1 || true")
    assert closed("ls -A /").split() == ["bin", "dev", "etc", "graph", "lib", "lib64", "proc", "scratch", "tmp", "usr"]
