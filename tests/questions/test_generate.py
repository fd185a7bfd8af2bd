"""Properties of every shipped question, checked against the files of the export."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from pathlib import Path

import pytest

from dkgi.dataset import Dataset
from dkgi.graph.export import write_export
from dkgi.graph.sources import hpo
from dkgi.questions.generate import generate, read_phrasings
from dkgi.types import SetupError
from tests.questions.oracle import PRESENT, Facts, Fits, Sets, Shipped, looser, named_nodes, phrases, with_recorded_as

SLICE = Path(__file__).parents[1] / "data" / "hpo_slice"
SIZES = {"one": range(1, 2), "few": range(2, 6), "many": range(6, 21)}


def wordings(name: str) -> dict[str, list[str]]:
    return read_phrasings({"dev": "phrasings.yaml", "held_out": "phrasings_held_out.yaml"}[name])


def slots(wording: str) -> set[str]:
    return set(re.findall(r"\{(\w+)\}", wording))


# ------------------------------------------------------------------- gold


def test_gold_is_what_the_program_of_the_labels_selects_in_the_files(shipped: list[Shipped], sets: Sets) -> None:
    assert [question for question in shipped if sets.answers(question.program) != question.gold] == []


def test_gold_is_exactly_the_candidates_that_fit_when_each_is_asked_alone(shipped: list[Shipped], facts: Facts) -> None:
    sample = {question.labels["template"]: question for question in shipped}
    assert len(sample) == 22
    for question in sample.values():
        fits = Fits(facts)
        answers = {number for number, node in facts.nodes.items() if fits.fits(number, question.program)}
        assert answers == question.gold, question


def test_gold_holds_candidates_of_the_one_type_that_the_question_asks_for(shipped: list[Shipped], facts: Facts) -> None:
    for question in shipped:
        nodes = [facts.nodes[number] for number in question.gold]
        assert {node["node_type"] for node in nodes} == {question.labels["answer_type"]}, question
        assert all(node["is_candidate"] for node in nodes), question


def test_dropping_any_one_constraint_changes_the_gold(shipped: list[Shipped], sets: Sets) -> None:
    for question in shipped:
        weaker = list(looser(question.program))
        assert weaker, question
        for program in weaker:
            assert sets.answers(program) != question.gold, (question, program)


def test_gold_stays_where_recorded_is_taken_for_recorded_as_present_or_absent(
    shipped: list[Shipped], sets: Sets
) -> None:
    for question in shipped:
        other = with_recorded_as(question.program, [*PRESENT, "lacks_phenotype"])
        assert sets.answers(other) == question.gold, question


def test_gold_stays_where_a_phrase_is_searched_as_a_bare_string(shipped: list[Shipped], facts: Facts) -> None:
    for phrase in sorted({phrase for question in shipped for phrase in phrases(question.program)}):
        assert facts.mentioning(phrase) == facts.holding(phrase), phrase


def test_no_two_questions_share_their_text_or_template_and_gold(shipped: list[Shipped]) -> None:
    assert len({question.text for question in shipped}) == len(shipped)
    assert len({(question.labels["template"], frozenset(question.gold)) for question in shipped}) == len(shipped)


# ------------------------------------------------------------------- the mix


@pytest.mark.parametrize(("split", "total"), [("test", 300), ("val", 100)])
def test_a_split_has_the_stated_shares_of_regimes_and_gold_sizes(
    shipped: list[Shipped], split: str, total: int
) -> None:
    members = [question for question in shipped if question.query["split"] == split]
    sizes = Counter(name for question in members for name, span in SIZES.items() if len(question.gold) in span)
    assert sizes == {"one": 0.45 * total, "few": 0.35 * total, "many": 0.2 * total}
    regimes = Counter(question.labels["regime"] for question in members)
    assert regimes == {"hub": 0.35 * total, "multihop": 0.25 * total, "text": 0.4 * total}


@pytest.mark.parametrize("split", ["test", "val"])
def test_every_template_and_every_type_of_answer_occurs_in_a_split(shipped: list[Shipped], split: str) -> None:
    members = [question.labels for question in shipped if question.query["split"] == split]
    templates = Counter(labels["template"] for labels in members)
    assert set(templates) == set(wordings("dev"))
    assert max(templates.values()) <= len(members) / 10
    types = Counter(labels["answer_type"] for labels in members)
    assert set(types) == {"phenotype", "disease", "gene"}
    assert min(types.values()) >= len(members) / 6


def test_a_hub_question_leads_through_a_hub_and_a_walk_that_sees_20_neighbours_misses_half(
    shipped: list[Shipped], facts: Facts
) -> None:
    for question in shipped:
        if question.labels["regime"] == "hub":
            assert question.labels["fan_out"] > 20, question
            assert question.labels["hops"] >= 2, question
            assert question.labels["reach"] <= 0.5, question


def test_a_multihop_question_takes_2_or_3_hops_past_at_most_20_neighbours(shipped: list[Shipped]) -> None:
    for question in shipped:
        if question.labels["regime"] == "multihop":
            assert question.labels["hops"] in (2, 3), question
            assert question.labels["fan_out"] <= 20, question


def test_a_text_question_has_a_constraint_on_definitions(shipped: list[Shipped]) -> None:
    for question in shipped:
        assert bool(list(phrases(question.program))) == (question.labels["regime"] == "text"), question


# ------------------------------------------------------------------- the text


def test_the_text_holds_no_identifier(shipped: list[Shipped]) -> None:
    for question in shipped:
        assert not re.search(r"\b(HP|OMIM|ORPHA|DECIPHER|UMLS|NCBIGene|MIM)\b|\w:\d|\d{4,}|[{}]", question.text), (
            question
        )


def test_every_node_of_the_program_is_named_by_a_name_or_exact_synonym_that_no_other_node_has(
    shipped: list[Shipped], facts: Facts
) -> None:
    for question in shipped:
        for number in named_nodes(question.program):
            used = [name for name in facts.own_names(number) if name in question.text]
            assert any(facts.names[name.casefold()] == {number} for name in used), (question, number)


def test_no_answer_is_named_as_a_constant_of_its_question(shipped: list[Shipped]) -> None:
    for question in shipped:
        assert not question.gold & set(named_nodes(question.program)), question


def test_the_frequency_and_every_phrase_of_the_program_stand_in_the_text(shipped: list[Shipped]) -> None:
    def frequencies(program: object) -> set[str]:
        if isinstance(program, list):
            return set().union(*map(frequencies, program))
        if not isinstance(program, dict):
            return set()
        narrow = program["follow"] if len(program.get("follow", ())) == 1 else []
        own = {name.removeprefix("has_phenotype_") for name in narrow if name in PRESENT}
        return own.union(*map(frequencies, program.values()))

    for question in shipped:
        for frequency in frequencies(question.program):
            assert frequency.replace("_", " ") in question.text, question
        for phrase in phrases(question.program):
            assert f'"{phrase}"' in question.text, question


# ------------------------------------------------------------------- wordings


def test_each_template_has_six_wordings_to_build_with_and_three_held_out() -> None:
    dev, held_out = wordings("dev"), wordings("held_out")
    assert {name: len(texts) for name, texts in dev.items()} == dict.fromkeys(dev, 6)
    assert {name: len(texts) for name, texts in held_out.items()} == dict.fromkeys(dev, 3)


def test_no_wording_is_in_both_files_and_all_of_a_template_say_the_same_things() -> None:
    dev, held_out = wordings("dev"), wordings("held_out")
    for name in dev:
        assert not set(dev[name]) & set(held_out[name])
        assert len({frozenset(slots(wording)) for wording in dev[name] + held_out[name]}) == 1, name


def test_the_text_is_a_wording_of_the_file_that_the_labels_name(shipped: list[Shipped]) -> None:
    files = {name: wordings(name) for name in ("dev", "held_out")}
    for question in shipped:
        fits = [
            name
            for name, templates in files.items()
            for wording in templates[question.labels["template"]]
            if re.fullmatch(re.sub(r"\\\{\w+\\\}", ".+", re.escape(wording)), question.text)
        ]
        assert question.labels["phrasing_file"] in fits, question


def test_held_out_wordings_are_a_third_of_each_template_in_test_and_none_in_val(shipped: list[Shipped]) -> None:
    counts: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for question in shipped:
        counts[question.query["split"], question.labels["template"]][question.labels["phrasing_file"]] += 1
    for (split, template), files in counts.items():
        assert files["held_out"] == (files.total() // 3 if split == "test" else 0), (split, template)


# ------------------------------------------------------------------- numbers and determinism


def test_numbers_say_nothing_about_split_regime_or_template(shipped: list[Shipped]) -> None:
    assert [question.query["number"] for question in shipped] == list(range(1, 401))
    for start in range(0, 400, 100):
        quarter = shipped[start : start + 100]
        assert 60 <= sum(question.query["split"] == "test" for question in quarter) <= 90
        regimes = Counter(question.labels["regime"] for question in quarter)
        assert len(regimes) == 3
        assert min(regimes.values()) >= 10
        assert len({question.labels["template"] for question in quarter}) >= 15


def test_a_tenth_of_test_from_all_over_it_is_the_subset(dataset: Dataset) -> None:
    subset = [query.number for query in dataset.queries("test-0.1")]
    assert len(subset) == 30
    assert all(any(number in range(start, start + 100) for number in subset) for start in range(1, 400, 100))
    assert not any(query.in_test_subset for query in dataset.queries("val"))


def test_another_process_with_another_hash_seed_makes_the_same_questions(dataset: Dataset, tmp_path: Path) -> None:
    code = """
import sys
from pathlib import Path
from dkgi.dataset import prepare
from tests.questions.conftest import SPEC

(Path(sys.argv[2]) / "graphs").mkdir()
for name in (f"{SPEC.name}-{SPEC.version}", f"{SPEC.name}-{SPEC.version}.manifest.json"):
    (Path(sys.argv[2]) / "graphs" / name).symlink_to(Path(sys.argv[1]) / name)
made = prepare(SPEC, Path(sys.argv[2]))
print(made.queries_digest, made.labels_digest)
"""
    other = subprocess.run(
        [sys.executable, "-c", code, str(dataset.export.parent), str(tmp_path)],
        env={**os.environ, "PYTHONHASHSEED": "5", "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    assert other.stdout.split() == [dataset.queries_digest, dataset.labels_digest]


def test_a_graph_that_cannot_fill_the_quotas_is_an_error_that_counts_what_is_missing(tmp_path: Path) -> None:
    write_export(hpo.from_files(SLICE), tmp_path / "slice")
    with pytest.raises(SetupError, match=r"dataset\.seed.*\d+ hub questions"):
        generate(tmp_path / "slice", seed=7)
