"""The question templates over the hpo graph: which constants to draw, and the program that they make.

    genes_of_absent_with_recorded: gene -> disease, where the disease lacks phenotype_a and has phenotype_b
    "Which genes are associated with a disease in which Cleft palate is recorded as absent while ..."

A template starts from an answer that must exist (a disease, a phenotype) and draws constants that hold for it, so that
its gold is seldom empty. Each returns a program and the values of its wording's {slots}: a node, a phrase or a
frequency. What was drawn may still be refused by generate.py (too many answers, a constraint that changes nothing).
Regimes: `hub`, the path goes through nodes with more than 20 neighbours; `multihop`, 2 to 3 hops through few neighbours
with intersections, differences and recorded absence; `text`, constraints on definitions.
Not covered: wording (phrasings.yaml, phrasings_held_out.yaml).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dkgi.questions.draw import PRESENT, Draw, present_as
from dkgi.questions.programs import All, Follow, Minus, Node, Program


@dataclass(frozen=True, slots=True)
class Draft:
    """A program and what its wording's slots stand for: a node to be named, or text."""

    program: Program
    slots: Mapping[str, int | str]


@dataclass(frozen=True, slots=True)
class Template:
    name: str
    regime: str
    answers: str
    draw: Callable[["Draw"], Draft]


# ------------------------------------------------------------------- parts of programs


def diseases_with(phenotypes: Program, frequency: str | None = None) -> Follow:
    """Diseases in which one of the phenotypes is recorded, as `frequency` where given."""
    if frequency is None:
        return Follow(phenotypes, PRESENT, reverse=True)
    return Follow(phenotypes, (present_as(frequency),), reverse=True, wider=PRESENT)


def phenotypes_of(diseases: Program, frequency: str | None = None) -> Follow:
    """Phenotypes recorded in one of the diseases, as `frequency` where given."""
    if frequency is None:
        return Follow(diseases, PRESENT)
    return Follow(diseases, (present_as(frequency),), wider=PRESENT)


def diseases_lacking(phenotype: int) -> Follow:
    return Follow(Node(phenotype), ("lacks_phenotype",), reverse=True)


def lacked_by(diseases: Program) -> Follow:
    return Follow(diseases, ("lacks_phenotype",))


def inherited_by(inheritance: int) -> Follow:
    return Follow(Node(inheritance), ("inheritance",), reverse=True)


def with_onset(onset: int) -> Follow:
    return Follow(Node(onset), ("onset",), reverse=True)


def genes_of(diseases: Program) -> Follow:
    return Follow(diseases, ("gene_disease",), reverse=True)


def diseases_of(genes: Program) -> Follow:
    return Follow(genes, ("gene_disease",))


def subtypes_of(phenotypes: Program) -> Follow:
    return Follow(phenotypes, ("is_a",), reverse=True)


def parents_of(phenotypes: Program) -> Follow:
    return Follow(phenotypes, ("is_a",))


def others_of_gene(disease: int) -> Minus:
    """The other diseases that share a gene with this one."""
    return Minus(diseases_of(genes_of(Node(disease))), Node(disease))


# ------------------------------------------------------------------- hubs inside the path


def genes_of_recorded_and_inherited(draw: Draw) -> Draft:
    inheritance, disease = draw.common_target("inheritance")
    phenotype, frequency = draw.recorded(disease, hub=True)
    program = genes_of(All((diseases_with(Node(phenotype), frequency), inherited_by(inheritance))))
    return Draft(program, {"phenotype": phenotype, "frequency": frequency, "inheritance": inheritance})


def genes_of_two_without_third(draw: Draw) -> Draft:
    disease = draw.with_link("gene_disease", reverse=True)
    first, second = draw.some(draw.hubs(draw.near(disease, *PRESENT)), 2)
    decoy = draw.one(draw.near(first, *PRESENT, reverse=True) & draw.near(second, *PRESENT, reverse=True) - {disease})
    third = draw.one(draw.hubs(draw.near(decoy, *PRESENT) - draw.near(disease, *PRESENT)))
    diseases = All((diseases_with(Node(first)), diseases_with(Node(second))))
    program = genes_of(Minus(diseases, diseases_with(Node(third))))
    return Draft(program, {"phenotype_a": first, "phenotype_b": second, "phenotype_c": third})


