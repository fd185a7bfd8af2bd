"""A data set: the graph, the queries about it and their labels, made at first use and checked whenever it is opened.

>>> dataset = prepare(DatasetSpec("hpo", "hpo", "4.0.0", "test-0.1", seed=7), cache_dir())     # doctest: +SKIP
>>> len(dataset.queries("test-0.1")), dataset.sizes                                            # doctest: +SKIP
(30, {'test': 300, 'val': 100})

    graphs/hpo-4.0.0/, graphs/hpo-4.0.0.manifest.json      the export (graph/export.py)
    queries/hpo/{test,val}.jsonl, manifest.json            what a runner may read
    labels/hpo/{test,val}.jsonl, canary                    what it may not: folders mode 700, files 600 (gold.py)

The manifest of the queries is written last: without it nothing was made. A new kind of data set is one line in SOURCES.
Not covered: reading labels (gold.py); which queries a run still has to answer (store.py).
"""

import hashlib
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar

import orjson

from dkgi import console
from dkgi.files import read_json, write_atomically
from dkgi.graph import manifest
from dkgi.graph.export import SourceGraph, write_export
from dkgi.kg.text import IndexSpec
from dkgi.making import cannot_use, only_maker
from dkgi.types import Query, SetupError

SOURCES = {"hpo": "dkgi.questions.generate:source"}
"""Kind of data set -> function that takes its DatasetSpec and returns its Source; imported when it is needed."""

SUBSET = "-0.1"
"""`test-0.1` is a tenth of `test`: a filter, no split of its own."""

MANIFEST = "manifest.json"

WAIT_S = 900.0
"""How long to wait for another process that makes the same data."""


@dataclass(frozen=True, slots=True)
class DatasetSpec:
    """Which data set, and which queries of it (from conf/dataset/). `seed` makes other questions of the same kind;
    `index` says what the graph tools show and search; `knowledge_base` and `answer_kinds` name the graph and what can be
    an answer in words, for prompts of models that do not get to see it.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: str
    name: str
    version: str
    split: str
    seed: int
    index: IndexSpec = field(default_factory=IndexSpec)
    knowledge_base: str = ""
    answer_kinds: str = ""

    @property
    def base_split(self) -> str:
        """The split that `split` filters: `test` for `test-0.1`."""
        return self.split.removesuffix(SUBSET)


@dataclass(frozen=True, slots=True)
class Question:
    """A query with its answers, as a source makes it. `labels` is whatever else is known; no agent sees it."""

    number: int
    text: str
    split: str
    in_test_subset: bool
    gold: tuple[int, ...]
    labels: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Source:
    """Where a data set comes from. Both calls may take minutes; `questions` gets the folder of the export."""

    graph: Callable[[], SourceGraph]
    questions: Callable[[Path], Sequence[Question]]


@dataclass(frozen=True, slots=True)
class Dataset:
    """A data set that is there, complete and unchanged. `sizes`: split -> number of its queries.

    `labels_digest` stands for gold and labels and is the same wherever they are made; it was read, they were not.
    """

    name: str
    export: Path
    export_digest: str
    queries_digest: str
    labels_digest: str
    sizes: Mapping[str, int]
    folder: Path

    @property
    def candidate_ids(self) -> Path:
        """One node ID a line, sorted: what an answer may hold."""
        return self.export / "candidate_ids.txt"

    def queries(self, split: str) -> list[Query]:
        """Queries of `test`, `test-0.1`, `val`, ..., by number. SetupError where there is no such split."""
        base = split.removesuffix(SUBSET)
        known = sorted([*self.sizes, f"test{SUBSET}"])
        if split not in known:
            raise SetupError(f"dataset.split={split}: {self.name} has {', '.join(known)}")
        lines = (self.folder / f"{base}.jsonl").read_bytes().splitlines()
        rows = [Query(**orjson.loads(line)) for line in lines]
        return [query for query in rows if query.in_test_subset or split == base]


def prepare(spec: DatasetSpec, data: Path) -> Dataset:
    """Open the data set under `data`, after making what is missing. Raises SetupError where either cannot be done.

    Several processes may call this at once: one makes the data, the others say that they wait for it.
    """
    if spec.kind not in SOURCES:
        raise SetupError(f"dataset.kind={spec.kind}: not one of {', '.join(sorted(SOURCES))}")
    module, _, function = SOURCES[spec.kind].partition(":")
    return prepare_from(getattr(import_module(module), function)(spec), spec, data)


def prepare_from(source: Source, spec: DatasetSpec, data: Path, *, wait_s: float = WAIT_S) -> Dataset:
    """The same from a given source; waits `wait_s` seconds at most for another process."""
    export = data / "graphs" / f"{spec.name}-{spec.version}"
    queries = data / "queries" / spec.name
    try:
        if not _is_made(export, queries):
            with only_maker(data / "graphs" / ".lock", wait_s, "the data"):
                if not _is_made(export, queries):
                    _make(source, spec, export, data)
        for private in (data / "labels", data / "labels" / spec.name):
            private.chmod(0o700)
        return _open(spec, export, queries)
    except OSError as error:
        raise cannot_use(error, data) from error


def _is_made(export: Path, queries: Path) -> bool:
    return manifest.exists(export) and (queries / MANIFEST).is_file()


def _make(source: Source, spec: DatasetSpec, export: Path, data: Path) -> None:
    say = partial(console.stderr().print, soft_wrap=True)
    if not manifest.exists(export):
        say(f"dkgi: building the graph {export.name} (once)")
        graph = source.graph()
        if graph.version != spec.version:
            raise SetupError(f"dataset.version={spec.version}: what is installed is {graph.name} {graph.version}")
        write_export(graph, export)
    say(f"dkgi: making the queries of {spec.name} (once)")
    questions = sorted(source.questions(export), key=lambda question: question.number)
    splits = {name: [q for q in questions if q.split == name] for name in sorted({q.split for q in questions})}
    labels = write_labels(splits, data / "labels" / spec.name)
    queries = write_queries(splits, data / "queries" / spec.name)
    made = {
        "seed": spec.seed,
        "export": manifest.read(export).digest,
        "sizes": {name: len(members) for name, members in splits.items()},
        "queries": queries,
        "labels": labels,
    }
    write_atomically(data / "queries" / spec.name / MANIFEST, orjson.dumps(made, option=orjson.OPT_INDENT_2))


def write_queries(splits: Mapping[str, Sequence[Question]], folder: Path) -> dict[str, str]:
    """Write what a runner may know of the questions. Returns the sha256 of each split's file."""
    digests = {}
    for name, members in splits.items():
        content = _jsonl(asdict(Query(q.number, q.text, q.split, q.in_test_subset)) for q in members)
        write_atomically(folder / f"{name}.jsonl", content)
        digests[name] = hashlib.sha256(content).hexdigest()
    return digests


