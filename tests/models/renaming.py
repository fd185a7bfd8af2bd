"""A copy of an export in which every name that its builder chose is an opaque token.

    {"node_id":4,"node_type":"t1","is_candidate":true,"attributes":{"k2":"The Long Boat","k0":[{"k3":"..."}]}}

Node types become t0, t1, ..., relation types r00, r01, ..., attribute keys at any depth k0, k1, ...; the descriptions
in schema.json stay, with the names inside them replaced. A name that is also an English word ("gene") is a name there
only where `words` says so.
"""

import json
import re
import shutil
from itertools import count
from pathlib import Path
from typing import Any


def rename(graph: Path, target: Path, *, words: bool = False) -> None:
    """Writes the renamed copy of the export `graph` to the new folder `target`."""
    shutil.copytree(graph, target)
    schema = json.loads((graph / "schema.json").read_text())
    types = {row["name"]: f"t{row['id']}" for row in schema["node_types"]}
    relations = {row["name"]: f"r{row['id']:02d}" for row in schema["relation_types"]}
    keys: dict[str, str] = {}
    numbers = count()
    for path in sorted(target.glob("nodes/*.jsonl")):
        records = [json.loads(line) for line in path.read_text().splitlines()]
        for record in records:
            record["node_type"] = types[record["node_type"]]
            record["attributes"] = _renamed(record["attributes"], keys, numbers)
        path.write_text(
            "".join(json.dumps(record, separators=(",", ":"), ensure_ascii=False) + "\n" for record in records)
        )
    for row in schema["node_types"]:
        row["name"] = types[row["name"]]
    for row in schema["relation_types"]:
        row["name"] = relations[row["name"]]
        for side in ("source_types", "target_types"):
            row[side] = [types[name] for name in row[side]]
    names = {**types, **relations, **keys}
    told = {name: token for name, token in names.items() if words or "_" in name}
    for row in (*schema["node_types"], *schema["relation_types"]):
        row["description"] = _retold(row["description"], told)
    schema["notes"] = [_retold(note, told) for note in schema["notes"]]
    (target / "schema.json").write_text(json.dumps(schema, indent=2, ensure_ascii=False) + "\n")


def _renamed(value: Any, keys: dict[str, str], numbers: "count[int]") -> Any:
    if isinstance(value, dict):
        for key in value:
            if key not in keys:
                keys[key] = f"k{next(numbers)}"
        return {keys[key]: _renamed(part, keys, numbers) for key, part in value.items()}
    return [_renamed(part, keys, numbers) for part in value] if isinstance(value, list) else value


def _retold(text: str, names: dict[str, str]) -> str:
    pattern = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
    return re.sub(rf"\b(?:{pattern})\b", lambda found: names[found[0]], text) if names else text
