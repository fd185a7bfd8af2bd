"""Writes a knowledge graph as the folder of plain files that agents read.

    nodes/0000.jsonl  {"node_id":17,"node_type":"disease","is_candidate":true,"attributes":{"name":"Gout"}}
    edges/00.tsv      source_id<TAB>target_id, then one edge a line
    candidate_ids.txt, schema.json, DATA_FORMAT.txt

>>> digest = write_export(hpo.build(), cache_dir() / "graphs" / "hpo-4.0.0")

The layout is that of the paper, section 2. The folder appears under its name complete and checked, or not at all;
its digest lies beside it (manifest.py), where no agent sees it.
Not covered: where graphs come from (sources/) and which files an agent gets (views.py).
"""

import fcntl
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import orjson

from dkgi.files import sync_folder
from dkgi.graph import manifest
from dkgi.graph.check import Sample, check_export
from dkgi.graph.read import SHARD_SIZE, Rows
from dkgi.paths import data_dir
from dkgi.types import SetupError

CHUNK_ROWS = 1_000_000


@dataclass(frozen=True, slots=True)
class NodeType:
    name: str
    description: str
    candidate: bool


@dataclass(frozen=True, slots=True)
class RelationType:
    """`source_types` and `target_types` name the node types that its rows may join."""

    name: str
    description: str
    source_types: Sequence[str]
    target_types: Sequence[str]


@dataclass(frozen=True, slots=True)
class SourceGraph:
    """A graph in memory, or on its way through it, ready to be written.

    nodes    (node type's position in `node_types`, attributes) in the order of node IDs, 0 first; read once, so it
             may be a generator
    edges    one int64 array [rows, 2] of (source, target) node IDs a relation type, in the order to be stored
    dropped  reason -> how many of the source's rows are not in the graph
    """

    name: str
    version: str
    node_types: Sequence[NodeType]
    relation_types: Sequence[RelationType]
    nodes: Iterable[tuple[int, Mapping[str, Any]]]
    edges: Sequence[Rows]
    notes: Sequence[str]
    terms_of_use: str
    dropped: Mapping[str, int] = field(default_factory=dict)


def write_export(graph: SourceGraph, folder: Path) -> str:
    """Write, check and publish the export; returns its digest.

    An export already there is replaced, unless it is the same. SetupError if the files cannot be written or another
    process is writing them; CheckFailed if the graph contradicts itself.
    """
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with only_writer(folder):
            building = folder.parent / f".{folder.name}.building"
            shutil.rmtree(building, ignore_errors=True)
            try:
                write_files(graph, building)
                return publish(building, folder, graph.dropped)
            finally:
                shutil.rmtree(building, ignore_errors=True)
    except OSError as error:
        raise SetupError(
            f"cannot write {error.filename or folder}: {error.strerror}; make room or set DKGI_DATA to another folder"
        ) from error