def write_labels(splits: Mapping[str, Sequence[Question]], folder: Path) -> dict[str, str]:
    """Write gold, labels and a canary where only this user can read them. Returns the digest of each split's labels.

    The canary is a random string that stands in every file of the folder: where it turns up, the labels were read.
    """
    for private in (folder.parent, folder):
        private.mkdir(mode=0o700, parents=True, exist_ok=True)
        private.chmod(0o700)
    canary = f"canary-{secrets.token_hex(16)}"
    digests, contents = {}, {"canary": canary.encode()}
    for name, members in splits.items():
        rows = [{"number": q.number, "gold": q.gold, **q.labels} for q in members]
        digests[name] = hashlib.sha256(_jsonl(rows)).hexdigest()
        contents[f"{name}.jsonl"] = _jsonl(row | {"canary": canary} for row in rows)
    for name, content in contents.items():
        write_atomically(folder / name, content)
        (folder / name).chmod(0o600)
    return digests


def _open(spec: DatasetSpec, export: Path, folder: Path) -> Dataset:
    export_digest = manifest.verify(export).digest
    again = f"to make the queries again, remove {folder}"
    made = read_json(folder / MANIFEST)
    try:
        seed, origin, sizes, queries = made["seed"], made["export"], dict(made["sizes"]), dict(made["queries"])
        labels_digest = _digest_of(made["labels"])
    except (KeyError, TypeError, ValueError):
        raise SetupError(f"{folder / MANIFEST}: damaged; {again}") from None
    if seed != spec.seed:
        raise SetupError(
            f"dataset.seed={spec.seed}: the queries of {spec.name} were made with seed {seed}; "
            f"add dataset.name={spec.name}-{spec.seed} to have both, or remove {folder}"
        )
    if origin != export_digest:
        raise SetupError(f"{folder}: these queries are about another export than {export}; {again}")
    for name, expected in queries.items():
        path = folder / f"{name}.jsonl"
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != expected:
            raise SetupError(f"{path}: missing or changed; {again}")
    return Dataset(spec.name, export, export_digest, _digest_of(queries), labels_digest, sizes, folder)


def _jsonl(rows: Iterable[Any]) -> bytes:
    return b"".join(orjson.dumps(row, option=orjson.OPT_APPEND_NEWLINE) for row in rows)


def _digest_of(parts: Mapping[str, str]) -> str:
    return hashlib.sha256(orjson.dumps(parts, option=orjson.OPT_SORT_KEYS)).hexdigest()
