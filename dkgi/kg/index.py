"""The index behind the graph tools: made once for an export, mapped into memory, shared by threads and processes.

>>> index = open_index(dataset.export, dataset_spec.index, cache_dir())    # doctest: +SKIP
>>> index.search("unsteady gait", k=1), index.name(1402)                   # doctest: +SKIP
([Hit(node_id=1402, score=17.2)], 'Ataxia')

    indexes/hpo-4.0.0-5f1e9c02/    manifest.json, words.*, postings.*, names.*, links.*, ... (one folder an IndexSpec)

The manifest is written last, and the folder gets its name when all is on disk. It says of which export the index is, how
names, summaries and scores come about, and what the files were. An index that is stale, half-written or damaged is made anew.
Not covered: what agents read of it (tools.py).
"""

import hashlib
import os
import shutil
from array import array
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import orjson

from dkgi import console
from dkgi.files import sync_folder, write_atomically
from dkgi.graph import manifest as exports
from dkgi.graph.manifest import FileRecord
from dkgi.graph.read import Node, Schema, read_edges, read_schema
from dkgi.kg import bm25
from dkgi.kg.adjacency import IN, OUT, Adjacency, write_adjacency
from dkgi.kg.arrays import Array, Texts, load, save, save_texts, starts_of
from dkgi.kg.tantivy_bm25 import TantivyBm25, TantivyWriter, import_tantivy
from dkgi.kg.text import TOKENIZER, IndexSpec, name_and_summary, words_of
from dkgi.making import cannot_use, only_maker
from dkgi.types import SetupError

FORMAT = 1
"""Of the files; another number makes every index anew."""

MANIFEST = "manifest.json"

WAIT_S = 3600.0
"""How long to wait for another process that makes the same index."""


class Hit(NamedTuple):
    node_id: int
    score: float


class Link(NamedTuple):
    """A neighbour: `outgoing` where the node is the source of the row, `incoming` where it is the target; or both."""

    relation: str
    node_id: int
    outgoing: bool
    incoming: bool


class Neighborhood(NamedTuple):
    """How many links were found, and the first of them."""

    found: int
    links: list[Link]


class Index:
    """Read-only and thread-safe. Node IDs are taken as valid: `0 <= node_id < index.schema.nodes`.

    `manifest` says what the index was made of and how it ranks; it belongs to every result that rests on it.
    """

    def __init__(self, export: Path, folder: Path, manifest: Mapping[str, Any]) -> None:
        self.export, self.manifest = export, manifest
        self.schema: Schema = read_schema(export)
        self.spec = IndexSpec(tuple(manifest["names"]), tuple(manifest["summary"]), manifest["engine"])
        self._types, self._lines = load(folder, "types"), load(folder, "lines")
        self._names = Texts(folder, "names")
        self._adjacency = Adjacency(folder)
        self._bm25 = bm25.Bm25(folder)
        self._ranking = TantivyBm25(folder / "tantivy") if self.spec.engine == "tantivy" else self._bm25

    def search(self, query: str, k: int) -> list[Hit]:
        """The k best nodes for the words of the query, best first."""
        words = words_of(query)
        return [Hit(*found) for found in self._ranking.best(words, k)] if words else []

    def name(self, node_id: int) -> str:
        return self._names[node_id].decode()

    def node_type(self, node_id: int) -> str:
        kind: int = self._types[node_id]
        return self.schema.node_types[kind].name

    def node(self, node_id: int) -> Node:
        """The record as exported."""
        shard = node_id // self.schema.shard_size
        start, end = self._lines[node_id : node_id + 2] - self._lines[shard * self.schema.shard_size]
        try:
            with shard_path(self.export, shard).open("rb") as file:
                file.seek(start)
                node = Node(**orjson.loads(file.read(end - start)))
        except (ValueError, TypeError):
            node = None
        if node is None or node.node_id != node_id:
            raise SetupError(f"{self.export}: changed while it was in use; {exports.rebuild(self.export)}")
        return node

    def neighbors(
        self, node_id: int, relation: str = "", node_type: str = "", query: str = "", *, k: int
    ) -> Neighborhood:
        """The first k links of a node under these filters (none: an empty text), best first where there is a query.

        A query keeps the neighbours that have it in their name, and those that have some of its words; the former come
        first, then who has more of the words. KeyError for a relation or a type that the graph does not have.
        """
        others, relations, ways = self._adjacency.of(node_id)
        kept = np.ones(len(others), dtype=bool)
        if relation:
            kept &= relations == self.schema.relation(relation).id
        if node_type:
            kept &= self._types[others] == {kind.name: kind.id for kind in self.schema.node_types}[node_type]
        places = np.flatnonzero(kept)
        if query.strip():
            places = places[self._order_by_query(others[places], query)]
        names = {kind.id: kind.name for kind in self.schema.relation_types}
        rows = zip(*(column[places[:k]].tolist() for column in (others, relations, ways)), strict=True)
        links = [Link(names[number], other, bool(way & OUT), bool(way & IN)) for other, number, way in rows]
        return Neighborhood(len(places), links)

    def _order_by_query(self, nodes: Array, query: str) -> Array:
        """Places of the nodes that the query keeps, in the order in which they are shown."""
        wanted = " ".join(query.split()).lower()
        # Decoded in one go: a hub has tens of thousands of neighbours. No name holds a line break.
        names = b"\n".join(self._names.take(nodes)).decode().lower()
        named = _lines_with(wanted, names, len(nodes))
        counts = np.zeros(len(nodes), dtype=np.int32)
        for word in set(words_of(query)):
            having = self._bm25.nodes_with(word)
            if len(having):
                counts += having[np.minimum(np.searchsorted(having, nodes), len(having) - 1)] == nodes
        order = np.lexsort((-counts, ~named))
        kept: Array = order[(named | (counts > 0))[order]]
        return kept


