"""Proves of an export, read back from disk, that it holds the graph that it was written from (paper, section 2).

>>> check_export(folder, sample, graph.edges)
dkgi.graph.check.CheckFailed: edges/01.tsv: target 12 is a gene, schema.json says disease

Not covered: whether the source itself is right.
"""

import json
import math
import random
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dkgi.graph.read import SHARD_SIZE, Rows, Schema, read_candidates, read_edges, read_nodes, read_schema

SAMPLE_SIZE = 100


class CheckFailed(Exception):
    """The export contradicts its source or itself: a bug, in a source or in the export."""


class Sample:
    """100 records of a stream of unknown length, each as likely as the others; the same each time.

    Knowing which record is `due` next costs the stream one comparison a record (Li 1994, algorithm L).
    """

    def __init__(self) -> None:
        self.records: list[Mapping[str, Any]] = []
        self.due = 0
        self._random = random.Random(0)
        self._weight = 1.0

    def take(self, record: Mapping[str, Any]) -> None:
        """Keep the record that is due, in place of an earlier one once there are enough."""
        if len(self.records) < SAMPLE_SIZE:
            self.records.append(record)
        else:
            self.records[self._random.randrange(SAMPLE_SIZE)] = record
        self.due += 1
        if len(self.records) == SAMPLE_SIZE:
            self._weight *= self._random.random() ** (1 / SAMPLE_SIZE)
            self.due += int(math.log(1 - self._random.random()) / math.log(1 - self._weight))


def check_export(folder: Path, sample: Sample, edges: Sequence[Rows]) -> None:
    """Raise CheckFailed at the first contradiction among the files, or between them and the source's records and rows."""
    schema = read_schema(folder)
    type_ids = check_nodes(folder, schema)
    check_sample(folder, sample)
    require(
        len(edges) == len(schema.relation_types), f"edges: {len(edges)} relations in the source, not in schema.json"
    )
    for relation, source_rows in zip(schema.relation_types, edges, strict=True):
        rows = read_edges(folder, relation)
        require(len(rows) == relation.rows, f"{relation.file}: {len(rows)} rows, schema.json says {relation.rows}")
        require(np.array_equal(rows, source_rows), f"{relation.file}: rows differ from the source")
        for column, end, allowed in ((0, "source", relation.source_types), (1, "target", relation.target_types)):
            check_ends(rows[:, column], type_ids, schema, allowed, f"{relation.file}: {end}")


def require(condition: bool, message: str) -> None:
    if not condition:
        raise CheckFailed(message)


def check_nodes(folder: Path, schema: Schema) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """Every node once, in order, in its shard; counts and candidates as stated. Returns each node's type ID."""
    numbers = {node_type.name: node_type.id for node_type in schema.node_types}
    type_ids = np.zeros(schema.nodes, dtype=np.uint8)
    candidates = []
    count = 0
    for node in read_nodes(folder):
        require(node.node_id == count and count < schema.nodes, f"nodes: found node {node.node_id} in place of {count}")
        type_ids[count] = numbers[node.node_type]
        if node.is_candidate:
            candidates.append(count)
        count += 1
    require(count == schema.nodes, f"nodes: {count} of them, schema.json says {schema.nodes}")
    files = sorted(path.name for path in (folder / "nodes").iterdir())
    require(
        files == [f"{n:04}.jsonl" for n in range(math.ceil(count / SHARD_SIZE))], f"nodes: unexpected files {files}"
    )
    require(read_candidates(folder).tolist() == candidates, "candidate_ids.txt differs from is_candidate of the nodes")
    require(len(candidates) == schema.candidates, f"{len(candidates)} candidates, schema.json says {schema.candidates}")
    for node_type in schema.node_types:
        of_type = type_ids == node_type.id
        found = int(np.count_nonzero(of_type)), int(np.count_nonzero(of_type[candidates]))
        require(
            found == (node_type.nodes, node_type.candidates),
            f"{found[0]} nodes, {found[1]} candidates of type {node_type.name}, "
            f"schema.json says {node_type.nodes}, {node_type.candidates}",
        )
    return type_ids


def check_ends(
    ends: np.ndarray[Any, np.dtype[np.int64]],
    type_ids: np.ndarray[Any, np.dtype[np.uint8]],
    schema: Schema,
    allowed: Sequence[str],
    where: str,
) -> None:
    missing = ends[(ends < 0) | (ends >= len(type_ids))]
    require(not len(missing), f"{where} {missing[:1]} is no node")
    names = [node_type.name for node_type in schema.node_types]
    is_allowed = np.array([name in allowed for name in names])
    for node_id in ends[~is_allowed[type_ids[ends]]][:1].tolist():
        require(False, f"{where} {node_id} is a {names[type_ids[node_id]]}, schema.json says {', '.join(allowed)}")


def check_sample(folder: Path, sample: Sample) -> None:
    """The sampled nodes, found by shard and line as DATA_FORMAT.txt teaches, are the source's records."""
    for record in sample.records:
        shard, line_number = divmod(record["node_id"], SHARD_SIZE)
        with (folder / "nodes" / f"{shard:04}.jsonl").open(encoding="utf-8", newline="\n") as file:
            found = json.loads(next(islice(file, line_number, None)))
        require(found == plain(record), f"node {record['node_id']} differs from its source")
        require(list(found) == list(record), f"node {record['node_id']} has the keys {list(found)}")


def plain(value: Any) -> Any:
    """`value` as JSON can hold it: non-finite numbers are null, tuples are lists."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    return value
