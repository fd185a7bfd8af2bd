"""One start of Python: it works as any Python, and there is no second one, whatever an agent tries."""

import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dkgi.jail.client import address
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.types import CommandResult
from tests.jail.conftest import SPEC, Shell, killing_jail_of, marked, open_shell

REFUSED = "python3: no start of Python is left in this task\n"


@pytest.fixture
def one(one_program: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path) -> Iterator[Shell]:
    """An attempt with its one start."""
    yield from open_shell(one_program, folder, graph, tmp_path / "commands.jsonl")


def printed(result: CommandResult) -> str:
    assert result.killed_by is None, result
    return result.output.read_text(errors="replace")


# ------------------------------------------------------------------- it is a Python like any other


@pytest.mark.parametrize(
    ("command", "shown"),
    [
        ("python3 -c 'print(6 * 7)'", "42\n"),
        ("/usr/bin/python3 -c 'print(6 * 7)'", "42\n"),
        ("python3 - <<'E'\nprint(6 * 7)\nE", "42\n"),
        ("python3 <<'E'\nprint(6 * 7)\nE", "42\n"),
        ("echo 'print(6 * 7)' | python3", "42\n"),
        ("python3 - <<'E'\nprint(6 * 7)  # " + "x" * 100_000 + "\nE", "42\n"),
        ("echo 'print(6 * 7)' > /scratch/p.py; python3 /scratch/p.py", "42\n"),
        ("cd /tmp; echo 'print(6 * 7)' > p.py; python3 p.py", "42\n"),
        ("python3 -c 'import sys; sys.exit(7)'; echo $?", "7\n"),
        ("python3 -c 'raise SystemExit(255)'; echo $?", "255\n"),
        ("python3 -c 'open(\"/absent\")' 2>/dev/null; echo $?", "1\n"),
        ("seq() { for ((i = 1; i <= $1; i++)); do echo $i; done; }; seq 3 | python3 -c 'print(input())'; echo", "1\n\n"),
        ("python3 -c 'print(\"\\n\" * 99999)' 2>/dev/null | head -1", "\n"),
        ("{ echo a; python3 -c 'print(\"b\")'; echo c; } > /tmp/f; cat /tmp/f", "a\nb\nc\n"),
        ("python3 -c 'import sys; print(1, flush=True); print(2, file=sys.stderr); print(3)' 2>&1", "1\n2\n3\n"),
        ("python3 -c 'import sys; print(sys.argv[1:])' 'a b' '' \"q'\\\"\" é $'\\n'", "['a b', '', 'q\\'\"', 'é', '\\n']\n"),
        ("python3 -c 'import sys; print(len(sys.argv[1]))' $(printf '%0100000d' 1)", "100000\n"),
        ("X=' =1' python3 -c 'import os; print(os.environ[\"X\"], \"LEFT\" in os.environ)'", " =1 False\n"),
        ("cd nodes; python3 -c 'import os; print(os.getcwd(), os.listdir())'", "/graph/nodes ['0000.jsonl']\n"),
        ("python3 -c 'import sys; print(sys.stdin)' <&-; echo $?", None),
        ("python3 -c 'print(1)' >&-; echo $?", "0\n"),
        ("x=$(python3 -c 'print(5)'); echo $((x + 1))", "6\n"),
        ("python3 -c 'print(open(\"candidate_ids.txt\").read())' | rg -c .", "3\n"),
        ("python3 -c 'import subprocess as s; print(s.run([\"rg\", \"-c\", \"boat\", \"nodes\"]).returncode)'", "nodes/0000.jsonl:1\n0\n"),
        ("python3 -c 'import json, ssl, sqlite3, ctypes, lzma, zoneinfo, curses, bz2, uuid, decimal; print(1)'", "1\n"),
        ("python3 -c 'import importlib.util as u; print([n for n in (\"numpy\", \"pip\", \"dkgi\", \"yaml\") if u.find_spec(n)])'", "[]\n"),
        ("python3 -m json.tool <<< '[1]' | wc -l", "3\n"),
        ("python3 -c 'import os; pid = os.fork(); print(\"child\" if not pid else os.waitpid(pid, 0)[1])'", "child\n0\n"),
        ("python3 -c 'import multiprocessing as m; p = m.get_context(\"fork\").Pool(2); print(p.map(abs, [-1]))'", "[1]\n"),
        ("python3 -c 'open(\"/scratch/o\", \"w\").write(\"kept\")'; cat /scratch/o", "kept"),
        ("python3 -c 'import sys; print(sys.executable)'", "/usr/bin/python3\n"),
    ],
)  # fmt: skip
def test_the_one_start_is_as_good_as_any(one: Shell, command: str, shown: str | None) -> None:
    result = one.result(command)
    assert shown is None or printed(result) == shown
    assert [start.error for start in result.python] == [""]
    assert result.python_refused == 0