def _lines_with(wanted: str, text: str, lines: int) -> Array:
    """Which lines of a text hold the words. Only hits are looked at one by one: most texts have few among many lines."""
    having = np.zeros(lines, dtype=bool)
    line = start = 0
    while (found := text.find(wanted, start)) >= 0:
        line += text.count("\n", start, found)
        having[line] = True
        end = text.find("\n", found)
        if end < 0:
            break
        line, start = line + 1, end + 1
    return having


def shard_path(export: Path, shard: int) -> Path:
    return export / "nodes" / f"{shard:04d}.jsonl"


def open_index(export: Path, spec: IndexSpec, cache: Path, *, wait_s: float = WAIT_S) -> Index:
    """Open the index of an export under `cache`, after making it where there is none that is whole and up to date.

    Several processes may call this at once. SetupError where the export is not whole, the spec names no names, or
    the index cannot be made.
    """
    if not spec.names:
        raise SetupError("dataset.index.names: the graph tools need the attributes that name a node, such as [name]")
    about = _about(spec, exports.verify(export).digest)
    folder = cache / "indexes" / f"{export.name}-{hashlib.sha256(orjson.dumps(asdict(spec))).hexdigest()[:8]}"
    try:
        if not _is_whole(folder, about):
            with only_maker(folder.with_name(f".{folder.name}.lock"), wait_s, f"the index of {export.name}"):
                if not _is_whole(folder, about):
                    _make(export, spec, folder, about)
        return Index(export, folder, about)
    except OSError as error:
        raise cannot_use(error, cache) from error


def _about(spec: IndexSpec, export_digest: str) -> dict[str, Any]:
    """What decides about an index's content, and so about every result."""
    about = {"format": FORMAT, "export": export_digest, **asdict(spec), "tokenizer": TOKENIZER, **bm25.PARAMETERS}
    if spec.engine == "tantivy":
        import_tantivy()
        about["tantivy"] = version("tantivy")
    return orjson.loads(orjson.dumps(about))  # type: ignore[no-any-return]


def _is_whole(folder: Path, about: Mapping[str, Any]) -> bool:
    """Whether the index is the one that is described, and its files are as they were written."""
    try:
        content = orjson.loads((folder / MANIFEST).read_bytes())
        files = {name: FileRecord(**record) for name, record in content.pop("files").items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return False
    return content == about and all(exports.unchanged(folder / n, r, full=False) for n, r in files.items())


def _make(export: Path, spec: IndexSpec, folder: Path, about: Mapping[str, Any]) -> None:
    console.stderr().print(f"dkgi: making the index of {export.name} (once)", soft_wrap=True)
    beside, old = folder.with_name(f".{folder.name}.making"), folder.with_name(f".{folder.name}.old")
    for left in (beside, old):
        _remove(left)
    beside.mkdir(parents=True)
    try:
        _write(export, spec, beside)
        files = {
            name: asdict(exports.record_of(beside / name)) for name in exports.file_names(beside) if not _is_lock(name)
        }
        _sync(beside)
        write_atomically(beside / MANIFEST, orjson.dumps({**about, "files": files}, option=orjson.OPT_INDENT_2))
        # Who has the old files open keeps them; others see the new ones or none, and then wait for the lock.
        if folder.exists():
            folder.rename(old)
        beside.rename(folder)
        sync_folder(folder.parent)
    finally:
        for left in (beside, old):
            _remove(left)


def _remove(path: Path) -> None:
    """Take away a folder, or what somebody put in its place."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _write(export: Path, spec: IndexSpec, folder: Path) -> None:
    schema = read_schema(export)
    writers: list[Any] = [bm25.Bm25Writer(folder)]
    if spec.engine == "tantivy":
        writers.append(TantivyWriter(folder / "tantivy"))
    type_ids = {kind.name: kind.id for kind in schema.node_types}
    types, lengths = array("H"), array("q")
    named = 0

    def names() -> Iterator[bytes]:
        nonlocal named
        for line in _lines(export, schema):
            node = Node(**orjson.loads(line))
            if node.node_id != len(types):
                raise SetupError(f"{export}: node {node.node_id} stands at place {len(types)}; IDs must count from 0")
            name, summary = name_and_summary(node.attributes, spec)
            words = words_of(f"{name} {summary}")
            for writer in writers:
                writer.add(words)
            types.append(type_ids[node.node_type])
            lengths.append(len(line))
            named += bool(name)
            yield name.encode()

    save_texts(folder, "names", names())
    if types and not named:
        raise SetupError(
            f"dataset.index.names: no node of {export.name} has text in {', '.join(spec.names)}; name paths of attributes "
            "in the node records, such as name or synonyms.text"
        )
    for writer in writers:
        writer.write()
    save(folder, "types", np.frombuffer(types, dtype=np.uint16))
    save(folder, "lines", starts_of(np.frombuffer(lengths, dtype=np.int64)))
    write_adjacency(folder, schema.nodes, (read_edges(export, relation) for relation in schema.relation_types))


def _lines(export: Path, schema: Schema) -> Iterator[bytes]:
    """The lines of all node files, in order."""
    for shard in range(-(-schema.nodes // schema.shard_size)):
        with shard_path(export, shard).open("rb") as file:
            yield from file


def _is_lock(name: str) -> bool:
    """Whether a file is one of tantivy's locks, which come and go."""
    return Path(name).suffix == ".lock"


def _sync(folder: Path) -> None:
    """Bring everything in a folder to disk."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
