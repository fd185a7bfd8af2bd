"""What a hostile command tries, one property a test. Most print `held` where the attack failed as it should."""

import os
import socket
import threading
import time
from pathlib import Path

import pytest

from dkgi.jail.preflight import Hidden
from tests.jail.conftest import SPEC, Shell


@pytest.mark.parametrize(
    "command",
    [
        "cat /etc/shadow",
        "cat /scratch/../etc/shadow",
        "ln -sfn /etc/shadow /scratch/s; cat /scratch/s",
        "cat /proc/1/root/etc/shadow",
        "ls /home",
        "ls /root",
        "ls /var",
        "ls /sys",
        "ls /dev/mem /dev/kmsg",
        "ls /dev/vda /dev/sda /dev/nvme0n1",
        "ls /run",
    ],
)
def test_the_hosts_files_do_not_exist(shell: Shell, command: str) -> None:
    assert "No such file" in shell(f"{command} 2>&1 || true")
    assert shell(f"{command} 2>/dev/null || true") == ""


def test_labels_do_not_exist_by_any_way_to_them(shell: Shell, hidden: Hidden) -> None:
    for path in hidden.paths:
        for way in (path, f"/proc/1/root{path}", f"/proc/self/cwd/../..{path}", f"/scratch/../{path}"):
            assert "No such file" in shell(f"ls '{way}' 2>&1 || true")
    assert shell("find / -name gold.jsonl 2>/dev/null") == ""


@pytest.mark.parametrize(
    "command",
    [
        "echo x > new",
        "echo x >> candidate_ids.txt",
        "rm -f candidate_ids.txt",
        "mv candidate_ids.txt x",
        "chmod 777 .",
        "touch candidate_ids.txt",
        "mkdir d",
        "ln candidate_ids.txt /scratch/hard",
        "truncate -s 0 nodes/0000.jsonl",
    ],
)
def test_the_graph_cannot_be_changed(shell: Shell, graph: Path, command: str) -> None:
    before = {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [graph, *graph.rglob("*")]}
    assert shell(f"{command} && echo done || true").count("done") == 0
    assert {path: (path.stat().st_mtime_ns, path.stat().st_mode) for path in [graph, *graph.rglob("*")]} == before


@pytest.mark.parametrize(
    "command",
    [
        "echo x > /scratch/full_outputs/0001.txt",
        "rm -rf /scratch/full_outputs/0001.txt",
        "rmdir /scratch/full_outputs",
        "mv /scratch/full_outputs /scratch/mine",
        "ln -sfn /etc /scratch/full_outputs",
        "mv -T /scratch/full_outputs /tmp/mine",
    ],
)
def test_complete_outputs_cannot_be_changed(shell: Shell, command: str) -> None:
    first = shell.result("echo first").output
    assert "done" not in shell(f"{command.replace('0001.txt', first.name)} && echo done || true")
    assert first.read_text() == shell(f"cat /scratch/full_outputs/{first.name}") == "first\n"


@pytest.mark.parametrize(
    "command",
    [
        "mount -t tmpfs none /tmp",
        "mount -o remount,rw,bind /graph",
        "umount /graph",
        "unshare -Ur true",
        "unshare -m true",
        "nsenter -t 1 -m true",
        "chroot /scratch /bin/true",
        "mknod /scratch/d b 254 0",
        "dmesg",
        "echo 1 > /proc/sys/kernel/panic",
        "echo x > /proc/self/oom_score_adj",
        "echo x > /usr/x",
        "echo x > /etc/x",
        "echo x > /x",
        "echo x > /dev/x",
        "echo x > /usr/local/x",
        "su -c true",
    ],
)
def test_the_system_cannot_be_changed(shell: Shell, command: str) -> None:
    assert "done" not in shell(f"{{ {command}; }} < /dev/null && echo done || true")


def test_no_program_can_be_started_from_the_graph_or_shared_memory(shell: Shell) -> None:
    mounts = shell("grep -E ' /(graph|dev/shm|scratch/full_outputs) ' /proc/self/mountinfo")
    assert [line.count(",noexec,") for line in mounts.splitlines()] == [1, 1, 1]
    assert "done" not in shell("cp /bin/true /dev/shm/run; /dev/shm/run && echo done; true")


