"""What tells the cells of a comparison from each other.

>>> label_cells([{"tools": "full_dkgi"}, {"tools": "no_edges"}], [{}, {}], ["1fc2ae772239", "84f7d0c2e551"])
['full_dkgi', 'no_edges']

Not covered: names in MLflow (tracking/fields.py), which do not depend on what else there is.
"""

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_SETTINGS = 3


def label_cells(
    axes: Sequence[Mapping[str, str]], configs: Sequence[Mapping[str, Any]], ids: Sequence[str]
) -> list[str]:
    """The names of what is not the same in all: axes, then settings; the id where these do not tell cells apart."""
    found = [" · ".join(filter(None, each.values())) for each in _differing(axes)]
    for label in set(found):
        same = [place for place, each in enumerate(found) if each == label]
        settings = _differing([_leaves(configs[place]) for place in same])
        # More of them would be a line that nobody reads.
        if len(settings[0]) <= _MOST_SETTINGS:
            for place, each in zip(same, settings, strict=True):
                found[place] = " · ".join(filter(None, [label, *(f"{key}={value}" for key, value in each.items())]))
    return [
        label if label and found.count(label) == 1 else f"{label} {cell}".strip()
        for label, cell in zip(found, ids, strict=True)
    ]


def _differing(settings: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Of each the entries that are not the same in all."""
    keys = [
        key
        for key in dict.fromkeys(key for each in settings for key in each)
        if len({each.get(key) for each in settings}) > 1
    ]
    return [{key: each[key] for key in keys if key in each} for each in settings]


def _leaves(config: Mapping[str, Any], path: str = "") -> dict[str, str]:
    """`{"limits.wall_s": "1800.0", ...}`"""
    found: dict[str, str] = {}
    for key, value in config.items():
        found |= _leaves(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": str(value)}
    return found
