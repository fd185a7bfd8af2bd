"""API keys come from the environment alone; what looks like one elsewhere is refused before anything writes it down.

>>> looks_like_key("sk-ant-REDACTED")
True

Not covered: keys of other makers, which look like anything; no group of the configuration has a field for one.
"""

import os
import re
from collections.abc import Sequence

from dkgi.types import SetupError

_KEY = re.compile(r"\b(sk-[A-Za-z0-9_-]{8,}|AIza[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,})")


LEAST_SECRET = 8
"""Characters of a key that is a secret; shorter ones are placeholders for servers that want any, such as EMPTY."""
_PRINTABLE = re.compile(r"[!-~]+")


def read_key(variable: str) -> str | None:
    """The key in an environment variable; None where there is none.

    Raises SetupError where it cannot go into a request: what libraries say of such a header would show it.
    """
    key = os.environ.get(variable, "").strip()
    if key and not _PRINTABLE.fullmatch(key):
        raise SetupError(
            f"{variable}: a key has letters, digits and signs alone; this one holds a space or another character"
        )
    return key or None


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


ADDRESS_RULE = "must be an address such as http://127.0.0.1:8000/v1, without user or password"
"""What to tell where a configuration has another one; the value itself may hold a password."""


def is_address(text: str) -> bool:
    """Whether `text` is an address of a server that can be written down: nothing of it opens anything."""
    return bool(re.fullmatch(r"https?://[^/@\s?#]+(/[^@\s?#]*)?", text))
