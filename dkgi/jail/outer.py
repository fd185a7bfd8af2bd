"""The jail of a grid's worker: our own code, without labels, keys, results of other cells, or a network.

>>> jail = WorkerJail(read_only=(*python_folders(), seats.folder), writable=(cell.folder, own))
>>> with worker_process(jail, ["python3", "-m", "dkgi.worker.run"], Path("worker.log")) as process:
...     process.stdin.write(job)

Folders keep their paths. Python, its packages and dkgi are there to read, and what this cell needs; home, labels and
all else that a run writes are not. It runs as the user who started the grid, with no right beyond those to the user's
own files, and makes no namespaces, so that nothing is nested in it.
Not covered: commands of agents (server.py) and their programs (cli.py), which get jails beside this one.
"""

import contextlib
import math
import os
import signal
import site
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import dkgi
from dkgi import paths
from dkgi.files import open_to_append
from dkgi.jail.mounts import DEVICES, etc, processes, usr
from dkgi.jail.nsjail import Field, Message, Word, arguments, bind, complaints, text, tmpfs
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SYSTEM_CALLS, find_host, frame
from dkgi.process import Lifeline, kill_tree
from dkgi.types import SetupError

_MOST_LINKS = 40
"""As many as the kernel follows."""


@dataclass(frozen=True, slots=True)
class WorkerJail:
    """What a worker sees beside the system: folders and files to read, and folders to write, at their own paths."""

    read_only: tuple[Path, ...]
    writable: tuple[Path, ...]


class WorkerProcess:
    """A worker that runs. `told` is what nsjail itself had to complain of."""

    def __init__(self, process: "subprocess.Popen[bytes]", messages: int | None) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        self.process, self.stdin, self.stdout = process, process.stdin, process.stdout
        self._messages = messages

    @property
    def told(self) -> str:
        return complaints(self._messages) if self._messages is not None else ""

    def kill(self) -> None:
        """End it and all that it started."""
        if self.process.poll() is None:
            kill_tree(self.process.pid, signal.SIGKILL)
        self.process.wait()
        for pipe in (self.stdin, self.stdout):
            with contextlib.suppress(OSError):  # what was still to be written has no reader
                pipe.close()


@contextmanager
def worker_process(jail: WorkerJail | None, argv: Sequence[str], log: Path) -> Iterator[WorkerProcess]:
    """Run `argv`, spoken to by its standard input and output, in `jail`, or bare where that is None.

    Standard error is appended to `log`. Leaving kills all of it, and so does the end of this process, by any signal.
    """
    with contextlib.ExitStack() as stack:
        lifeline = stack.enter_context(Lifeline())
        words, messages, inherited = list(argv), None, tuple[int, ...]()
        if jail is not None:
            config, messages = os.memfd_create("config"), os.memfd_create("log")
            stack.callback(os.close, config)
            stack.callback(os.close, messages)
            os.write(config, _config(jail).encode())
            words = arguments(find_host().nsjail, Path(f"/proc/self/fd/{config}"), messages, argv)
            inherited = (config, messages)
        errors = stack.enter_context(open_to_append(log))
        process = subprocess.Popen(
            words,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={} if jail else dict(environment()),
            process_group=lifeline.group,
            pass_fds=inherited,
        )
        worker = WorkerProcess(process, messages)
        stack.callback(worker.kill)
        yield worker


