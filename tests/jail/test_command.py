"""How one jailed command ends: exit codes, limits, what it printed, nothing left running."""

import dataclasses
import os
from pathlib import Path

import pytest

from dkgi.jail.command import Jail
from dkgi.jail.profile import agent_box, config, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.process import Lifeline
from tests.jail.conftest import SPEC, Shell, killing_jail_of, marked


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("true", 0),
        ("exit 7", 7),
        ("exit 255", 255),
        ("/etc/passwd", 126),
        ("no-such-program", 127),
        ("kill -TERM $$", 143),
        ("kill -ABRT $$", 134),
        ("kill -KILL $$", 137),
        ("python3 -c 'import os; os.abort()'", 134),
        ("(exit 3) & wait $!", 3),
        ("head -c 5000000 /dev/zero > /scratch/large", 153),
    ],
)
def test_the_exit_code_is_the_commands_own(shell: Shell, command: str, code: int) -> None:
    result = shell.result(command)
    assert (result.exit_code, result.killed_by, result.error) == (code, None, "")


def test_a_command_killed_by_a_signal_prints_no_word_of_ours(shell: Shell) -> None:
    assert shell("echo mine; echo yours >&2; kill -ABRT $$") == "mine\nyours\n"


def test_stdout_and_stderr_keep_their_order(shell: Shell) -> None:
    assert shell("for i in 1 2 3; do echo out$i; echo err$i >&2; done") == "out1\nerr1\nout2\nerr2\nout3\nerr3\n"


def test_bytes_are_kept_as_printed(shell: Shell) -> None:
    result = shell.result(r"printf 'a\xff\x00\xe2\x82b\r\n'")
    assert result.output.read_bytes() == b"a\xff\x00\xe2\x82b\r\n"


def test_there_is_no_input_to_wait_for(shell: Shell) -> None:
    assert shell("cat; read -t 5 x; echo code $?") == "code 1\n"


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("echo partial; sleep 30", "time"),
        ("echo partial; trap '' TERM INT HUP; sleep 30; echo no; sleep 30", "time"),
        ("echo partial; while :; do :; done", "time"),
        ("echo partial; exec >&- 2>&-; sleep 30", "time"),
        ("echo partial; mkfifo /tmp/f; cat < /tmp/f; true", "time"),
        ("echo partial; exec > >(tee /scratch/t); sleep 30", "time"),
        ("echo partial; python3 -c 'x = b\"1\" * (600 << 20); input()' < /dev/zero", "memory"),
        (
            "echo partial; for i in 1 2 3 4; do python3 -c 'x=b\"1\"*(90<<20);import time;time.sleep(9)' & done; wait",
            "memory",
        ),
        (
            "echo partial; python3 -c 'import mmap,time; m=mmap.mmap(-1,400<<20); [m.write(b\"1\"*(1<<20)) for _ in range(300)]; time.sleep(9)'",
            "memory",
        ),
        ("echo partial; yes", "output"),
        ("echo partial; (setsid yes &) ; sleep 30", "output"),
    ],
)
def test_past_a_limit_all_processes_end_and_the_output_is_kept(shell: Shell, command: str, limit: str) -> None:
    background = "(setsid bash -c 'exec -a limit-marker sleep 300' &); exec -a limit-marker sleep 300"
    result = shell.result(f"{background} & {command}", timeout_s=0.8 if limit == "time" else 30)
    assert (result.killed_by, result.exit_code) == (limit, 137)
    assert result.output.read_bytes().startswith(b"partial\n")
    assert result.output_bytes == result.output.stat().st_size <= SPEC.output_mb * 2**20
    assert marked("limit-marker") == []


def test_a_jail_that_is_killed_from_outside_is_not_the_commands_doing(shell: Shell) -> None:
    marker = f"command-killed-{os.getpid()}"
    with killing_jail_of(f"{marker}\x00300"):
        result = shell.result(
            f"echo partial; (setsid bash -c 'exec -a {marker} sleep 300' &); exec -a {marker} sleep 300"
        )
    assert (result.killed_by, result.exit_code, result.error) == ("sandbox", 137, "the jail was killed from outside")
    assert result.output.read_text() == "partial\n"
    assert marked(marker) == []


@pytest.mark.parametrize(
    "command",
    [
        "kill -9 -1; kill -9 1; kill -9 $PPID; kill -9 0; kill -9 $$",
        "python3 -c 'import os; [os.kill(n, 9) for n in range(1, 400) if os.path.exists(f\"/proc/{n}\")]'; kill -9 $$",
        "python3 -c 'import os, signal; os.kill(os.getppid(), 9)'; kill -9 $$",
    ],
)
def test_no_command_kills_its_jail_from_inside(shell: Shell, command: str) -> None:
    result = shell.result(command)
    assert (result.killed_by, result.exit_code, result.error) == (None, 137, "")