@contextmanager
def only_writer(folder: Path) -> Iterator[None]:
    with (folder.parent / f".{folder.name}.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SetupError(f"{folder} is being written by another process; wait for it and run again") from None
        yield


def write_files(graph: SourceGraph, folder: Path) -> None:
    """All files of the export, checked against the source, on disk and readable by every user."""
    (folder / "nodes").mkdir(parents=True)
    (folder / "edges").mkdir()
    type_ids, sample = write_nodes(graph, folder / "nodes")
    for number, rows in enumerate(graph.edges):
        write_edges(rows, folder / edge_file(number))
    is_candidate = np.array([node_type.candidate for node_type in graph.node_types])
    candidates = np.flatnonzero(is_candidate[type_ids])
    (folder / "candidate_ids.txt").write_bytes(b"".join(b"%d\n" % node_id for node_id in candidates.tolist()))
    write_schema(schema_of(graph, np.bincount(type_ids, minlength=len(graph.node_types))), folder / "schema.json")
    (folder / "DATA_FORMAT.txt").write_text(data_format(), encoding="utf-8")
    check_export(folder, sample, graph.edges)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
        descriptor = os.open(path, os.O_RDONLY)
        os.fsync(descriptor)
        os.close(descriptor)


def write_nodes(graph: SourceGraph, folder: Path) -> tuple[np.ndarray[Any, np.dtype[np.uint8]], Sample]:
    """Write the node files; returns each node's type and the records that the check will look for."""
    kinds = [(node_type.name, node_type.candidate) for node_type in graph.node_types]
    type_ids = bytearray()
    sample = Sample()
    nodes = iter(graph.nodes)
    while True:
        lines = []
        for type_id, attributes in islice(nodes, SHARD_SIZE):
            node_id = len(type_ids)
            node_type, candidate = kinds[type_id]
            record = {"node_id": node_id, "node_type": node_type, "is_candidate": candidate, "attributes": attributes}
            lines.append(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
            type_ids.append(type_id)
            if node_id == sample.due:
                sample.take(record)
        if not lines:
            break
        with (folder / f"{node_id // SHARD_SIZE:04}.jsonl").open("wb") as file:
            file.writelines(lines)
    return np.frombuffer(type_ids, dtype=np.uint8), sample


def edge_file(number: int) -> str:
    return f"edges/{number:02}.tsv"


def write_edges(rows: Rows, path: Path) -> None:
    with path.open("wb") as file:
        file.write(b"source_id\ttarget_id\n")
        for start in range(0, len(rows), CHUNK_ROWS):
            chunk = np.ascontiguousarray(rows[start : start + CHUNK_ROWS], dtype=np.int64)
            # "[[1,2],[3,4]]" is a few replacements away from TSV, and twenty times faster than formatting in Python.
            text = orjson.dumps(chunk, option=orjson.OPT_SERIALIZE_NUMPY)
            file.write(text[2:-2].replace(b"],[", b"\n").replace(b",", b"\t") + b"\n")


def schema_of(graph: SourceGraph, counts: np.ndarray[Any, np.dtype[np.intp]]) -> dict[str, Any]:
    """Content of schema.json; `counts` has the number of nodes of each type."""
    node_types = [
        {
            "id": number,
            "name": node_type.name,
            "nodes": int(counts[number]),
            "candidates": int(counts[number]) if node_type.candidate else 0,
            "description": node_type.description,
        }
        for number, node_type in enumerate(graph.node_types)
    ]
    relation_types = [
        {
            "id": number,
            "name": relation.name,
            "file": edge_file(number),
            "rows": len(graph.edges[number]),
            "source_types": list(relation.source_types),
            "target_types": list(relation.target_types),
            "description": relation.description,
        }
        for number, relation in enumerate(graph.relation_types)
    ]
    return {
        "name": graph.name,
        "version": graph.version,
        "nodes": sum(entry["nodes"] for entry in node_types),
        "candidates": sum(entry["candidates"] for entry in node_types),
        "shard_size": SHARD_SIZE,
        "node_types": node_types,
        "relation_types": relation_types,
        "notes": list(graph.notes),
        "terms_of_use": graph.terms_of_use,
    }


def write_schema(content: Mapping[str, Any], path: Path) -> None:
    path.write_bytes(orjson.dumps(content, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))


def data_format(*, edges: bool = True, tools_line: bool = True) -> str:
    """DATA_FORMAT.txt from its template, whose lines marked `@edges` or `@tools` can be left out."""
    keep = {"@edges": edges, "@tools": tools_line}
    kept = []
    for line in (data_dir("prompts") / "data_format.txt").read_text(encoding="utf-8").splitlines():
        mark, _, text = line.partition(" ")
        if keep.get(mark, True):
            kept.append(text if mark in keep else line)
    return "\n".join(kept) + "\n"


def publish(building: Path, folder: Path, dropped: Mapping[str, int]) -> str:
    """Move the finished export to its name; its manifest comes last, so no manifest means no export."""
    new = manifest.of(building, dropped)
    if manifest.is_intact(folder, new.digest):
        return new.digest
    manifest.remove(folder)
    if folder.exists():
        shutil.rmtree(folder)
    building.rename(folder)
    sync_folder(folder.parent)
    manifest.write(new, folder)
    return new.digest
