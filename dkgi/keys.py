"""API keys never enter a configuration: refuse what looks like one before anything can write it down.

>>> looks_like_key("sk-ant-REDACTED")
True

Not covered: keys of other makers, which look like anything; no group of the configuration has a field for one.
"""

import re
from collections.abc import Sequence

from dkgi.types import SetupError

_KEY = re.compile(r"\b(sk-[A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,})")


def looks_like_key(value: object) -> bool:
    """Whether the text of a value holds something in the form of a well-known maker's key."""
    return _KEY.search(str(value)) is not None


def refuse_keys(arguments: Sequence[str]) -> None:
    """Raise SetupError where a command-line argument holds a key. The message names it without its value."""
    for argument in arguments:
        if looks_like_key(argument):
            name, equals, _ = argument.partition("=")
            where = name if equals and not looks_like_key(name) else "an argument"
            raise SetupError(f"{where}: this looks like an API key; keep keys in environment variables")