def test_output_up_to_the_cap_is_kept_whole(shell: Shell) -> None:
    cap = SPEC.output_mb * 2**20
    assert shell.result(f"head -c {cap} /dev/zero").killed_by is None
    over = shell.result(f"head -c {cap + 1} /dev/zero; sleep 9")
    assert (over.killed_by, over.output_bytes) == ("output", cap)


def test_what_runs_in_the_background_ends_with_the_command(shell: Shell) -> None:
    result = shell.result(
        "echo hi; exec -a bg-marker sleep 300 & (setsid nohup bash -c 'exec -a bg-marker sleep 300' &); true"
    )
    assert result.output.read_text() == "hi\n"
    assert result.killed_by is None
    assert marked("bg-marker") == []


def test_mapped_files_do_not_count_as_memory(shell: Shell, graph: Path) -> None:
    large = graph / "large"
    with large.open("wb") as file:
        file.truncate(500 * 2**20)
    large.chmod(0o644)
    program = "import mmap,time\nf=open('/graph/large')\nm=mmap.mmap(f.fileno(),0,prot=1)\nprint(sum(m[::4096]))\ntime.sleep(.3)"
    result = shell.result(f"python3 - <<'P'\n{program}\nP")
    large.unlink()
    assert (result.killed_by, result.output.read_text()) == (None, "0\n")


def test_use_of_the_machine_is_measured(shell: Shell) -> None:
    result = shell.result("python3 -c 'import time; x = b\"1\" * (100 << 20); time.sleep(.4)'")
    assert 100 <= result.peak_rss_mb <= 150
    assert 0 < result.cpu_s < 5
    assert result.wall_s >= 0.4


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["/bin/bash", "-c", "x" * 140_000], "Argument list too long"),
        (["/bin/bash", "-c", "true", *["x" * 100_000] * 11], "Argument list too long"),
        (["/bin/bash", "-c", "echo \0"], "Invalid argument"),
        (["/bin/bash", "-c", "echo \ud800"], "Invalid or incomplete multibyte"),
        ([], "Argument list too long"),
    ],
    ids=["long word", "long list", "NUL", "half a character", "nothing"],
)
def test_a_command_that_no_kernel_takes_is_the_agents_error(shell: Shell, argv: list[str], said: str) -> None:
    result = shell.commands.run(argv, timeout_s=9)
    assert (result.exit_code, result.killed_by) == (126, None)
    assert said in result.output.read_text()


def test_the_longest_command_works(shell: Shell) -> None:
    result = shell.commands.run(["/bin/bash", "-c", f"echo ok #{'x' * 120_000}"], timeout_s=9)
    assert result.output.read_text() == "ok\n"


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (('cwd: "/graph"', 'cwd: "/absent"'), "chdir"),
        (("/nodes", "/nodes"), None),
        (("rlimit_nofile: 256", "rlimit_nofile: 999999999"), "RLIMIT_NOFILE"),
        (("ERRNO(38)", "ERRNO(38"), "policy"),
        (("mode: ONCE", "mode: TWICE"), "parse"),
        (('src: "/dev/full"', 'src: "/dev/absent"'), "mount"),
    ],
    ids=["cwd", "intact", "limit", "policy", "text", "mount"],
)
def test_a_jail_that_does_not_start_is_told_from_exit_255(
    folder: RunFolder, graph: Path, tmp_path: Path, broken: tuple[str, str], said: str | None
) -> None:
    workspace = folder.new_attempt(graph)
    uid = workspace.scratch_dir.stat().st_uid
    box, host = agent_box(SPEC, workspace), find_host()
    file = tmp_path / "cfg"
    file.write_text(config(box, SPEC, host, uid=uid).replace(*broken))
    with Lifeline() as lifeline:
        jail = Jail(file, box, host.nsjail, uid, lifeline)
        result = jail.run(["/bin/bash", "-c", "exit 255"], tmp_path / "out", timeout_s=9)
    folder.remove(workspace)
    assert result.exit_code == 255
    assert result.killed_by == (None if said is None else "sandbox")
    assert (said or "") in result.error


def test_an_output_file_is_never_written_through_a_link(folder: RunFolder, graph: Path, tmp_path: Path) -> None:
    workspace = folder.new_attempt(graph)
    box = dataclasses.replace(agent_box(SPEC, workspace))
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    with Lifeline() as lifeline:
        jail = Jail(tmp_path / "cfg", box, find_host().nsjail, os.geteuid(), lifeline)
        with pytest.raises(FileExistsError):
            jail.run(["/bin/true"], tmp_path / "link", timeout_s=9)
    folder.remove(workspace)
    assert not (tmp_path / "elsewhere").exists()
