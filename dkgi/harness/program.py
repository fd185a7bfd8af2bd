"""What harnesses with an external program share: its folder, and how its session decides about an attempt.

>>> with program_folder(task.workspace) as folder:
...     ...
>>> ended(session, late=False)
Ending(stop='turn_limit', answer='', error='')

Not covered: what a program makes of its own end (pi.py, codex.py); its jail (jail/cli.py).
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from dkgi.harness.native import ERROR_STOPS
from dkgi.jail.scratch import remove_tree
from dkgi.types import ModelError, Session, Stop, Workspace

LOOK_S = 0.25
"""How often a program that runs is looked at."""
TOLD = 2000
"""Characters of what a program says of its failure that are kept."""


@dataclass(frozen=True, slots=True)
class Ending:
    stop: Stop
    answer: str = ""
    error: str = ""


@contextmanager
def program_folder(workspace: Workspace) -> Iterator[Path]:
    """Beside the attempt's own folders, and gone with what the program kept there when it has ended."""
    folder = workspace.scratch_dir.parent / "cli"
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        remove_tree(folder)


def ended(session: Session, *, late: bool) -> Ending | None:
    """How its session ended an attempt; None where that is the program's to say. What ended a request counts before what
    the program made of it. Raises the fault where no query can be answered."""
    fault, last = session.fault, session.last
    if fault is not None and not isinstance(fault, ModelError):
        raise fault
    told = f"{fault.kind}: {fault}" if fault else ""
    if late:
        return Ending("time_limit", last.text if last else "", told)
    if fault is not None:
        return Ending(ERROR_STOPS.get(fault.kind, "model_error"), error=told)
    if session.over_turns:
        return Ending("turn_limit")
    if last is not None and last.stop == "refused":
        return Ending("refused", last.text)
    return None


def told_by(stderr: Path) -> str:
    """The end of what a program said on standard error."""
    return stderr.read_bytes()[-TOLD:].decode(errors="replace").strip()