def test_the_record_tells_program_count_and_refusals(one: Shell) -> None:
    first = one.result("python3 -B - a <<'E'\nprint('one')\nE\npython3 -c 2; python3 -c 3")
    (start,) = first.python
    assert (start.argv, start.program, start.exit_code) == (("-B", "-", "a"), "print('one')\n", 0)
    assert (first.python_refused, first.output.read_text()) == (2, "one\n" + 2 * REFUSED)
    second = one.result("python3 -c 4; echo $?")
    assert (second.python, second.python_refused, second.output.read_text()) == ((), 1, f"{REFUSED}126\n")
    assert '"program": "print(\'one\')\\n"' in one.log.read_text()


@pytest.mark.parametrize(
    ("command", "program"),
    [
        ("python3 -c 'print(1)' x", "print(1)"),
        ("python3 -Bc 'print(1)'", "print(1)"),
        ("python3 -X utf8 -W ignore -c 'print(1)'", "print(1)"),
        ("echo 'print(1)' > /tmp/p; cd /tmp; python3 -I p", "print(1)\n"),
        ("echo 'print(1)' > /scratch/p; python3 /scratch/../scratch/p", "print(1)\n"),
        ("echo 'print(1)' > /dev/shm/p; python3 /dev/shm/p", "print(1)\n"),
        ("python3 <<< 'print(1)'", "print(1)\n"),
        ("python3 -m this", None),
        ("ln -s /etc/passwd /tmp/l; python3 /tmp/l", None),
        ("python3 /scratch", None),
        ("python3 /absent", None),
    ],
)
def test_the_text_of_the_program_is_recorded_without_following_a_link(
    one: Shell, command: str, program: str | None
) -> None:
    (start,) = one.result(command.replace("ln -s", "find /etc/passwd; ln -s")).python
    assert start.program == program


# ------------------------------------------------------------------- there is no second one

RAN = "print('ran', flush=True)"
INSIDE = f"""{RAN}
import os, subprocess, sys, ctypes, multiprocessing, pathlib, shutil
def attempt(*argv, **rest):
    try:
        subprocess.run(argv, timeout=20, **rest)
    except Exception as error:
        pass
CODE = ('-c', "print('ran', flush=True)")
libc = ctypes.CDLL(None, use_errno=True)
LOADERS = [str(path) for path in (*pathlib.Path('/lib64').glob('ld-*'), *pathlib.Path('/lib').glob('ld-*'))]
"""


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c '{0}'; python3 -c '{0}'",
        "python3 -c '{0}'; /usr/bin/python3 -c '{0}'",
        "python3 -c '{0}'; /bin/python3 -c '{0}'",
        "python3 -c '{0}'; find . -maxdepth 0 -exec python3 -c '{0}' ';'",
        "python3 -c '{0}'; echo | xargs python3 -c '{0}'",
        "python3 -c '{0}'; bash -c \"python3 -c '{0}'\"",
        "python3 -c '{0}'; exec python3 -c '{0}'",
        "python3 -c '{0}'; bash /usr/bin/python3 -c '{0}'",
        "python3 -c '{0}'; . /usr/bin/python3 -c '{0}'",
        "python3 -c '{0}' & python3 -c '{0}' & wait",
        "for i in 1 2 3 4 5 6; do python3 -c '{0}' & done; wait",
        "python3 -c '{0}' | python3 -c '{0}; print(input())'",
        "python3 -c '{0}'; for l in /lib64/ld-* /lib/ld-*; do $l /usr/bin/python3 -c '{0}'; done",
        "python3 -c '{0}'; cat /usr/bin/python3 > /scratch/python3; PATH=/scratch:$PATH python3 -c '{0}'",
        "python3 -c '{0}'; BASH_ENV=/dev/stdin python3 -c '{0}' <<< 'refused() {{ :; }}'",
        "python3 -c '{0}'; echo 1.1 > /run/py/req; echo 2.2 > /run/py/req; read -t 0.3 -u 0; python3 -c '{0}'",
        "echo 1.1 > /run/py/req; read -t 0.3 < <(:); python3 -c '{0}'; python3 -c '{0}'",
        "python3 -c '{0}'; echo ../../x > /run/py/req; echo -e '1.1\\n2.2\\0' > /run/py/req; python3 -c '{0}'",
        "python3 -c '{0}'; echo 0 > /run/py/all; echo 0 > /run/py/$$.1; python3 -c '{0}'",
        "python3 -c '{0}'; find /run/py -delete; ln -s /tmp /run/py/x; python3 -c '{0}'",
        "python3 -c '{0}'; for ((i = 0; i < 1500; i++)); do echo $i.$i; done > /run/py/req; python3 -c '{0}'",
        "python3 -c '{0}'; exec 7<> /run/py/tick; printf '%01000d' 1 >&7; python3 -c '{0}'",
        "(sleep() {{ read -t $1 <> <(:); }}; python3 -c '{0}; import time; time.sleep(1)' & p=$!; sleep .5; kill -9 $p; python3 -c '{0}')",
        "python3 -c '{0}; import os; os._exit(0)'; python3 -c '{0}'",
        "python3 -c '{0}; import os; os.abort()'; python3 -c '{0}'",
    ],
)  # fmt: skip
def test_no_second_start_from_the_shell(one: Shell, command: str) -> None:
    result = one.result(command.format(RAN.replace("'", '"')))
    assert printed(result).split().count("ran") <= 1
    assert sum(start.error == "" for start in result.python) <= 1
    assert printed(one.result("python3 -c 'print(\"ran\")'; echo $?")) == f"{REFUSED}126\n"


