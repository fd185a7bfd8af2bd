"""What a jail shows of the host: the system or a closed set of programs, devices, and the attempt's own folders.

>>> [dict(mount)["dst"] for mount in mounts(box, find_host(), 1900000000, ())]
['/usr', '/bin', '/lib', ..., '/dev/shm', '/proc', ..., '/graph', '/scratch', '/scratch/full_outputs', '/tmp']

Not covered: limits, identity and system calls (profile.py).
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dkgi.jail.nsjail import Message, bind, content, proc, symlink, tmpfs
from dkgi.jail.programs import Interpreter, Programs
from dkgi.types import Box

if TYPE_CHECKING:
    from dkgi.jail.profile import Host

DEVICES = ("null", "zero", "full", "random", "urandom")


def mounts(box: Box, host: "Host", uid: int, hidden: Sequence[Path]) -> Iterator[Message]:
    """Mounts of a jail, in an order in which each finds its place. `hidden` folders below /usr are seen empty."""
    yield from _closed(host.programs) if host.programs else system(host, hidden)
    yield from etc(uid)
    for name in DEVICES:
        yield bind(Path("/dev", name), f"/dev/{name}", writable=True, device=True)
    yield tmpfs("/dev/shm", "64m", writable=True)
    if box.proc:
        yield from processes()
    # Where programs are a closed set, nothing that an agent wrote may become one.
    binds = [bind(source, target, writable=True, executable=not host.programs) for source, target in box.writable]
    binds += [bind(source, target) for source, target in box.read_only]
    yield from sorted(binds, key=lambda mount: str(dict(mount)["dst"]))  # a folder before what is mounted inside it


def processes(*, whole: bool = False) -> Iterator[Message]:
    """/proc with the jail's own processes; `whole` where namespaces are to be made inside, which the kernel asks for."""
    yield [("dst", "/proc"), ("fstype", "proc"), ("rw", True)] if whole else proc()
    yield symlink("/dev/fd", "/proc/self/fd")
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        yield symlink(f"/dev/{name}", f"/proc/self/fd/{number}")


def library(interpreter: Interpreter) -> Iterator[Message]:
    """Where an interpreter that takes itself for /usr/bin/python3 looks; packages beside the standard library are covered."""
    target = f"/usr/lib/{interpreter.library.name}"
    yield bind(interpreter.library, target, executable=True)
    for folder in ("site-packages", "dist-packages"):
        if (interpreter.library / folder).is_dir():
            yield tmpfs(f"{target}/{folder}", "64k")
    for source, path in interpreter.files:
        yield bind(source, path, executable=True)


def usr() -> Iterator[Message]:
    """All of /usr, and what leads there."""
    yield bind(Path("/usr"), "/usr", executable=True)
    for top in ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"):
        if Path(top).is_symlink():
            yield symlink(top, str(Path(top).readlink()))
        elif Path(top).is_dir():
            yield bind(Path(top), top, executable=True)
    for file in ("/etc/ld.so.cache", "/etc/alternatives"):
        if Path(file).exists():
            yield bind(Path(file), file)


def system(host: "Host", hidden: Sequence[Path]) -> Iterator[Message]:
    """/usr without anything installed beside the system, then ripgrep and, where it is not the system's, Python."""
    yield from usr()
    for folder in masks(hidden):
        yield tmpfs(str(folder), "64k")
    yield bind(host.ripgrep, "/usr/local/bin/rg", executable=True)
    if Path("/usr/bin/rg").is_file():
        yield bind(host.ripgrep, "/usr/bin/rg", executable=True)
    for source, target in host.python_mounts:
        yield bind(source, target, executable=True)
        if (source / "site-packages").is_dir():
            yield tmpfs(f"{target}/site-packages", "64k")
    if host.python_mounts:
        yield symlink("/usr/local/bin/python3", host.python.name)


def _closed(programs: Programs) -> Iterator[Message]:
    """The files of these programs and nothing else of the system."""
    yield symlink("/bin", "usr/bin")
    for top in ("/lib", "/lib32", "/lib64", "/libx32"):
        if Path(top).is_symlink():
            yield symlink(top, str(Path(top).readlink()))
    if Path("/etc/ld.so.cache").exists():
        yield bind(Path("/etc/ld.so.cache"), "/etc/ld.so.cache")
    for source, target in programs.files:
        yield bind(source, target, executable=True)


def masks(hidden: Sequence[Path]) -> list[Path]:
    """Folders below /usr that agents see empty: packages of every interpreter, sources, and what `hidden` names."""
    usr = Path("/usr")
    folders = [usr / "local", usr / "src", usr / "share" / "doc"]
    for kind in ("dist-packages", "site-packages"):
        folders += usr.glob(f"lib*/python3*/{kind}")
    folders += [path.resolve() for path in hidden]
    found: list[Path] = []
    for folder in sorted({path for path in folders if path != usr and path.is_relative_to(usr) and path.is_dir()}):
        if not any(folder.is_relative_to(other) for other in found):
            found.append(folder)
    return found


def etc(uid: int) -> Iterator[Message]:
    """The files that programs ask for names of users and hosts."""
    yield content("/etc/passwd", f"agent:x:{uid}:{uid}::/scratch:/bin/bash\n")
    yield content("/etc/group", f"agent:x:{uid}:\n")
    yield content("/etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n")
    yield content("/etc/hosts", "127.0.0.1 localhost\n")
