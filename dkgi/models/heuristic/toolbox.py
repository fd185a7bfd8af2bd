"""What an agent may write its programs in, as it learns from the prompt and from DATA_FORMAT.txt.

>>> toolbox("Search with shell tools, with rg, or with Python 3 programs."), is_single("Python can be started only once.")
(PYTHON, True)

Where nobody says that there is Python, there is bash.
Not covered: the programs themselves (programs.py, shell.py, single.py).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from dkgi.models.heuristic import programs, shell

Quoted = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Command lines, and how to read what the first one prints; shell.py and programs.py say what each does."""

    link: Callable[[str, Quoted, Sequence[str]], str]
    names: Callable[[str, Quoted, str], str]
    evaluate: Callable[[Iterable[tuple[str, Sequence[str]]]], str]
    search: Callable[[str, Iterable[int], Sequence[str]], str]
    check: Callable[[Sequence[int]], str]


PYTHON = Toolbox(programs.link, programs.names, programs.evaluate, programs.search, programs.check)
BASH = Toolbox(shell.link, shell.names, shell.evaluate, shell.search, shell.check)


def toolbox(said: str) -> Toolbox:
    """The programs to write where `said` is all that was said of the tools."""
    return PYTHON if re.search(r"\bpython", said, re.IGNORECASE) else BASH


def is_single(said: str) -> bool:
    """Whether Python can be started once only."""
    return bool(re.search(r"\bpython[^.:]*\bonce\b", said, re.IGNORECASE))
