"""Where Codex lies on this machine, and the catalog that tells it how to drive a model.

>>> program = find_codex("0.156.1")
>>> program.binary
PosixPath('.../site-packages/codex_cli_bin/bin/codex')
>>> program.entry("my-model", like="gpt-6-luna")["slug"]
'my-model'

Codex drives a model that its catalog does not have in another way: other instructions, other tools, other bounds of what
a tool's output shows. So every other model gets the entry of one that it has.
Not covered: the command line (codex_command.py).
"""

import functools
import importlib.util
import json
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dkgi.paths import cache_dir, data_dir
from dkgi.types import SetupError

LAYOUT = "codex-package.json"
_ASK_S = 60.0
_lock = threading.Lock()


@dataclass(frozen=True, slots=True)
class Program:
    """A release of Codex: its whole folder, since the binary looks for its neighbours."""

    folder: Path
    version: str

    @property
    def binary(self) -> Path:
        return self.folder / "bin" / "codex"

    def catalog(self) -> Mapping[str, Mapping[str, Any]]:
        """The models that it knows, by name. Raises SetupError where it does not run on this machine."""
        with _lock:
            return _catalog(self.binary)

    def entry(self, model: str, *, like: str) -> dict[str, Any]:
        """The catalog's entry for `model`, or that of `like` under its name."""
        known = self.catalog()
        return {**known.get(model, known[like]), "slug": model}


def find_codex(version: str) -> Program:
    """Look in the Python environment, then in `tools` under DKGI_DATA. Raises SetupError with the way to install it."""
    seen = []
    for folder in _folders(version):
        try:
            found = json.loads((folder / LAYOUT).read_text(encoding="utf-8"))["version"]
        except (OSError, ValueError, KeyError):
            continue
        if found == version:
            return Program(folder, version)
        seen.append(found)
    there = f"this is {seen[0]}" if seen else "it is not installed"
    known = sorted(path.name for path in (data_dir("sandbox") / "codex").iterdir())
    if version not in known:
        raise SetupError(f"harness.version: Codex {version} is needed and {there}; use {' or '.join(known)}")
    raise SetupError(
        f"harness.version: Codex {version} is needed and {there}; pip install openai-codex-cli-bin=={version}, or "
        f"python -m dkgi.nodetools codex@{version}, or use harness=native"
    )


def _folders(version: str) -> Iterator[Path]:
    package = importlib.util.find_spec("codex_cli_bin")
    if package and package.origin:
        yield Path(package.origin).parent
    yield from sorted(_tools(version).glob("node_modules/@openai/codex-linux-*/vendor/*"))


def _tools(version: str) -> Path:
    return cache_dir() / "tools" / f"codex-{version}"


@functools.cache
def _catalog(binary: Path) -> Mapping[str, Mapping[str, Any]]:
    with tempfile.TemporaryDirectory() as home:
        env = {"PATH": "/usr/bin:/bin", "HOME": home, "CODEX_HOME": home}
        try:
            done = subprocess.run(
                [binary, "debug", "models", "--bundled"],
                capture_output=True,
                timeout=_ASK_S,
                check=True,
                env=env,
                stdin=subprocess.DEVNULL,
            )
            models = json.loads(done.stdout)["models"]
        except (OSError, subprocess.SubprocessError, ValueError, KeyError) as error:
            raise SetupError(f"harness=codex: {binary} does not run here: {error}; use harness=native") from None
    return {model["slug"]: model for model in models}
