"""Where dkgi finds its own files and where it keeps data.

>>> data_dir("conf").is_dir()
True

Not covered: creating any of these folders; whoever writes there does that.
"""

import os
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent
_frozen: list[Path] = []


def data_dir(name: str) -> Path:
    """Folder `conf`, `prompts` or `sandbox`: inside an installed wheel, else beside the package in a checkout."""
    for folder in (*(frozen / name for frozen in _frozen), _PACKAGE / "_data" / name, _PACKAGE.parent / name):
        if folder.is_dir():
            return folder
    raise FileNotFoundError(f"dkgi is not installed completely: no folder {name}")


def freeze(folder: Path) -> None:
    """From now on this process reads conf/ and prompts/ in `folder`, which also holds what was in `DKGI_CONF`."""
    _frozen[:] = [folder]


def runs_dir() -> Path:
    """Everything a run writes: `DKGI_RUNS`, else `mlruns` beside the package in a checkout, else in the current folder."""
    if named := os.environ.get("DKGI_RUNS"):
        return Path(named).expanduser().absolute()
    checkout = _PACKAGE.parent
    return (checkout if (checkout / "pyproject.toml").is_file() else Path.cwd()) / "mlruns"


def user_folders() -> list[Path]:
    """Folders of `DKGI_CONF`, separated like those of PATH: options and prompts that come before the shipped ones."""
    if _frozen:
        return []
    return [Path(part).expanduser().absolute() for part in os.environ.get("DKGI_CONF", "").split(os.pathsep) if part]


def cache_dir() -> Path:
    """Graphs, queries, labels and the scratch of running attempts: `DKGI_DATA`, else `~/.cache/dkgi`."""
    return Path(os.environ.get("DKGI_DATA") or "~/.cache/dkgi").expanduser().absolute()