_SYSTEM_CALLS = """
import ctypes, errno, os
libc = ctypes.CDLL(None, use_errno=True)
def refused(name, *args):
    code = getattr(libc, name)(*args)
    return code == -1 and errno.errorcode[ctypes.get_errno()]
"""


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("'unshare', 0x10000000", "EPERM"),
        ("'setns', 0, 0", "EPERM"),
        ("'syscall', 56, 0x10000000 | 17, 0, 0, 0, 0", "EPERM"),  # clone(CLONE_NEWUSER)
        ("'syscall', 435, 0, 0", "ENOSYS"),  # clone3
        ("'mount', b'none', b'/tmp', b'tmpfs', 0, None", "EPERM"),
        ("'ptrace', 0, 0, 0, 0", "EPERM"),
        ("'process_vm_readv', 1, None, 0, None, 0, 0", "EPERM"),
        ("'memfd_create', b'x', 0", "EPERM"),
        ("'shmget', 1, 4096, 0o1666", "EPERM"),
        ("'syscall', 425, 1, 0", "EPERM"),  # io_uring_setup
        ("'syscall', 321, 0, 0, 0", "EPERM"),  # bpf
        ("'syscall', 323, 0", "EPERM"),  # userfaultfd
        ("'syscall', 304, 0, 0, 0", "EPERM"),  # open_by_handle_at
        ("'syscall', 250, 0, 0, 0, 0, 0", "EPERM"),  # keyctl
        ("'syscall', 430, b'tmpfs', 0", "EPERM"),  # fsopen
    ],
)
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="numbers of x86-64")
def test_system_calls_that_reach_around_the_jail_are_refused(shell: Shell, call: str, error: str) -> None:
    assert shell.python(f"{_SYSTEM_CALLS}\nprint(refused({call}))").strip() == error


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="machine code of x86")
def test_system_calls_of_another_architecture_end_the_program(shell: Shell) -> None:
    program = """
import ctypes, mmap
code = mmap.mmap(-1, 4096, prot=7)
code.write(bytes.fromhex("b814000000cd80c3"))  # getpid by the i386 way
print("before", flush=True)
ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()
print("after")
"""
    printed = shell.python(program)
    assert "before" in printed
    assert "after" not in printed.splitlines()


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET", "AF_VSOCK", "AF_ALG"])
def test_only_unix_sockets_can_be_made(shell: Shell, family: str) -> None:
    program = f"""
import socket
try:
    socket.socket(socket.{family}, socket.SOCK_STREAM)
    print("made")
except OSError as error:
    print(error.errno)
left, right = socket.socketpair()
left.send(b"pair"); print(right.recv(4).decode())
"""
    assert shell.python(program).split() == ["97", "pair"]


def test_no_listener_of_the_host_can_be_reached(shell: Shell) -> None:
    with socket.create_server(("127.0.0.1", 0)) as tcp, socket.socket(socket.AF_UNIX) as abstract:
        port = tcp.getsockname()[1]
        abstract.bind("\0dkgi-test-listener")
        abstract.listen()
        printed = shell(f"(echo x > /dev/tcp/127.0.0.1/{port}) 2>&1 && echo reached; true")
        assert "reached" not in printed
        program = "import socket\ns = socket.socket(socket.AF_UNIX)\nprint(s.connect_ex('\\0dkgi-test-listener'))"
        assert shell.python(program).strip() == "111"


def test_processes_of_the_host_cannot_be_signalled(shell: Shell) -> None:
    program = """
import os
found = []
for pid in range(3, 40000):
    if pid == os.getpid(): continue
    try: os.kill(pid, 0); found.append(pid)
    except ProcessLookupError: pass
    except PermissionError: found.append(pid)
print(len(found))
"""
    assert int(shell.python(program)) <= 1  # the shell around it


def test_a_set_user_id_program_gives_no_rights(shell: Shell) -> None:
    uid = shell.workspace.scratch_dir.stat().st_uid
    assert shell("cp /bin/bash /scratch/b; chmod 6755 /scratch/b; /scratch/b -p -c 'id -u'").strip() == str(uid)
    assert shell.workspace.scratch_dir.parent.stat().st_mode & 0o777 == 0o700


def test_a_search_over_complete_outputs_does_not_read_itself(fresh_shell: Shell) -> None:
    fresh_shell("echo needle")
    result = fresh_shell.result("grep -r needle /scratch; tail -F /scratch/full_outputs/* & sleep 0.3")
    assert result.killed_by is None
    assert result.output_bytes < 400


def test_links_in_scratch_lead_nowhere_on_the_host(shell: Shell, hidden: Hidden) -> None:
    shell(f"ln -s {hidden.private[0]}/gold.jsonl /scratch/link")
    assert "No such file" in shell("cat /scratch/link 2>&1 || true")


def test_the_command_server_cannot_be_reached_from_a_jail(shell: Shell) -> None:
    assert shell("find / -type s 2>/dev/null").split() == []


def test_open_files_of_the_host_are_not_passed_on(shell: Shell, tmp_path: Path) -> None:
    with (tmp_path / "open-on-the-host").open("w") as file:
        os.set_inheritable(file.fileno(), True)
        printed = shell("ls -l /proc/self/fd")
    assert "/dev/null" in printed
    assert "open-on-the-host" not in printed
    assert "memfd" not in printed


def test_a_command_has_no_more_processes_than_allowed(shell: Shell) -> None:
    program = """
import os, signal
children = []
try:
    while len(children) < 1000:
        if (pid := os.fork()) == 0: signal.pause()
        children.append(pid)
except BlockingIOError:
    print(len(children))
for pid in children: os.kill(pid, 9)
"""
    assert 0 < int(shell.python(program)) < SPEC.processes


def test_a_fork_bomb_is_bounded_and_leaves_other_attempts_alone(shell: Shell, fresh_shell: Shell) -> None:
    bomb = threading.Thread(target=shell.result, args=(":(){ :|:& };:; sleep 3",), kwargs={"timeout_s": 2})
    bomb.start()
    time.sleep(0.5)
    assert fresh_shell("echo fine") == "fine\n"
    bomb.join()
    assert shell("echo fine") == "fine\n"
