"""A recorded cell once more, at no cost: the n-th request of an attempt gets the reply that it got then.

    $ python -m dkgi model=replay model.cell=5d1f

Replies, their tokens and the errors of the provider come from the cell's steps; tools run anew, in real jails. Of a
query that was tried again after its end, the last round of attempts is replayed, and of attempts that were cut off none.
An attempt that ran out of time ends at the same request, without waiting. Nothing but the prompt has to be as it was.
Not covered: requests that the cell has no record of, which are a ModelError of the kind `no_record`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator

from dkgi.paths import runs_dir
from dkgi.store import Cell, RecordedAttempt, cells
from dkgi.types import (
    Item,
    Model,
    ModelError,
    Place,
    Prices,
    Reply,
    SetupError,
    Step,
    ToolCall,
    ToolSpec,
    Usage,
    UserText,
)

_SAME_AXES = ("dataset", "split", "harness", "tools", "prompt")


def _whole_id(prefix: Any) -> str:
    """The id that begins with `prefix`; the whole one, since it is part of what the replaying cell is."""
    if not isinstance(prefix, str):
        raise ValueError(f"an id of digits needs quotes: \"model.cell='{prefix}'\"")
    found = [cell.id for cell in cells(runs_dir()) if cell.id.startswith(prefix)]
    if len(found) != 1:
        raise ValueError(
            f"{len(found)} cells in {runs_dir() / 'cells'} have an id that begins with {prefix!r}; name one"
        )
    return found[0]


@dataclass(frozen=True, slots=True)
class ReplaySpec:
    """From conf/model/replay.yaml. `cell` is the beginning of the recorded cell's id, and the whole id once checked."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["replay"]
    name: str
    cell: Annotated[str, BeforeValidator(_whole_id)]
    prices: Prices | None

    @property
    def reads(self) -> tuple[Path, ...]:
        """The folders that a process needs which has this model."""
        return (runs_dir() / "cells" / self.cell,)

    def check(self, axes: Mapping[str, str]) -> None:
        """Raise ValueError where the recorded cell asked, drove or told its model otherwise than `axes` say."""
        recorded = Cell(runs_dir() / "cells" / self.cell).manifest["axes"]
        for axis in _SAME_AXES:
            if recorded[axis] != axes[axis]:
                raise ValueError(
                    f"model.cell: {self.cell} was recorded with {axis}={recorded[axis]}, not {axes[axis]}; set it so"
                )


class Replay:
    """The models of one recorded cell."""

    def __init__(self, spec: ReplaySpec) -> None:
        self._cell = Cell(runs_dir() / "cells" / spec.cell)
        self._attempts: int = self._cell.manifest["config"]["limits"]["attempts"]

    def model(self, place: Place) -> Model:
        tries = [attempt for attempt in self._cell.attempts(place.query, place.repeat) if attempt.counts]
        if not tries:
            raise SetupError(
                f"model.cell: {self._cell.id} has no record of query {place.query}, repeat {place.repeat}; "
                "set limit and repeats to what it has, or run that cell further"
            )
        # Every round but the last one used up all attempts, else there would have been no other.
        last_round = tries[(len(tries) - 1) // self._attempts * self._attempts :]
        # A replay that was killed and goes on counts higher than what it replays: the last one stands for all later ones.
        return _Player(last_round[min(place.attempt, len(last_round)) - 1])


class _Player:
    def __init__(self, attempt: RecordedAttempt) -> None:
        assert attempt.end is not None
        self._end = attempt.end
        self._asked = {step.text for step in attempt.steps if step.type == "user"}
        self._turn = 0
        self._replies = _replies(attempt.steps)
        acted_on = attempt.steps[-1].type == "tool_result" if attempt.steps else False
        if self._replies and self._end.stop == "time_limit" and not acted_on:
            # It came too late to count.
            self._replies.pop()
        if self._replies and self._end.stop == "refused" and not self._end.error:
            self._replies[-1] = replace(self._replies[-1], stop="refused")

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        # External programs add messages of their own, with today's date say.
        if not self._asked & {item.text for item in history if isinstance(item, UserText)}:
            raise ModelError("the recorded prompt differs from this one", kind="no_record")
        # ... and where they put a summary in the place of what was said, a history has fewer replies than were given.
        turn = max(self._turn, sum(isinstance(item, Reply) for item in history))
        self._turn = turn + 1
        if turn < len(self._replies):
            return self._replies[turn]
        raise self._ending()

    def _ending(self) -> ModelError:
        """What came instead of another reply, with what it cost beyond the replies."""
        usage = _difference(self._end.usage, sum((reply.usage for reply in self._replies), Usage()))
        if self._end.stop == "time_limit":
            return ModelError(self._end.error, kind="time_limit", usage=usage)
        kind, _, message = self._end.error.partition(": ")
        if self._end.stop in ("model_error", "refused"):
            return ModelError(message, kind=kind, usage=usage)
        ended = f"the recorded attempt ended after {len(self._replies)} replies: {self._end.stop}"
        return ModelError(ended, kind="no_record")


def _replies(steps: Sequence[Step]) -> list[Reply]:
    """The replies of a trajectory. The first step of each has its usage."""
    replies: list[Reply] = []
    for step in steps:
        if step.usage is not None:
            replies.append(Reply(usage=step.usage))
        if step.type == "reasoning_summary":
            replies[-1] = replace(replies[-1], reasoning_summary=step.text)
        elif step.type == "assistant":
            replies[-1] = replace(replies[-1], text=step.text)
        elif step.type == "tool_call":
            call = ToolCall(step.call_id or "", step.name or "", step.text)
            replies[-1] = replace(replies[-1], calls=(*replies[-1].calls, call))
    return replies


def _difference(whole: Usage, part: Usage) -> Usage:
    return Usage(
        whole.input_fresh - part.input_fresh,
        whole.cache_read - part.cache_read,
        whole.cache_write - part.cache_write,
        whole.output - part.output,
        whole.reasoning - part.reasoning,
        whole.requests - part.requests,
        whole.complete,
    )
