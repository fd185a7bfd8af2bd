"""Write nsjail's configuration and command line.

>>> print(text([("cwd", "/graph"), ("mode", Word("ONCE")), ("mount", bind(Path("/usr"), "/usr"))]))
cwd: "/graph"
mode: ONCE
mount {
  src: "/usr"
  dst: "/usr"
  is_bind: true
  rw: false
  nosuid: true
  nodev: true
  noexec: true
}

Not covered: which mounts and limits make a safe jail (profile.py), running it (command.py).
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Union


class Word(str):
    """A name of nsjail's own, written without quotes."""


Field = tuple[str, Union[bool, int, str, Word, "Message"]]
Message = list[Field]


def text(fields: Sequence[Field], indent: str = "") -> str:
    """`fields` as protobuf text. Strings may hold any byte that a path may."""
    lines = []
    for name, value in fields:
        match value:
            case list():
                lines.append(f"{indent}{name} {{\n{text(value, indent + '  ')}\n{indent}}}")
            case bool():
                lines.append(f"{indent}{name}: {'true' if value else 'false'}")
            case int() | Word():
                lines.append(f"{indent}{name}: {value}")
            case str():
                lines.append(f"{indent}{name}: {_quoted(value)}")
    return "\n".join(lines)


def _quoted(value: str) -> str:
    characters = (
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}"
        for byte in os.fsencode(value)
    )
    return f'"{"".join(characters)}"'


def bind(
    source: Path, target: str, *, writable: bool = False, executable: bool = False, device: bool = False
) -> Message:
    """A file or folder of the host, seen at `target`. An absent `target` inside another bind would be made on the host."""
    return [
        ("src", str(source)),
        ("dst", target),
        ("is_bind", True),
        ("rw", writable),
        ("nosuid", True),
        ("nodev", not device),
        ("noexec", not executable),
    ]


def tmpfs(target: str, size: str, *, writable: bool = False) -> Message:
    """An empty folder in memory; with `writable=False` it hides what lies below it on the host."""
    return [
        ("dst", target),
        ("fstype", "tmpfs"),
        ("options", f"size={size},nr_inodes=16k,mode={'1777' if writable else '755'}"),
        ("rw", writable),
        ("nosuid", True),
        ("nodev", True),
        ("noexec", True),
    ]


def proc() -> Message:
    """The jail's own processes and nothing else of /proc: no kernel command line, no sysctl."""
    return [("dst", "/proc"), ("fstype", "proc"), ("options", "subset=pid"), ("rw", False)]


def symlink(target: str, to: str) -> Message:
    return [("src", to), ("dst", target), ("is_symlink", True)]


def content(target: str, data: str) -> Message:
    """A small read-only file."""
    return [("dst", target), ("src_content", data), ("rw", False)]


def variable(name: str, value: str) -> Field:
    """One environment variable. A field without "=" would copy the host's value, so there is no other way to set one."""
    if not name or "=" in name:
        raise ValueError(f"not a name of an environment variable: {name!r}")
    return ("envar", f"{name}={value}")


def complaints(log: int) -> str:
    """nsjail's own faults in its log file: with any of them, exit code 255 is its own and not the command's."""
    lines = os.pread(log, 65536, 0).decode(errors="replace").splitlines()
    return "; ".join(lines) if any(line.startswith(("[E]", "[F]")) for line in lines) else ""


def arguments(binary: Path, config: Path, log_fd: int, argv: Sequence[str]) -> list[str]:
    """The command line that runs `argv` in the jail of file `config`, with nsjail's own messages going to `log_fd`."""
    return [str(binary), "--log_fd", str(log_fd), "--config", str(config), "--", *argv]
