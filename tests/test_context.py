"""Context level 3: figures of the original (facts of DCI-Agent-Lite's level 3), in UTF-16 units."""

from dkgi.context import Level3, compact
from dkgi.types import Item, Reply, ToolCall, ToolResult, UserText

BOUNDS = Level3()


def conversation(results: int, size: int) -> list[Item]:
    items: list[Item] = [UserText("question")]
    for turn in range(results):
        items += [Reply(calls=(ToolCall(str(turn), "bash", "{}"),)), ToolResult(str(turn), "bash", "x" * size)]
    return items


def cleared(items: list[Item]) -> int:
    return sum(isinstance(item, ToolResult) and item.text == "[cleared]" for item in items)


def test_a_result_within_the_bound_is_the_same_object() -> None:
    items = conversation(1, 20_000)
    assert compact(items, BOUNDS)[2] is items[2]


def test_a_long_result_keeps_its_first_20000_units_and_says_how_many_are_gone() -> None:
    result = compact(conversation(1, 51_237), BOUNDS)[2]
    assert isinstance(result, ToolResult)
    assert result.text == "x" * 20_000 + "\n[...truncated, 31237 chars omitted]"


def test_characters_beyond_the_basic_plane_count_as_two_units_and_are_never_split() -> None:
    result = compact([ToolResult("1", "bash", "a" + "\N{GRINNING FACE}" * 10_000)], BOUNDS)[0]
    assert isinstance(result, ToolResult)
    assert result.text == "a" + "\N{GRINNING FACE}" * 9_999 + "\n[...truncated, 2 chars omitted]"


def test_clearing_starts_when_results_pass_240000_units_and_spares_the_latest_turns() -> None:
    # 20 results of 19,008 units: the original clears first at request 15, and 7 results at request 21.
    assert cleared(compact(conversation(13, 19_008), BOUNDS)) == 0
    assert cleared(compact(conversation(14, 19_008), BOUNDS)) == 1
    at_21 = compact(conversation(20, 19_008), BOUNDS)
    assert cleared(at_21) == 7
    assert all(isinstance(item, ToolResult) and item.text == "[cleared]" for item in at_21[2:16:2])


def test_prompt_and_calls_survive_clearing_and_the_history_is_left_alone() -> None:
    items = conversation(20, 19_008)
    before = list(items)
    shown = compact(items, BOUNDS)
    assert items == before
    assert [item for item in shown if not isinstance(item, ToolResult)] == [
        item for item in items if not isinstance(item, ToolResult)
    ]


def test_the_sum_is_taken_after_cutting() -> None:
    # 12 results of 100,000 units are cut to 20,000 each, which stays within the bound with their notices left out.
    assert cleared(compact(conversation(11, 100_000), BOUNDS)) == 0