def diseases_sharing_gene_without_phenotype(draw: Draw) -> Draft:
    onset, disease = draw.common_target("onset")
    phenotype, frequency = draw.recorded(draw.one(draw.diseases_of_same_gene(disease)), hub=True)
    shared = diseases_of(genes_of(diseases_with(Node(phenotype), frequency)))
    program = Minus(All((shared, with_onset(onset))), diseases_with(Node(phenotype)))
    return Draft(program, {"phenotype": phenotype, "frequency": frequency, "onset": onset})


def diseases_by_gene_phenotype(draw: Draw) -> Draft:
    inheritance, disease = draw.common_target("inheritance")
    second, frequency = draw.recorded(disease, hub=True)
    gene = draw.one(draw.near(disease, "gene_disease", reverse=True))
    first = draw.one(draw.hubs(draw.near(gene, "gene_phenotype") - draw.near(disease, *PRESENT)))
    of_linked = diseases_of(Follow(Node(first), ("gene_phenotype",), reverse=True))
    parts = All((of_linked, diseases_with(Node(second), frequency), inherited_by(inheritance)))
    program = Minus(parts, diseases_with(Node(first)))
    slots = {"phenotype_a": first, "phenotype_b": second, "frequency": frequency, "inheritance": inheritance}
    return Draft(program, slots)


def phenotypes_of_inherited_with_onset(draw: Draw) -> Draft:
    onset, disease = draw.common_target("onset")
    inheritance = draw.one(draw.near(disease, "inheritance"))
    phenotype = draw.one(draw.hubs(draw.near(disease, *PRESENT)))
    _, frequency = draw.recorded(disease)
    diseases = All((inherited_by(inheritance), with_onset(onset), diseases_with(Node(phenotype))))
    slots = {"phenotype": phenotype, "frequency": frequency, "inheritance": inheritance, "onset": onset}
    return Draft(phenotypes_of(diseases, frequency), slots)


def phenotypes_absent_in_inherited(draw: Draw) -> Draft:
    disease = draw.with_link("lacks_phenotype")
    inheritance = draw.one(draw.near(disease, "inheritance"))
    phenotype = draw.one(draw.hubs(draw.near(disease, *PRESENT)))
    program = lacked_by(All((inherited_by(inheritance), diseases_with(Node(phenotype)))))
    return Draft(program, {"phenotype": phenotype, "inheritance": inheritance})


# ------------------------------------------------------------------- several hops through few neighbours


def diseases_sharing_gene_with_disease(draw: Draw) -> Draft:
    disease = draw.with_link("gene_disease", reverse=True)
    answer, decoy = draw.some(draw.diseases_of_same_gene(disease), 2)
    first, frequency = draw.recorded(answer, decoy)
    second = draw.one(draw.near(decoy, *PRESENT) - draw.near(answer, *PRESENT))
    kept = All((others_of_gene(disease), diseases_with(Node(first), frequency)))
    program = Minus(kept, diseases_with(Node(second)))
    return Draft(program, {"disease": disease, "phenotype_a": first, "phenotype_b": second, "frequency": frequency})


def phenotypes_shared_through_gene(draw: Draw) -> Draft:
    disease = draw.with_link("gene_disease", reverse=True)
    _, frequency = draw.recorded(disease)
    program = All((phenotypes_of(Node(disease), frequency), phenotypes_of(others_of_gene(disease))))
    return Draft(program, {"disease": disease, "frequency": frequency})


