"""The final message: one JSON object with one key, or a failed attempt."""

import pytest

from dkgi.answer import parse_answer
from dkgi.types import AnswerError


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ('{"node_ids": [3, 1, 2]}', (3, 1, 2)),
        ('  \n{"node_ids":[]}\n', ()),
        ('{"node_ids": ["HP:0001", 1.5, null, true, [1], {"a": 1}]}', ("HP:0001", 1.5, None, True, [1], {"a": 1})),
        ('{"node_ids": ' + str(list(range(100))) + "}", tuple(range(100))),
    ],
)
def test_a_valid_answer_keeps_every_entry_in_its_place(text: str, entries: tuple[object, ...]) -> None:
    assert parse_answer(text, key="node_ids").entries == entries


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the answer is 3",
        "[3]",
        "3",
        '```json\n{"node_ids": [3]}\n```',
        'Here: {"node_ids": [3]}',
        '{"node_ids": [3]} done',
        '{"ids": [3]}',
        '{"node_ids": [3], "why": "x"}',
        '{"node_ids": [3], "node_ids": [4]}',
        '{"node_ids": 3}',
        '{"node_ids": {"0": 3}}',
        '{"node_ids": [NaN]}',
        '{"node_ids": [3]',
        '{"node_ids": ' + str(list(range(101))) + "}",
        '{"node_ids": ' + "[" * 100_000 + "]" * 100_000 + "}",
    ],
)
def test_any_other_message_is_an_answer_error(text: str) -> None:
    with pytest.raises(AnswerError):
        parse_answer(text, key="node_ids")


def test_the_key_is_the_one_that_the_prompt_declares() -> None:
    assert parse_answer('{"names": ["a"]}', key="names").entries == ("a",)
    with pytest.raises(AnswerError):
        parse_answer('{"names": ["a"]}', key="node_ids")
