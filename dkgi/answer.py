"""The strict reading of an agent's final message (paper, section 6).

>>> parse_answer('{"node_ids": [17, "x", 17]}', key="node_ids").entries
(17, 'x', 17)

Not covered: what an entry is worth (metrics.py); any entry that is JSON keeps its place in the list.
"""

import json
from typing import Any

from dkgi.types import Answer, AnswerError

MAX_ENTRIES = 100


def parse_answer(text: str, *, key: str) -> Answer:
    """The answer in a message that is a JSON object whose only key is `key`, holding at most 100 entries.

    Raises AnswerError for everything else, surrounding prose and code fences included.
    """
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        raise AnswerError(f"the final message is not a JSON object: {error}") from None
    if not isinstance(value, dict) or set(value) != {key}:
        raise AnswerError(f"the final message must be a JSON object whose only key is {key}")
    entries = value[key]
    if not isinstance(entries, list):
        raise AnswerError(f"{key} must hold a list")
    if len(entries) > MAX_ENTRIES:
        raise AnswerError(f"{key} holds {len(entries)} entries, more than {MAX_ENTRIES}")
    return Answer(tuple(entries))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("a key occurs twice")
    return value


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")
