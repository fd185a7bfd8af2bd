"""What a harness cannot hold, as its YAML lists it, and the line that tells a user so.

>>> rule = Cannot(key="tools.programs", why="its JavaScript tool is a language", values=None)
>>> faults("codex", [rule], {"tools": {"name": "mine", "programs": ["rg", "cat"]}})
['tools=mine: harness=codex cannot hold it: its JavaScript tool is a language']

Not covered: what else of a configuration does not fit together (config.py).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class Cannot:
    """The harness does not work where the configuration has one of `values` at `key`; None: any value that is not null."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    key: str
    why: str
    values: tuple[str, ...] | None = None


def faults(harness: str, rules: Sequence[Cannot], config: Mapping[str, Any]) -> list[str]:
    """A line for each rule that `config`, or the part of it that is given, breaks."""
    broken = [rule for rule in rules if _has(rule, config)]
    return [f"{_option(rule.key, config)}: harness={harness} cannot hold it: {rule.why}" for rule in broken]


def _option(key: str, config: Mapping[str, Any]) -> str:
    """What the user chose, as on the command line; a sandbox has its kind for a name."""
    group = key.split(".")[0]
    return f"{group}={config[group].get('name') or config[group]['kind']}"


def _has(rule: Cannot, config: Mapping[str, Any]) -> bool:
    value: Any = config
    for name in rule.key.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value is not None if rule.values is None else value in rule.values
