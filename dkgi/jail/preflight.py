"""Prove that the jail holds, or say in one line why not.

>>> probe(server, folder, graph_dir)          # once, at start-up
{'bash': '5.2.15(1)-release', 'ripgrep': '15.2.0', 'python': '3.11.2'}

`self_check` runs before the first model call of each attempt, in that attempt's own jail. It trusts what the script
printed, never an exit code, and takes a missing line for a failure.
Not covered: attacks on the kernel (sandbox/README.md).
"""

import filecmp
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from dkgi import paths
from dkgi.jail.command import KILLED, Jail
from dkgi.jail.diagnosis import Surroundings, cause
from dkgi.jail.programs import Programs
from dkgi.jail.witness import NAMESPACES, witness
from dkgi.types import Box, CommandResult, SandboxError, SetupError, Workspace

if TYPE_CHECKING:
    from dkgi.jail.server import CommandServer

_CHECK_S = 60.0
_LEAST_ROOM = 32 * 2**20
_LEAST_FILES = 100
_WRITABLE = ("/scratch", "/tmp", "/dev/shm", "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_TITLES = {"bash": "bash", "rg": "ripgrep", "python3": "python"}
# Programs that run what they are given; the ones of this host are tried by name, by path, by other programs.
_OTHERS = (
    *("python3", "python", "perl", "awk", "mawk", "gawk", "node", "sh", "dash", "zsh", "env", "ruby", "lua"),
    Path("/usr/bin/python3").resolve().name,
)
_NO_SOCKETS = "Address family not supported by protocol"


@dataclass(frozen=True, slots=True)
class Hidden:
    """Host folders that agents must not see.

    private   labels, queries, results: nothing inside them, and nothing that holds them, may be mounted
    other     the user's home, dkgi's own source: parts of them may be mounted, such as the graph
    words     names of the experiment: no path that a jail shows may hold one
    answers   those of `private` whose files nothing that is mounted may hold a copy of
    """

    private: tuple[Path, ...]
    other: tuple[Path, ...]
    words: tuple[str, ...] = ()
    answers: tuple[Path, ...] = ()

    @classmethod
    def default(cls, words: Sequence[str] = ()) -> "Hidden":
        cache = paths.cache_dir()
        answers = (cache / "labels", cache / "queries")
        other = (Path.home(), Path(__file__).resolve().parents[2])
        return cls((*answers, paths.runs_dir()), other, tuple(words), answers)

    @property
    def paths(self) -> tuple[Path, ...]:
        """All folders, by the names that they were given and by their real ones."""
        named = [path for path in self.private + self.other if path != Path("/")]
        return tuple(dict.fromkeys(form for path in named for form in (path, path.resolve())))


def check_sources(box: Box, hidden: Hidden) -> None:
    """Raise SetupError when a mount of `box` would show a hidden folder."""
    folders = [(folder, folder.resolve(), folder in hidden.private) for folder in hidden.paths]
    for source, target in (*box.read_only, *box.writable):
        real = source.resolve()
        for folder, hidden_at, private in folders:
            if hidden_at.is_relative_to(real) or (private and real.is_relative_to(hidden_at)):
                raise SetupError(f"{source}, which agents see at {target}, and {folder} overlap: move one of them")


def check_disk(folder: Path, programs: Programs | None) -> None:
    """Raise SetupError where attempts cannot work in `folder`: its disk is full, or forbids programs that they need."""
    disk = os.statvfs(folder)
    if disk.f_bavail * disk.f_frsize < _LEAST_ROOM or (disk.f_files and disk.f_favail < _LEAST_FILES):
        raise SetupError(f"{folder}: the disk is full; make room, or set DKGI_DATA to a folder on another one")
    # Agents run what they wrote; where they may not, the stand-in for Python still has to start.
    if disk.f_flag & os.ST_NOEXEC and (programs is None or programs.python):
        raise SetupError(
            f"{folder}: its disk is mounted noexec, and a jail there could start no program; set DKGI_DATA to a folder on "
            "another one, or remount it with exec"
        )


def scan(folder: Path, hidden: Hidden) -> None:
    """Raise SetupError when `folder`, which agents will see, holds a label or query file: the file itself or a copy."""
    private = [path for top in hidden.answers if top.is_dir() for path in sorted(top.rglob("*")) if path.is_file()]
    by_size: dict[int, list[Path]] = {}
    for path in private:
        by_size.setdefault(path.stat().st_size, []).append(path)
    for file in sorted(folder.rglob("*")):
        status = file.lstat()
        if stat.S_ISLNK(status.st_mode):
            raise SetupError(f"{file} is a link, and agents would see where it leads: remove it")
        for other in by_size.get(status.st_size, []) if stat.S_ISREG(status.st_mode) and status.st_size else []:
            if filecmp.cmp(file, other, shallow=False):
                raise SetupError(f"agents would see {file}, which holds what is in {other}: remove it")


def self_check(jail: Jail, hidden: Hidden, folder: Path) -> None:
    """Raise SandboxError unless `jail` holds. The check's own output goes to `folder`, which agents do not see."""
    word = secrets.token_hex(8)
    outside: AbstractContextManager[list[str]] = nullcontext([]) if jail.box.proc else witness(word)
    with outside as seen:
        printed, result = _printed(jail, "self_check.sh", [word, *map(str, hidden.paths)], folder)
    if "uid " not in printed:
        raise SandboxError(cause(result.error, printed, Surroundings.read()))
    if found := list(problems([*seen, *printed.splitlines()], jail, hidden)):
        raise SandboxError("; ".join(found))


def check_programs(jail: Jail, programs: Programs, folder: Path) -> None:
    """Raise SandboxError unless the programs of a closed set start and no other one does, whichever way it is started."""
    others = sorted({_at(name) for name in _OTHERS if name not in programs.names} - programs.counted)
    printed, result = _printed(jail, "programs_check.sh", [*sorted(programs.paths), "--", *others], folder)
    if found := list(program_problems(printed.splitlines(), programs)):
        raise SandboxError("; ".join([*found, result.error] if result.error else found))


def program_problems(lines: Sequence[str], programs: Programs) -> Iterator[str]:
    """What is wrong where the check of `programs` printed `lines`."""
    found = [line.partition(" ")[::2] for line in lines]
    starting = {value for name, value in found if name == "starts"}
    if missing := programs.paths - starting:
        yield f"{min(missing)} does not start"
    known = programs.paths | programs.counted | {target for _, target in programs.files}
    if extra := {value for name, value in found if name == "program"} - known:
        yield f"{min(extra)} is a program beyond those of the policy"
    if started := {value for name, value in found if name == "started"}:
        yield f"{min(started)} could be started"
    if ("done", "") not in found:
        yield "the check of the programs did not finish"


def check_count(jail: Jail, starts: int, folder: Path) -> None:
    """Raise SandboxError unless Python starts `starts` times and no more, by what it prints and by the host's count."""
    printed, result = _printed(jail, "count_check.sh", [str(starts)], folder)
    if errors := {start.error for start in result.python if start.error}:
        raise SandboxError(f"Python cannot be started: {cause(min(errors), '', Surroundings.read())}")
    if printed.split() != [*["ran"] * starts, "code", "126", "code", "126", "done"]:
        raise SandboxError(f"starts of Python are not held to {starts}: {printed.strip() or result.error}")
    if (len(result.python), result.python_refused) != (starts, 2):
        raise SandboxError(f"{starts} starts of Python were counted as {len(result.python)}")


def _printed(jail: Jail, name: str, arguments: Iterable[str], folder: Path) -> tuple[str, CommandResult]:
    """What a script of ours printed in `jail`, and how it ended."""
    output = folder / f"{secrets.token_hex(4)}.check"
    script = (paths.data_dir("sandbox") / name).read_text(encoding="utf-8")
    try:
        result = jail.run(["/bin/bash", "-c", script, "check", *arguments], output, timeout_s=_CHECK_S)
        if result.error == KILLED:
            raise SandboxError(KILLED)
        return output.read_text(encoding="utf-8", errors="replace"), result
    except OSError as error:
        raise SandboxError(str(error)) from None
    finally:
        output.unlink(missing_ok=True)


def _at(name: str) -> str:
    return f"/usr/bin/{name}"


def problems(lines: Sequence[str], jail: Jail, hidden: Hidden) -> Iterator[str]:
    """What is wrong with a jail whose self-check printed `lines`."""
    found: dict[str, list[str]] = {}
    for line in lines:
        name, _, value = line.partition(" ")
        found.setdefault(name, []).append(value)

    def expect(name: str, *values: str) -> bool:
        return found.get(name, []) == list(values)

    if not expect("uid", f"{jail.uid} {jail.uid}") or jail.uid == 0:
        yield f"commands run as user {found.get('uid')}"
    nothing = "0" * 16
    if not expect("status", f"CapEff: {nothing}", f"CapBnd: {nothing}", "NoNewPrivs: 1", "Seccomp: 2"):
        yield f"commands keep rights: {found.get('status')}"
    shared = {os.readlink(f"/proc/self/ns/{name}") for name in NAMESPACES} & set(found.get("namespace", []))  # noqa: PTH115
    if shared or len(found.get("namespace", [])) != len(NAMESPACES):
        yield f"commands share namespaces of the host: {shared or 'unknown'}"
    if not expect("tcp", _NO_SOCKETS):
        yield f"connecting to a port ends with {found.get('tcp')}"
    if found.get("unreadable") or not expect("graph_readable", ""):
        file = found.get("unreadable", ["files"])[0]
        yield f"the graph's {file} cannot be read by user {jail.uid}: run chmod -R a+rX on its folder"
    if not expect("graph_read_only", "") or not expect("outputs_read_only", ""):
        yield "the graph or the complete outputs can be written"
    if not expect("writable", "/scratch", "/tmp"):
        yield "/scratch or /tmp cannot be written: make room, or set DKGI_DATA to a folder on another disk"
    if visible := found.get("visible"):
        yield f"{visible[0]} can be seen"
    yield from _mount_problems(found.get("mount", []), hidden)
    if not expect("done", ""):
        yield "the self-check did not finish"


def _mount_problems(mounts: Sequence[str], hidden: Hidden) -> Iterator[str]:
    if not any(line.split()[4] == "/graph" for line in mounts):
        yield "the graph is not mounted"
    for line in mounts:
        root, target, options = line.split()[3:6]
        if target not in _WRITABLE and "ro" not in options.split(","):
            yield f"{target} is mounted writable"
        for word in hidden.words:
            if re.search(rf"(?<![a-z0-9]){re.escape(word.lower())}(?![a-z0-9])", root.lower()):
                yield f"agents can read {root}, a path that holds the name {word}: use one without it"


def probe(server: "CommandServer", workspace: Workspace) -> dict[str, str]:
    """Start one real jail and run the programs that agents get; their versions belong into a run's manifest.

    Raises SetupError with the likely cause and the remedy.
    """
    script = (paths.data_dir("sandbox") / "versions.sh").read_text(encoding="utf-8")
    known = {
        name: title for name, title in _TITLES.items() if server.programs is None or name in server.programs.starting
    }
    try:
        with server.attempt(workspace, Path(os.devnull)) as commands:
            result = commands.run(["/bin/bash", "-c", script, "versions", *known], timeout_s=_CHECK_S)
            printed = result.output.read_text(encoding="utf-8", errors="replace")
    except SandboxError as error:
        raise SetupError(f"sandbox: {error}") from None
    versions = dict(line.split(" ", 1) for line in printed.splitlines() if " " in line)
    for title in known.values():
        if not re.match(r"\d+\.", versions.get(title, "")):
            raise SetupError(f"sandbox: {title} does not start in the jail: {result.error or printed.strip()}")
    if versions.pop("packages", "0") != "0" and server.sandboxed:
        raise SetupError("sandbox: the agents' Python has packages beside the standard library")
    return versions