@pytest.mark.parametrize(
    "attack",
    [
        "attempt(sys.executable, *CODE)",
        "attempt('python3', *CODE)",
        "attempt('/usr/bin/python3', *CODE)",
        "attempt('/usr/bin/python3.11', *CODE)",
        f"attempt({os.path.realpath('/usr/bin/python3')!r}, *CODE)",
        "attempt('/proc/self/exe', *CODE)",
        "attempt('bash', '-c', 'python3 -c \"print(1)\" | sed s/1/ran/')",
        "os.execv(sys.executable, [sys.executable, *CODE])",
        "os.execve('/usr/bin/python3', ['python3', *CODE], {'BASH_ENV': '/scratch/x', 'SHELLOPTS': 'xtrace'})",
        "for path in pathlib.Path('/').rglob('*'):\n    if 'python' in path.name and path.is_file(): attempt(str(path), *CODE)",
        "for path in pathlib.Path('/usr/lib').rglob('*python3*'):\n    for loader in LOADERS: attempt(loader, str(path), *CODE)",
        "for number in range(3, 1024):\n    try: os.execve(number, ['python3', *CODE], {})\n    except OSError: pass",
        "multiprocessing.set_start_method('spawn')\np = multiprocessing.Process(target=print, args=('ran',)); p.start(); p.join(5)",
        "multiprocessing.set_start_method('forkserver')\np = multiprocessing.Process(target=print, args=('ran',)); p.start(); p.join(5)",
        "shutil.copy('/bin/bash', '/scratch/b'); os.chmod('/scratch/b', 0o755); attempt('/scratch/b', '-c', 'echo ran')",
        "shutil.copy('/bin/bash', '/tmp/b'); [attempt(l, '/tmp/b', '-c', 'echo ran') for l in LOADERS]",
        "shutil.copy('/bin/bash', '/dev/shm/b'); [attempt(l, '/dev/shm/b', '-c', 'echo ran') for l in LOADERS]",
        "f = libc.memfd_create(b'x', 0)\nos.write(f, open('/bin/bash', 'rb').read())\nos.execve(f, ['b', '-c', 'echo ran'], {})",
        "f = libc.syscall(319, b'x', 0)\nos.write(f, open('/bin/bash', 'rb').read())\nos.execve(f, ['b', '-c', 'echo ran'], {})",
        "libc.unshare(0x10020000) or (libc.mount(b'proc', b'/tmp', b'proc', 0, None), attempt('/tmp/self/exe', *CODE))",
        "libc.mount(b'proc', b'/tmp', b'proc', 0, None); attempt('/tmp/self/exe', *CODE)",
        "libc.mount(None, b'/scratch', None, 0x20 | 0x1000, None); shutil.copy('/bin/bash', '/scratch/b'); os.chmod('/scratch/b', 0o755); attempt('/scratch/b', '-c', 'echo ran')",
        "libc.ptrace(0, 0, 0, 0) or attempt(sys.executable, *CODE)",
        "os.environ['LD_PRELOAD'] = '/scratch/x.so'; attempt(sys.executable, *CODE)",
        "open('/run/py/req', 'w').write('1.1\\n2.2\\n'); attempt(sys.executable, *CODE)",
        "open('/run/py/req', 'w').write('x' * 200000 + '\\n'); attempt(sys.executable, *CODE)",
        "os.mkfifo('/scratch/f'); attempt('bash', '-c', 'python3 <> /scratch/f', stdin=subprocess.DEVNULL)",
        "attempt('bash', '-c', 'python3 < /', stdin=subprocess.DEVNULL)",
        "[attempt('perl', '-e', 'print \"ran\"'), attempt('/bin/sh', '-c', 'echo ran'), attempt('awk', 'BEGIN{print \"ran\"}')]",
        "os.system('echo ran'); os.popen('echo ran').read()",
        "subprocess.run('echo ran', shell=True)",
        "import code, runpy, venv; venv.create('/scratch/v'); attempt('/scratch/v/bin/python3', *CODE)",
        "os.symlink('/usr/bin/python3', '/scratch/p'); attempt('/scratch/p', *CODE)",
        "os.fork(); os.execv(sys.executable, [sys.executable, *CODE])",
        "os.setsid(); os.fork() and os._exit(0); import time; time.sleep(.2); attempt(sys.executable, *CODE)",
    ],
)  # fmt: skip
def test_no_second_start_from_inside(one: Shell, attack: str) -> None:
    command = f"python3 - 2>/dev/null <<'PROGRAM'\n{INSIDE}{attack}\nPROGRAM"
    result = one.result(command, timeout_s=60)
    assert printed(result).split().count("ran") == 1
    assert len(result.python) == 1
    assert printed(one.result("python3 -c 'print(\"ran\")'; echo $?")) == f"{REFUSED}126\n"


