"""What the rule-based agent makes of a question before it runs a program for it, and of what the programs print."""

import json
from pathlib import Path

import pytest

from dkgi.models.heuristic.evidence import findings, ranked
from dkgi.models.heuristic.reading import Edge, Reading
from dkgi.models.heuristic.schema import parse_schema
from dkgi.models.heuristic.text import Text
from dkgi.models.heuristic.understanding import understand

SHOWN = '{"start": %d, "end": %d, "nodes": [[14, "festival", "Ulm Film Days"]]}'


@pytest.fixture(scope="session")
def schema(film_export: Path) -> str:
    return (film_export / "schema.json").read_text()


def test_a_word_in_many_names_of_one_type_is_a_noun_for_it(schema: str) -> None:
    question = "Which sagas were shown at Ulm Film Days?"
    link = SHOWN % (question.index("Ulm"), len(question) - 1)
    counts = [
        json.dumps({"type": type_, "attributes": {"name": [900, 2000]}, "words": {"saga": count}})
        for type_, count in (("film", 300), ("person", 40))
    ]
    (reading, *_) = understand(question, schema, "\n".join([link, *counts])).readings
    assert reading.types[reading.answer] == {"film"}
    assert understand(question, schema, link).readings == ()


def test_another_is_none_of_the_named_nodes(schema: str) -> None:
    question = "Which people star in The Long Boat and in another film?"
    start = question.index("The")
    link = json.dumps({"start": start, "end": start + 13, "nodes": [[0, "film", "The Long Boat"]]})
    understood = understand(question, schema, link)
    assert "all_of('film') - N(0)" in understood.expressions(understood.readings[0])[0]


def test_names_in_quotes_are_words_and_words_with_a_meaning_of_their_own_are_no_names(schema: str) -> None:
    question = 'Which genre has "Drama" or Comedy as its name?'
    nodes = [[10, "genre", "Drama"]]
    places = [(question.index(word), question.index(word) + len(word)) for word in ("Drama", "Comedy", "genre")]
    parsed = parse_schema(schema)
    assert parsed is not None
    text = Text.of(question, [{"start": start, "end": end, "nodes": nodes} for start, end in places], parsed)
    assert " ".join(text.words) == "which genre has <quote> or <name> as its name ?"


def test_the_attribute_of_long_texts_is_the_one_that_is_asked_for_or_the_most_frequent(schema: str) -> None:
    attributes = {"type": "film", "attributes": {"plot": [6, 90], "review": [4, 80], "title": [6, 12]}, "words": {}}
    assert understand("Which films?", schema, json.dumps(attributes)).keys == {"film": "plot"}
    assert understand("Which films have good reviews?", schema, json.dumps(attributes)).keys == {"film": "review"}


READING = Reading(0, (frozenset({"film"}),), (Edge(0, (14,), frozenset({6}), True, ()),), 0.5)
OTHER = Reading(0, (frozenset({"film"}),), (Edge(0, (15,), frozenset({6}), True, ()),), 0.5)


def test_a_reading_in_which_a_requirement_changes_nothing_weighs_less() -> None:
    lines = [
        {"reading": 0, "size": 2, "ids": [4, 7], "looser": [2, 5]},
        {"reading": 1, "size": 2, "ids": [7, 8], "looser": [3, 5]},
    ]
    found = findings([READING, OTHER], lines)
    assert [finding.reading for finding in found] == [READING, OTHER]
    assert found[0].weight < found[1].weight
    assert ranked(found) == [7, 8, 4]


def test_a_reading_with_many_answers_weighs_less_and_one_without_any_does_not_count() -> None:
    lines = [
        {"reading": 0, "size": 400, "ids": [1, 2], "looser": []},
        {"reading": 1, "size": 0, "ids": [], "looser": [3, 5]},
    ]
    (finding,) = findings([READING, OTHER], lines)
    assert (finding.reading, finding.nodes) == (READING, (1, 2))
    assert finding.weight == pytest.approx(0.05)
