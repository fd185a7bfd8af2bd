import pytest

from dkgi.kg.text import SNIPPET, IndexSpec, name_and_summary, names_of, snippet, words_of

SPEC = IndexSpec(names=("title", "original", "details.alias"), summary=("abstract", "details.parts.text"))


def test_the_first_name_that_is_there_is_the_name_and_the_others_open_the_summary() -> None:
    record = {"original": "Der Kahn", "details": {"alias": ["Kahn", "Boot"]}, "abstract": "Ice."}
    assert name_and_summary(record, SPEC) == ("Der Kahn", "Kahn; Boot; Ice.")
    assert names_of(record, SPEC.names) == ["Der Kahn", "Kahn", "Boot"]


def test_no_text_stands_twice_and_each_is_on_one_line() -> None:
    record = {
        "title": "Ice",
        "original": "Ice",
        "abstract": " Ice \n\t and  snow ",
        "details": {"parts": [{"text": "Ice"}]},
    }
    assert name_and_summary(record, SPEC) == ("Ice", "Ice and snow")


@pytest.mark.parametrize(
    "record",
    [{}, {"title": -1}, {"title": None, "abstract": 3.5}, {"title": "  "}, {"details": "text"}, {"details": [[]]}],
)
def test_what_is_no_text_is_no_name_and_no_summary(record: dict[str, object]) -> None:
    assert name_and_summary(record, SPEC) == ("", "")


def test_words_are_runs_of_letters_and_digits_of_any_script_in_lower_case() -> None:
    assert words_of("Ångström's β-2_x, ДНК; 中文\ud800!") == ["ångström", "s", "β", "2", "x", "днк", "中文"]


def test_a_snippet_shows_the_first_query_word_that_matches_and_cuts_between_words() -> None:
    text = "alpha " * 100 + "needle " + "omega " * 100
    shown = snippet(text, ["missing", "needle", "alpha"])
    assert "needle" in shown
    assert shown.startswith("...alpha ")
    assert shown.endswith("omega...")
    assert len(shown) <= SNIPPET + 6


@pytest.mark.parametrize("text", ["", "short", "x" * 5000, "a b " * 400])
def test_a_snippet_without_a_match_is_the_beginning(text: str) -> None:
    shown = snippet(text, ["missing"]).removesuffix("...")
    assert text.startswith(shown)
    assert len(shown) <= SNIPPET
    assert bool(shown) == bool(text)


@pytest.mark.parametrize("place", [0, 1, 60, 150, 300, 398])
def test_a_snippet_holds_the_word_wherever_it_stands(place: int) -> None:
    words = ["w"] * 400
    words[place] = "needle"
    assert "needle" in snippet(" ".join(words), ["needle"])
