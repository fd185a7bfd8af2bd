"""Context management level 3 of DCI-Agent-Lite: what of the history a model gets to see (paper, section 4).

>>> compact([UserText("q"), ToolResult("1", "bash", "x" * 20_001)], Level3())[1].text[-34:]
'\\n[...truncated, 1 chars omitted]'[-34:]

Two rules and no model call. Each tool result is cut to its first 20,000 UTF-16 units. When the cut results together
pass 240,000 units, those before the latest 12 replies give way to a placeholder. Prompt, text, reasoning and tool
calls (the agent's code) always stay. The history itself is left as it is.
Not covered: a context that overflows all the same; the model's wire reports that.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from dkgi.types import Item, Reply, ToolResult


@dataclass(frozen=True, slots=True)
class Level3:
    """Bounds in UTF-16 units (`max_chars` a result, `clear_above` all results) and in replies (`keep_turns`)."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    max_chars: int = 20_000
    clear_above: int = 240_000
    keep_turns: int = 12
    placeholder: str = "[cleared]"


def compact(history: Sequence[Item], bounds: Level3) -> list[Item]:
    """The history as the next request shows it; items that no rule touches are the same objects."""
    items = [_cut(item, bounds.max_chars) if isinstance(item, ToolResult) else item for item in history]
    if sum(_units(item.text) for item in items if isinstance(item, ToolResult)) <= bounds.clear_above:
        return items
    boundary = _boundary(items, bounds.keep_turns)
    return [
        replace(item, text=bounds.placeholder) if isinstance(item, ToolResult) and place < boundary else item
        for place, item in enumerate(items)
    ]


def _boundary(items: Sequence[Item], keep_turns: int) -> int:
    """Place of the reply before the latest `keep_turns` ones; results before it are cleared."""
    replies = [place for place, item in enumerate(items) if isinstance(item, Reply)]
    return replies[-keep_turns - 1] if len(replies) > keep_turns else 0


def _cut(result: ToolResult, max_chars: int) -> ToolResult:
    units = _units(result.text)
    if units <= max_chars:
        return result
    head = result.text.encode("utf-16-le", "surrogatepass")[: 2 * max_chars].decode("utf-16-le", "ignore")
    return replace(result, text=f"{head}\n[...truncated, {units - _units(head)} chars omitted]")


def _units(text: str) -> int:
    """Length in UTF-16 units, the measure of the JavaScript original: characters beyond U+FFFF count twice."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
