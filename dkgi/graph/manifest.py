"""The manifest of an export: what its files were when it was written. It lies beside the folder, out of agents' sight.

    graphs/hpo-4.0.0/                    what agents may see
    graphs/hpo-4.0.0.manifest.json       {"digest":"5e1f...","files":{"nodes/0000.jsonl":{"sha256":...}},"dropped":{...}}

>>> verify(cache_dir() / "graphs" / "hpo-4.0.0").digest
'5e1f...'

Not covered: whether the files make sense (check.py); damage that keeps size and time of a file, unless `full=True`.
"""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import orjson

from dkgi.files import sync_folder, write_atomically
from dkgi.types import SetupError


@dataclass(frozen=True, slots=True)
class FileRecord:
    sha256: str
    size: int
    mtime_ns: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """`digest` stands for the content of all files, whatever their times; `dropped` is the source's, see export.py."""

    digest: str
    files: Mapping[str, FileRecord]
    dropped: Mapping[str, int]


def of(folder: Path, dropped: Mapping[str, int]) -> Manifest:
    """Manifest of the files as they are now."""
    files = {name: record_of(folder / name) for name in file_names(folder)}
    lines = "".join(f"{record.sha256}  {name}\n" for name, record in files.items())
    return Manifest(hashlib.sha256(lines.encode()).hexdigest(), files, dropped)


def file_names(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir())


def record_of(path: Path) -> FileRecord:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
        status = os.fstat(file.fileno())
    return FileRecord(digest, status.st_size, status.st_mtime_ns)


def path_of(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}.manifest.json")


def exists(folder: Path) -> bool:
    """Whether a complete export was written at `folder`."""
    return path_of(folder).is_file()


def write(manifest: Manifest, folder: Path) -> None:
    content = orjson.dumps(asdict(manifest), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
    write_atomically(path_of(folder), content)
    path_of(folder).chmod(0o644)


def remove(folder: Path) -> None:
    path_of(folder).unlink(missing_ok=True)
    sync_folder(folder.parent)


def read(folder: Path) -> Manifest:
    """The manifest as written. SetupError if there is none, or none that can be read."""
    path = path_of(folder)
    try:
        content = orjson.loads(path.read_bytes())
        files = {name: FileRecord(**record) for name, record in content["files"].items()}
        return Manifest(content["digest"], files, content["dropped"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SetupError(f"no complete export at {folder} ({path}: {error}); {rebuild(folder)}") from error


def verify(folder: Path, *, full: bool = False) -> Manifest:
    """The manifest, after a look at every file's size and time; a file whose time differs, or all if `full`, is hashed.

    SetupError names the first file that is missing, changed or not of the export.
    """
    manifest = read(folder)
    for name in sorted({*manifest.files, *file_names(folder)}):
        if name not in manifest.files:
            raise SetupError(f"{folder / name} does not belong to the export; {rebuild(folder)}")
        if not unchanged(folder / name, manifest.files[name], full=full):
            raise SetupError(f"{folder / name} is missing or has changed since the export; {rebuild(folder)}")
    return manifest


def is_intact(folder: Path, digest: str) -> bool:
    """Whether the export with this digest lies at `folder`, every byte of it."""
    try:
        return verify(folder, full=True).digest == digest
    except SetupError:
        return False


def unchanged(path: Path, record: FileRecord, *, full: bool) -> bool:
    try:
        status = path.stat()
        if status.st_size != record.size:
            return False
        if status.st_mtime_ns == record.mtime_ns and not full:
            return True
        return record_of(path).sha256 == record.sha256
    except OSError:
        return False


def rebuild(folder: Path) -> str:
    return f"to build it anew: rm -f {path_of(folder)}, then run again"