def environment() -> tuple[tuple[str, str], ...]:
    """All of a worker's environment: no variable of the user's own gets in, since any of them may hold a key."""
    return (
        ("PATH", f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"),
        ("HOME", "/tmp"),
        ("LANG", "C.UTF-8"),
        ("DKGI_DATA", str(paths.cache_dir())),
        ("DKGI_RUNS", str(paths.runs_dir())),
        # Where packages are that no interpreter finds by itself: HOME is another one here.
        ("PYTHONPATH", os.pathsep.join(map(str, _import_path()))),
        ("PYTHONUSERBASE", site.getuserbase()),
        ("PYTHONDONTWRITEBYTECODE", "1"),
        ("PYTHONUNBUFFERED", "1"),
    )


def _import_path() -> list[Path]:
    """What was put before the interpreter's own folders: by the user, or by starting in a checkout."""
    named = [Path(part).absolute() for part in os.environ.get("PYTHONPATH", "").split(os.pathsep) if part]
    checkout = Path(dkgi.__file__).resolve().parents[1]
    return list(dict.fromkeys([*named, checkout] if (checkout / "pyproject.toml").is_file() else named))


def _config(jail: WorkerJail) -> str:
    fields: Message = [
        *frame("/tmp", environment(), math.inf, os.geteuid()),
        ("iface_no_lo", True),
        ("seccomp_string", SYSTEM_CALLS),
        *_limits(),
        *(("mount", mount) for mount in _mounts(jail)),
    ]
    return text(fields) + "\n"


def _limits() -> Iterator[Field]:
    for name in ("as", "cpu", "fsize", "nofile", "nproc", "stack", "memlock"):
        yield f"rlimit_{name}_type", Word("HARD")
    yield "rlimit_core", 0


def _mounts(jail: WorkerJail) -> Iterator[Message]:
    yield from usr()
    yield from etc(os.geteuid())
    for name in DEVICES:
        yield bind(Path("/dev", name), f"/dev/{name}", writable=True, device=True)
    yield from processes()
    yield tmpfs("/tmp", "256m", writable=True)
    binds = [bind(path, str(path), executable=True) for path in dict.fromkeys(jail.read_only)]
    binds += [bind(folder, str(folder), writable=True) for folder in jail.writable]
    yield from sorted(binds, key=lambda mount: str(dict(mount)["dst"]))  # a folder before what is mounted inside it


def python_folders() -> list[Path]:
    """Where this interpreter, its packages and dkgi lie, outside of /usr.

    A folder that holds private ones, such as a checkout with its results, is not shown as a whole: of dkgi there are
    its package and its data. Raises SetupError where Python itself lies so.
    """
    private = [path.resolve() for path in Hidden.default().private]

    def holds_private(folder: Path) -> bool:
        return any(path.is_relative_to(folder.resolve()) for path in private)

    prefixes = [Path(sys.base_prefix), Path(sys.prefix), Path(sys.executable).resolve().parents[1]]
    prefixes += [Path(found) for name in ("stdlib", "platstdlib") if (found := sysconfig.get_path(name))]
    for prefix in prefixes:
        if holds_private(prefix):
            raise SetupError(
                f"{prefix}, where Python is, holds results or labels: set DKGI_RUNS and DKGI_DATA to other folders"
            )
    # Not the folder that a command was given in, which Python's option -m puts first.
    searched = sys.path[1:] if sys.path[:1] == [str(Path.cwd())] else sys.path
    packages = [path for path in map(Path, filter(None, searched)) if path.is_dir() and not holds_private(path)]
    own = [Path(dkgi.__file__).resolve().parent, *(paths.data_dir(name) for name in ("conf", "prompts", "sandbox"))]
    checkout = own[0].parent
    folders = [folder for folder in (*prefixes, *packages) if folder.resolve() != checkout]
    shown = [path for path in dict.fromkeys((*folders, *own)) if path != Path("/usr") and path.is_dir()]
    links = [link for link in _links(Path(sys.executable)) if not any(link.is_relative_to(path) for path in shown)]
    return [*shown, *(link for link in links if not link.is_relative_to("/usr"))]


def _links(path: Path) -> Iterator[Path]:
    """The files that lead to what `path` is, one by one: an environment's Python is a link, and that may lead to another."""
    for _ in range(_MOST_LINKS):
        if not path.is_symlink():
            return
        path = Path(os.path.normpath(path.parent / path.readlink()))
        yield path