def test_two_attempts_have_a_start_each(
    one: Shell, one_program: CommandServer, folder: RunFolder, graph: Path, tmp_path: Path
) -> None:
    for other in open_shell(one_program, folder, graph, tmp_path / "other.jsonl"):
        assert one("python3 -c 'print(1)'") == other("python3 -c 'print(1)'") == "1\n"
        assert one("python3 -c 'print(1)'; true") == other("python3 -c 'print(1)'; true") == REFUSED


def test_two_commands_at_one_time_share_the_start(one: Shell) -> None:
    results: list[CommandResult] = []
    command = "for i in 1 2 3; do python3 -c 'print(\"ran\")'; done 2>/dev/null"
    threads = [threading.Thread(target=lambda: results.append(one.result(command))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(printed(result).count("ran") for result in results) == 1
    assert sum(len(result.python) for result in results) == 1
    assert sum(result.python_refused for result in results) == 8


def test_python_sees_neither_processes_nor_the_host(one: Shell, hidden: object) -> None:
    program = """
import os
print(sorted(os.listdir("/")), os.path.exists("/proc"), os.listdir("/etc"))
print([os.path.exists(path) for path in ("/root", "/home", "/var", "/sys", "/scratch/full_outputs")])
import socket
for family in (socket.AF_INET, socket.AF_NETLINK):
    try: socket.socket(family)
    except OSError as error: print(error.errno)
print(os.getpid(), os.geteuid())
for path in ("/graph/x", "/usr/bin/x", "/run/py/x", "/scratch/full_outputs/x"):
    try: open(path, "w"); print("written")
    except OSError as error: print(error.errno)
"""
    lines = one(f"python3 - <<'P'\n{program}\nP").splitlines()
    tops = "['bin', 'dev', 'etc', 'graph', 'lib', 'lib64', 'run', 'scratch', 'tmp', 'usr'] False"
    assert lines[0].startswith(tops)
    assert lines[1] == "[False, False, False, False, True]"
    assert lines[2:4] == ["97", "97"]
    assert lines[4] == f"1 {one.workspace.scratch_dir.stat().st_uid}"
    assert lines[5:] == ["30"] * 4


# ------------------------------------------------------------------- it ends with its command


@pytest.mark.parametrize(
    ("command", "limit"),
    [
        ("exec -a py-marker python3 -c 'import time; time.sleep(300)' py-marker", "time"),
        ("python3 -c 'while True: pass' py-marker", "time"),
        (
            "python3 -c 'import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)' py-marker & wait",
            "time",
        ),
        ("python3 -c 'x = b\"1\" * (600 << 20); input()' py-marker < /dev/zero", "memory"),
        ("python3 -c 'while True: print(\"x\" * 99999)' py-marker", "output"),
    ],
)
def test_limits_hold_for_python_too(one: Shell, command: str, limit: str) -> None:
    result = one.result(f"echo partial; {command}", timeout_s=1.5 if limit == "time" else 30)
    assert (result.killed_by, result.exit_code) == (limit, 137)
    assert result.output.read_bytes().startswith(b"partial\n")
    assert marked("py-marker") == []
    assert result.output_bytes <= SPEC.output_mb * 2**20


@pytest.mark.parametrize(
    "command",
    [
        "python3 -c 'import time; time.sleep(300)' bg-py-marker & read -t 1 < <(:); true",
        "(python3 -c 'import time; time.sleep(300)' bg-py-marker &); read -t .5 <> /run/py/tick; true",
        "python3 -c 'import time; time.sleep(300)' bg-py-marker & read -t .5 <> /run/py/tick; kill -9 $!; wait; true",
        "python3 -c 'import os, time; os.fork() or (os.setsid(), os.fork() or time.sleep(300))' bg-py-marker",
        "coproc python3 -ic 'print(1)' bg-py-marker; read -t .5 <> /run/py/tick",
    ],
)
def test_no_program_outlives_its_command(one: Shell, command: str) -> None:
    result = one.result(command)
    assert result.killed_by is None
    assert marked("bg-py-marker") == []


@pytest.mark.parametrize(("marker", "name"), [("py-killed-marker", "python"), ("command-killed-marker", "")])
def test_a_jail_that_is_killed_from_outside_is_not_the_programs_doing(one: Shell, marker: str, name: str) -> None:
    program = "import time; time.sleep(300)"
    with killing_jail_of(f"{marker}\x00", name):
        result = one.result(
            f"(exec -a command-killed-marker cat <> <(:)) & python3 -c '{program}' py-killed-marker; true"
        )
    assert (result.killed_by, result.error) == ("sandbox", "the jail was killed from outside")
    assert marked("-killed-marker") == []


def test_use_of_the_machine_is_measured_for_python_too(one: Shell) -> None:
    result = one.result("python3 -c 'import time; x = b\"1\" * (100 << 20); sum(range(3000000)); time.sleep(.4)'")
    assert 100 <= result.peak_rss_mb <= 150
    assert result.cpu_s > result.python[0].cpu_s > 0


def test_a_client_that_goes_away_ends_python(one: Shell) -> None:
    with socket.socket(socket.AF_UNIX) as connection, address(one.commands.socket) as path:
        connection.connect(path)
        argv = ["/bin/bash", "-c", "python3 -c 'import time; time.sleep(300)' gone-py-marker"]
        request = {"token": one.commands.token, "argv": argv, "timeout_s": 60}
        connection.sendall(json.dumps(request).encode() + b"\n")
        wait_until(lambda: marked("gone-py-marker") != [])
    wait_until(lambda: marked("gone-py-marker") == [])


def test_nothing_is_left_when_the_command_is_over(one: Shell, one_program: CommandServer) -> None:
    folder = one_program.socket.parent

    def left() -> tuple[list[str], int, int]:
        names = sorted(path.name for path in folder.iterdir())
        return names, len(list(Path("/proc/self/fd").iterdir())), threading.active_count()

    names, files, threads = left()
    for _ in range(3):
        one.result("python3 -c 'import subprocess, sys; subprocess.run([sys.executable])'; python3")
    # Threads end a moment after their answer, and fewer are fine: what an earlier test began may be over.
    wait_until(lambda: left()[0] == names and left()[1] <= files and left()[2] <= threads)


def test_a_signal_to_the_stand_in_ends_python(one: Shell) -> None:
    result = one.result(
        "python3 -c 'import time; time.sleep(300)' & read -t 1 <> /run/py/tick; kill -TERM $!; wait $!; echo $?"
    )
    assert printed(result) == f"{128 + signal.SIGTERM}\n"


def test_python_ends_when_its_caller_is_killed_and_the_command_goes_on(one: Shell) -> None:
    scratch = one.workspace.scratch_dir
    # Put together, so that the shell's own command line does not hold the marker.
    command = """
m=caller; python3 -c 'import time; open("/scratch/runs", "w"); time.sleep(300)' $m-marker &
until [[ -e /scratch/runs ]]; do read -t .1 <> /run/py/tick; done
kill -9 $!; wait
echo > /scratch/killed; until [[ -e /scratch/over ]]; do read -t .1 <> /run/py/tick; done
"""
    running = threading.Thread(target=one.result, args=(command,), kwargs={"timeout_s": 60})
    running.start()
    wait_until((scratch / "killed").exists)
    wait_until(lambda: marked("caller-marker") == [])
    assert running.is_alive()
    (scratch / "over").touch()
    running.join()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
