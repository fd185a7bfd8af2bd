"""What an agent may write its programs in, as it learns from the prompt and from DATA_FORMAT.txt.

>>> toolbox("Search with shell tools, with rg, or with Python 3 programs.").at_once
False
>>> toolbox("Python can be started only once while you work on this question.").at_once
True

Where nobody says that there is Python, there is bash. The one start of Python goes to the program that joins the edge
files, since rg finds names as well.
Not covered: the programs themselves (programs.py, shell.py).
"""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from dkgi.models.heuristic import programs, shell

Quoted = Sequence[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Toolbox:
    """Command lines, and how to read what the first one prints; programs.py and shell.py say what each does.

    `at_once`: there is one command that evaluates, so it must hold everything that could be asked after it.
    """

    link: Callable[[str, Quoted, Sequence[str]], str]
    names: Callable[[str, Quoted, str], str]
    evaluate: Callable[[Iterable[tuple[str, Sequence[str]]]], str]
    search: Callable[[str, Iterable[int], Sequence[str]], str]
    check: Callable[[Sequence[int]], str]
    at_once: bool = False


PYTHON = Toolbox(programs.link, programs.names, programs.evaluate, programs.search, programs.check)
BASH = Toolbox(shell.link, shell.names, shell.evaluate, shell.search, shell.check)
ONE_START = replace(BASH, evaluate=programs.evaluate, at_once=True)


def toolbox(said: str) -> Toolbox:
    """The programs to write where `said` is all that was said of the tools."""
    if re.search(r"\bpython[^.:]*\bonce\b", said, re.IGNORECASE):
        return ONE_START
    return PYTHON if re.search(r"\bpython", said, re.IGNORECASE) else BASH