def phenotypes_absent_for_one_gene(draw: Draw) -> Draft:
    disease = draw.with_link("lacks_phenotype")
    first = draw.one(draw.near(disease, "gene_disease", reverse=True))
    answer = draw.one(draw.near(disease, "lacks_phenotype"))
    second = draw.one(draw.near(answer, "gene_phenotype", reverse=True) - {first})
    program = All((lacked_by(diseases_of(Node(first))), phenotypes_of(diseases_of(Node(second)))))
    return Draft(program, {"gene_a": first, "gene_b": second})


def phenotypes_of_two_genes(draw: Draw) -> Draft:
    disease = draw.with_link("gene_disease", reverse=True)
    phenotype, frequency = draw.recorded(disease)
    first = draw.one(draw.near(disease, "gene_disease", reverse=True))
    second = draw.one(draw.near(phenotype, "gene_phenotype", reverse=True) - {first})
    program = All((phenotypes_of(diseases_of(Node(first)), frequency), phenotypes_of(diseases_of(Node(second)))))
    return Draft(program, {"gene_a": first, "gene_b": second, "frequency": frequency})


def siblings_in_disease(draw: Draw) -> Draft:
    disease = draw.with_link("inheritance")
    phenotypes = draw.near(disease, *PRESENT)
    answer = draw.one(phenotypes)
    siblings = draw.near(draw.one(draw.near(answer, "is_a")), "is_a", reverse=True) - {answer}
    phenotype = draw.one(siblings & phenotypes)
    level = Minus(subtypes_of(parents_of(Node(phenotype))), Node(phenotype))
    program = All((level, phenotypes_of(Node(disease))))
    return Draft(program, {"phenotype": phenotype, "disease": disease})


def genes_of_absent_with_recorded(draw: Draw) -> Draft:
    disease = draw.with_link("lacks_phenotype")
    first = draw.one(draw.near(disease, "lacks_phenotype"))
    second = draw.one(draw.near(disease, *PRESENT))
    program = genes_of(All((diseases_lacking(first), diseases_with(Node(second)))))
    return Draft(program, {"phenotype_a": first, "phenotype_b": second})


def genes_of_subtypes(draw: Draw) -> Draft:
    disease = draw.with_link("gene_disease", reverse=True)
    inheritance = draw.one(draw.near(disease, "inheritance"))
    subtype, frequency = draw.recorded(disease)
    phenotype = draw.one(draw.near(subtype, "is_a"))
    diseases = All((diseases_with(subtypes_of(Node(phenotype)), frequency), inherited_by(inheritance)))
    slots = {"phenotype": phenotype, "frequency": frequency, "inheritance": inheritance}
    return Draft(genes_of(diseases), slots)


def diseases_with_subtype_not_parent(draw: Draw) -> Draft:
    disease = draw.with_link("inheritance")
    subtype, second = draw.some(draw.near(disease, *PRESENT), 2)
    first = draw.one(draw.near(subtype, "is_a"))
    kept = All((diseases_with(subtypes_of(Node(first))), diseases_with(Node(second))))
    return Draft(Minus(kept, diseases_with(Node(first))), {"phenotype_a": first, "phenotype_b": second})


# ------------------------------------------------------------------- constraints on definitions


def definitions_two(draw: Draw) -> Draft:
    first, second = draw.mentioned(draw.with_link("is_a"), 2)
    return Draft(All((first, second)), {"phrase_a": first.phrase, "phrase_b": second.phrase})


def subtypes_by_two_phrases(draw: Draw) -> Draft:
    answer = draw.with_link("is_a")
    phenotype = draw.one(draw.near(answer, "is_a"))
    first, second = draw.mentioned(answer, 2)
    program = All((subtypes_of(Node(phenotype)), first, second))
    return Draft(program, {"phenotype": phenotype, "phrase_a": first.phrase, "phrase_b": second.phrase})


def definitions_two_without_third(draw: Draw) -> Draft:
    answer = draw.with_link("is_a")
    first, second = draw.mentioned(answer, 2)
    decoy = draw.one(first.found & second.found - {answer})
    (third,) = draw.mentioned(decoy, but_not=answer)
    program = Minus(All((first, second)), third)
    return Draft(program, {"phrase_a": first.phrase, "phrase_b": second.phrase, "phrase_c": third.phrase})


