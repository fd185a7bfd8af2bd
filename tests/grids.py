"""Grids as tests start them, kill them and look at what they left.

>>> grids = Grids(data, tmp_path)
>>> process = grids.start("tools=full_dkgi,no_edges", model="scripted")
>>> end(process)

Not covered: what is right (the tests).
"""

import collections
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from dkgi.store import cells
from dkgi.types import QueryResult
from tests.logged import logged_runs
from tests.loopback import Loopback

KEY = "not-a-real-key-0123456789"
Key = tuple[str, int, int]


@dataclass(frozen=True)
class Grids:
    """Commands `python -m dkgi -m` on one data folder, one runs folder and the user's own options in `folder`/conf."""

    data: Path
    folder: Path
    name: str = "runs"

    @property
    def runs(self) -> Path:
        return self.folder / self.name

    def scripted(self, name: str, attempts: list[list[dict[str, Any]]]) -> None:
        """Let `model=<name>` say these replies, a list an attempt."""
        options = self.folder / "conf" / "model"
        options.mkdir(parents=True, exist_ok=True)
        replies = self.folder / f"{name}.json"
        replies.write_text(json.dumps({"*": attempts}))
        (options / f"{name}.yaml").write_text(f"kind: scripted\nname: {name}\nreplies: {replies}\nprices: null\n")

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        folders = {"DKGI_DATA": str(self.data), "DKGI_RUNS": str(self.runs), "DKGI_CONF": str(self.folder / "conf")}
        return subprocess.Popen(
            [sys.executable, "-m", "dkgi", "-m", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **folders, "TEST_KEY": KEY},
        )

    def results(self) -> dict[Key, QueryResult]:
        """All finished queries of all cells."""
        return {
            (cell.id, result.number, result.repeat): result for cell in cells(self.runs) for result in cell.results()
        }

    def logged(self) -> collections.Counter[tuple[str, str]]:
        """How many runs MLflow has, by kind and status."""
        names = ("dkgi.kind", "dkgi.cell", "dkgi.query", "dkgi.repeat")
        runs = [
            (tuple(run.data.tags.get(name, "") for name in names), run.info.status) for run in logged_runs(self.runs)
        ]
        doubled = [key for key, times in collections.Counter(tags for tags, _ in runs).items() if times > 1]
        assert doubled == []
        return collections.Counter((tags[0], status) for tags, status in runs)

    def left(self) -> list[str]:
        """Processes, mounts, sockets and folders that only a running grid may have."""
        return [*self.processes(), *self._mounts(), *self._sockets(), *map(str, (self.data / "w").iterdir())]

    def processes(self) -> list[str]:
        """What runs for a grid of these folders: by its environment, its command, or what is mounted for it."""
        found, own = [], Path("/proc/self/ns/mnt").readlink()
        for process in Path("/proc").glob("[0-9]*"):
            if int(process.name) == os.getpid():
                continue
            try:
                command = (process / "cmdline").read_bytes()
                texts = [command, (process / "environ").read_bytes()]
                if (process / "ns/mnt").readlink() != own:
                    texts.append((process / "mountinfo").read_bytes())
            except OSError:  # it has ended
                continue
            if any(bytes(place) in text for place in (self.data / "w", self.runs) for text in texts):
                found.append(f"{process.name} {command!r}")
        return found

    def _mounts(self) -> list[str]:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
        return [line for line in lines if str(self.data / "w") in line or str(self.runs) in line]

    def _sockets(self) -> list[str]:
        lines = Path("/proc/net/unix").read_text().splitlines()
        return [line for line in lines if str(self.data / "w") in line]


def local(server: Loopback) -> list[str]:
    """A priced model behind a provider: a dollar for a million tokens of any kind."""
    prices = "model.prices={input: 1, cached_input: 1, cache_write: 1, output: 1}"
    address = [f"model.base_url={server.url}", "model.key_variable=TEST_KEY"]
    return ["model=local", *address, "model.max_output_tokens=200", prices]


def end(process: subprocess.Popen[str], *, code: int = 0) -> tuple[str, str]:
    """What a grid said, once it has ended so."""
    stdout, stderr = process.communicate(timeout=240)
    assert process.returncode == code, stderr
    return stdout, stderr


def wait_for(condition: Callable[[], Any], seconds: float = 60) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "nothing came"
        time.sleep(0.02)
    return found


def workers(parent: int) -> list[psutil.Process]:
    """The workers of a grid, as the host sees them."""
    return [one for one in _below(parent) if "dkgi.worker.run" in _command(one) and one.name() != "nsjail"]


def jails_of_workers(parent: int) -> list[psutil.Process]:
    return [jail for worker in workers(parent) for jail in worker.parents() if jail.name() == "nsjail"]


def jails_of_commands(parent: int) -> list[psutil.Process]:
    """The nsjail of each command that runs now, once places are proved to hold and cells have begun."""
    found = [one for one in _below(parent) if one.name() == "nsjail"]
    of_workers = jails_of_workers(parent)
    return [jail for jail in found if jail not in of_workers] if of_workers else []


def _below(parent: int) -> list[psutil.Process]:
    try:
        return psutil.Process(parent).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _command(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
