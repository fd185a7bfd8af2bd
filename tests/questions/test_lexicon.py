import pytest

from dkgi.questions.lexicon import Names, Phrases


def test_a_name_that_another_node_has_in_any_case_or_scope_is_not_used() -> None:
    names = Names([(1, ["Seizure", "Fit"], []), (2, ["Convulsion"], ["fit"]), (3, ["CONVULSION"], [])])
    assert [names.of(node) for node in (1, 2, 3)] == [["Seizure"], [], []]


def test_a_node_may_repeat_its_own_name_in_another_case() -> None:
    assert Names([(1, ["Café-au-lait spot", "Café-Au-Lait spot"], [])]).of(1) == [
        "Café-au-lait spot",
        "Café-Au-Lait spot",
    ]


@pytest.mark.parametrize(
    "name",
    ["See HP:0001250", "Type 618120", "#1 syndrome", 'The "new" one', "Loss (partial)", "IQ", "obsolete Fit", "x" * 71],
)
def test_a_name_with_an_identifier_or_unfit_for_a_sentence_is_not_used(name: str) -> None:
    assert Names([(1, [name, "Fine name"], [])]).of(1) == ["Fine name"]


def test_phrases_are_pairs_of_telling_words_that_three_definitions_share() -> None:
    phrases = Phrases(dict.fromkeys((1, 2, 3), "An abnormally thin renal cortex; cortex in the left kidney."))
    assert phrases.of(1) == ["left kidney", "renal cortex", "thin renal"]
    assert Phrases({1: "Thin renal cortex.", 2: "Renal cortex."}).of(1) == []
    assert phrases.of(99) == []


def test_a_phrase_is_found_in_any_case_and_at_either_end() -> None:
    phrases = Phrases({4: "Renal cortex", 7: "the RENAL CORTEX.", 9: "Cortex, renal."})
    assert phrases.found("renal cortex") == frozenset({4, 7})
    assert phrases.found("liver") == frozenset()


@pytest.mark.parametrize(
    "text", ["Renal cortexes.", "An adrenal cortex.", "The renal cortex-like zone.", "Renal cortex2"]
)
def test_a_phrase_that_stands_within_longer_words_somewhere_is_not_clear(text: str) -> None:
    assert Phrases({1: "The renal cortex.", 2: text}).found("renal cortex") is None
