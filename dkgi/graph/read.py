"""Readers of an export, for code outside the sandbox.

>>> schema = read_schema(folder)
>>> next(read_nodes(folder))
Node(node_id=0, node_type='phenotype', is_candidate=True, attributes={'name': 'Abnormality of body height', ...})
>>> read_edges(folder, schema.relation("gene_disease"))
array([[31075, 26345], ...])

Released exports have a space after each colon and comma, ours have none; both are read.
Not covered: whether the export is the one that was written; manifest.verify says that.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

SHARD_SIZE = 10_000
"""Nodes a file (paper, section 2)."""

Rows = np.ndarray[Any, np.dtype[np.int64]]
"""[rows, 2]: source and target node ID."""


class Node(NamedTuple):
    node_id: int
    node_type: str
    is_candidate: bool
    attributes: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NodeTypeEntry:
    id: int
    name: str
    nodes: int
    candidates: int
    description: str


@dataclass(frozen=True, slots=True)
class RelationEntry:
    id: int
    name: str
    file: str
    rows: int
    source_types: tuple[str, ...]
    target_types: tuple[str, ...]
    description: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Content of schema.json. `relation_types` and `notes` are empty in a view without edges."""

    name: str
    version: str
    nodes: int
    candidates: int
    shard_size: int
    node_types: tuple[NodeTypeEntry, ...]
    relation_types: tuple[RelationEntry, ...]
    notes: tuple[str, ...]
    terms_of_use: str

    def relation(self, name: str) -> RelationEntry:
        """Raises KeyError if the graph has no such relation."""
        return {relation.name: relation for relation in self.relation_types}[name]


def read_schema(folder: Path) -> Schema:
    content = orjson.loads((folder / "schema.json").read_bytes())
    relations = (
        entry | {"source_types": tuple(entry["source_types"]), "target_types": tuple(entry["target_types"])}
        for entry in content.get("relation_types", ())
    )
    return Schema(
        **content
        | {
            "node_types": tuple(NodeTypeEntry(**entry) for entry in content["node_types"]),
            "relation_types": tuple(RelationEntry(**entry) for entry in relations),
            "notes": tuple(content.get("notes", ())),
        }
    )


def read_nodes(folder: Path) -> Iterator[Node]:
    """All nodes in the order of the files."""
    for path in sorted((folder / "nodes").iterdir()):
        with path.open("rb") as file:
            for line in file:
                yield Node(**orjson.loads(line))


def read_edges(folder: Path, relation: RelationEntry) -> Rows:
    """All rows of a relation, in stored order. ValueError if a line is not two integers."""
    with (folder / relation.file).open("rb") as file:
        if file.readline() != b"source_id\ttarget_id\n":
            raise ValueError(f"{folder / relation.file} lacks the header line")
        if not relation.rows:
            return np.empty((0, 2), dtype=np.int64)
        return np.loadtxt(file, dtype=np.int64, delimiter="\t", ndmin=2)


def read_candidates(folder: Path) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Node IDs that may be answers, sorted."""
    return np.array((folder / "candidate_ids.txt").read_bytes().split(), dtype=np.int64)
