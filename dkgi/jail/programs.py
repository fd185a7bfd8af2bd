"""The files of a closed set of programs: each program, its libraries, and nothing that could start another one.

>>> find_programs(["bash", "cat", "rg"], rg=Path("/venv/bin/rg")).files
((PosixPath('/usr/bin/bash'), '/usr/bin/bash'), (PosixPath('/usr/lib/x86_64-linux-gnu/libc.so.6'), ...), ...)

A jail that mounts these files and forbids programs on all that can be written starts these programs alone, by any
way of starting: a name, a path, `find -exec`, the dynamic loader.
Not covered: that it holds on this host (preflight.py), counted starts of Python (broker.py).
"""

import os
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dkgi.types import SetupError

PYTHON = "/usr/bin/python3"
_FOLDERS = ("/usr/bin", "/bin")
_MULTI_CALL = re.compile(r"busybox|toybox|(uutils-?)?coreutils|uu-coreutils|sbase-box|ubase-box")
_LIBRARY = re.compile(r"\s(/\S+) \(0x[0-9a-f]+\)$")
# Without its folder every bash of an older C library prints a warning into its output.
_LOCALE = Path("/usr/lib/locale/C.utf8")


@dataclass(frozen=True, slots=True)
class Interpreter:
    """Python for counted starts. `files` are its libraries, `library` its standard library, seen under /usr/lib."""

    path: Path
    library: Path
    files: tuple[tuple[Path, str], ...]


@dataclass(frozen=True, slots=True)
class Programs:
    """A closed set. `files` are (host path, jail path) of programs and libraries; `python` can be started `python_starts` times."""

    names: tuple[str, ...]
    files: tuple[tuple[Path, str], ...]
    python: Interpreter | None = None
    python_starts: int = 0

    @property
    def paths(self) -> set[str]:
        """Where the programs lie in the jail."""
        return {f"/usr/bin/{name}" for name in self.names}

    @property
    def counted(self) -> set[str]:
        """Where the stand-in for Python lies."""
        return {PYTHON} if self.python else set()

    @property
    def starting(self) -> set[str]:
        """Names that start something, Python's among them where it is counted."""
        return {*self.names, *(path.rpartition("/")[2] for path in self.counted)}


def find_programs(names: Sequence[str], rg: Path) -> Programs:
    """The programs `names` of this host, `rg` by the given path. Raises SetupError naming the one that cannot be had."""
    found = {name: rg if name == "rg" else _find(name) for name in names}
    if "bash" not in found:
        raise SetupError("tools.programs: bash is not among them, and every command is run by it; add it")
    by_file: dict[tuple[int, int], str] = {}
    for name, path in found.items():
        _check_single(name, path)
        status = path.stat()
        other = by_file.setdefault((status.st_dev, status.st_ino), name)
        if other != name:
            raise SetupError(_multi_call(name, path, f"it is {other} as well"))
    files = {f"/usr/bin/{name}": path for name, path in found.items()} | libraries(list(found.values()))
    if _LOCALE.is_dir():
        files[str(_LOCALE)] = _LOCALE
    return Programs(tuple(names), _sorted(files))


def find_interpreter(python: Path, programs: Programs) -> Interpreter:
    """Python's files beyond those of `programs`. Raises SetupError where its standard library is not beside it."""
    library = python.parents[1] / "lib" / python.name
    if not library.is_dir():
        raise SetupError(f"{python}: its standard library is not in {library}; install the system's Python 3")
    modules = sorted((library / "lib-dynload").glob("*.so"))
    known = {target for _, target in programs.files}
    needed = {target: path for target, path in libraries([python, *modules]).items() if target not in known}
    return Interpreter(python, library, _sorted(needed))


def libraries(files: Sequence[Path]) -> dict[str, Path]:
    """What the dynamic loader maps for `files`, by its path in a jail; nothing for a static program.

    Raises SetupError where a library is missing.
    """
    command = ["ldd", *map(str, files)]
    try:
        listed = subprocess.run(
            command, capture_output=True, text=True, timeout=60, env={"PATH": "/usr/bin:/bin", "LC_ALL": "C"}
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise SetupError(f"ldd cannot be run, which finds the libraries of programs: {error}") from None
    found = {}
    for line in listed.splitlines():
        if "not found" in line:
            raise SetupError(f"a library is missing: {line.strip()}; install it")
        if match := _LIBRARY.search(line):
            path = Path(match[1])
            # The name stays, since the loader looks for it; the folder is the one behind links such as /lib64.
            found[str(path.parent.resolve() / path.name)] = path.resolve()
    return found


def _find(name: str) -> Path:
    for folder in _FOLDERS:
        path = Path(folder, name)
        if re.fullmatch(r"[A-Za-z0-9_.+-]+", name) and path.is_file() and os.access(path, os.X_OK):
            return path.resolve()
    raise SetupError(
        f"tools.programs: there is no program {name} in {' or '.join(_FOLDERS)}; install it or take it out"
    )


def _check_single(name: str, path: Path) -> None:
    if path.name != name and _MULTI_CALL.fullmatch(path.name):
        raise SetupError(_multi_call(name, path, f"it is {path.name}"))
    with path.open("rb") as file:
        if file.read(4) != b"\x7fELF":
            raise SetupError(f"tools.programs: {path} is a script, which needs a further program; take {name} out")


def _multi_call(name: str, path: Path, why: str) -> str:
    return (
        f"tools.programs: {name} ({path}) is many programs in one, {why}, so more could be started than the policy "
        "names; install the single programs (GNU coreutils, findutils, sed)"
    )


def _sorted(files: dict[str, Path]) -> tuple[tuple[Path, str], ...]:
    def entries() -> Iterator[tuple[Path, str]]:
        for target in sorted(files):
            yield files[target], target

    return tuple(entries())