def definitions_in_disease(draw: Draw) -> Draft:
    disease = draw.with_link("inheritance")
    phenotypes = draw.near(disease, *PRESENT)
    answer = draw.one(phenotypes)
    (first,) = draw.mentioned(answer)
    (second,) = draw.mentioned(draw.one(phenotypes & first.found - {answer}), but_not=answer)
    program = Minus(All((phenotypes_of(Node(disease)), first)), second)
    return Draft(program, {"disease": disease, "phrase_a": first.phrase, "phrase_b": second.phrase})


def diseases_by_definition(draw: Draw) -> Draft:
    disease = draw.with_link("inheritance")
    inheritance = draw.one(draw.near(disease, "inheritance"))
    phenotype, frequency = draw.recorded(disease)
    (mentioning,) = draw.mentioned(phenotype)
    program = All((diseases_with(mentioning, frequency), inherited_by(inheritance)))
    return Draft(program, {"inheritance": inheritance, "frequency": frequency, "phrase": mentioning.phrase})


def genes_by_definition(draw: Draw) -> Draft:
    disease = draw.with_link("onset")
    onset = draw.one(draw.near(disease, "onset"))
    phenotype, frequency = draw.recorded(disease)
    (mentioning,) = draw.mentioned(phenotype)
    program = genes_of(All((diseases_with(mentioning, frequency), with_onset(onset))))
    return Draft(program, {"onset": onset, "frequency": frequency, "phrase": mentioning.phrase})


def subtypes_by_definition(draw: Draw) -> Draft:
    answer = draw.with_link("is_a")
    phenotype = draw.one(draw.near(answer, "is_a"))
    (first,) = draw.mentioned(answer)
    decoy = draw.one(draw.near(phenotype, "is_a", reverse=True) & first.found - {answer})
    (second,) = draw.mentioned(decoy, but_not=answer)
    program = Minus(All((subtypes_of(Node(phenotype)), first)), second)
    return Draft(program, {"phenotype": phenotype, "phrase_a": first.phrase, "phrase_b": second.phrase})


def parents_by_definition(draw: Draw) -> Draft:
    subtype = draw.with_link("is_a")
    parent = draw.one(draw.near(subtype, "is_a"))
    (above,), (below,) = draw.mentioned(parent), draw.mentioned(subtype)
    return Draft(All((above, parents_of(below))), {"phrase_a": above.phrase, "phrase_b": below.phrase})


TEMPLATES = tuple(
    Template(draw.__name__, regime, answers, draw)
    for regime, answers, draw in (
        ("hub", "gene", genes_of_recorded_and_inherited),
        ("hub", "gene", genes_of_two_without_third),
        ("hub", "disease", diseases_sharing_gene_without_phenotype),
        ("hub", "disease", diseases_by_gene_phenotype),
        ("hub", "phenotype", phenotypes_of_inherited_with_onset),
        ("hub", "phenotype", phenotypes_absent_in_inherited),
        ("multihop", "disease", diseases_sharing_gene_with_disease),
        ("multihop", "phenotype", phenotypes_shared_through_gene),
        ("multihop", "phenotype", phenotypes_absent_for_one_gene),
        ("multihop", "phenotype", phenotypes_of_two_genes),
        ("multihop", "phenotype", siblings_in_disease),
        ("multihop", "gene", genes_of_absent_with_recorded),
        ("multihop", "gene", genes_of_subtypes),
        ("multihop", "disease", diseases_with_subtype_not_parent),
        ("text", "phenotype", definitions_two),
        ("text", "phenotype", subtypes_by_two_phrases),
        ("text", "phenotype", definitions_two_without_third),
        ("text", "phenotype", definitions_in_disease),
        ("text", "disease", diseases_by_definition),
        ("text", "gene", genes_by_definition),
        ("text", "phenotype", subtypes_by_definition),
        ("text", "phenotype", parents_by_definition),
    )
)
