"""The reader of labels, apart from all that runs agents: only collect.py and the analysis import it.

>>> read_gold("hpo", "val", cache_dir())[12]                     # doctest: +SKIP
frozenset({1893})

Not covered: writing labels (dataset.py).
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from dkgi.files import read_json
from dkgi.types import SetupError


def read_gold(name: str, split: str, data: Path) -> dict[int, frozenset[int]]:
    """Query number -> gold node IDs of a data set under `data`. Raises SetupError as `read_labels` does."""
    return {number: frozenset(labels["gold"]) for number, labels in read_labels(name, split, data).items()}


def read_labels(name: str, split: str, data: Path) -> dict[int, Mapping[str, Any]]:
    """Query number -> gold, regime, template and what else is known of the query.

    Raises SetupError where the labels cannot be read or are not those that were made with the queries.
    """
    path = data / "labels" / name / f"{split}.jsonl"
    queries = data / "queries" / name
    again = f"to make queries and labels again, remove {queries}"
    expected = read_json(queries / "manifest.json")["labels"].get(split)
    try:
        rows = [orjson.loads(line) for line in path.read_bytes().splitlines()]
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}; make it readable, or {again}") from None
    except ValueError:
        raise SetupError(f"{path}: damaged; {again}") from None
    for row in rows:
        row.pop("canary", None)
    content = b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)
    if hashlib.sha256(content).hexdigest() != expected:
        raise SetupError(f"{path}: not the labels that were made with the queries; {again}")
    return {row["number"]: row for row in rows}


def read_canary(name: str, data: Path) -> str:
    """The string that stands in every file of the labels: whoever shows it has read them."""
    path = data / "labels" / name / "canary"
    try:
        canary = path.read_text(encoding="ascii")
    except (OSError, ValueError) as error:
        raise SetupError(f"{path}: {error}; to make labels again, remove {data / 'queries' / name}") from None
    if not canary.startswith("canary-"):
        raise SetupError(f"{path}: damaged; to make labels again, remove {data / 'queries' / name}")
    return canary
