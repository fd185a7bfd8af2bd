"""A model that replays a written list of replies: for tests, and to see what a harness does with a given reply.

replies.json, one list of attempts a query ("*": any query), each attempt a list of replies:

    {"*": [[{"calls": [{"name": "bash", "arguments": {"command": "ls"}}], "usage": {"input_fresh": 900, "output": 12}},
            {"text": "{\\"node_ids\\": [4]}"}]]}

The last attempt of a list stands for all later ones. `arguments` may be a string, which is passed on as it is.
`{"error": {"message": "...", "kind": "server"}, "usage": {...}}` raises, `"sleep_s"` waits first (never past the deadline).
Not covered: replies that depend on what the tools said.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import TypeAdapter, ValidationError

from dkgi.types import Item, Model, ModelError, Place, Prices, Reply, SetupError, ToolCall, ToolSpec, Usage

_SCRIPTS = TypeAdapter(dict[str, list[list[dict[str, Any]]]])


@dataclass(frozen=True, slots=True)
class ScriptedSpec:
    """From conf/model/scripted.yaml. `replies` is the path of the file."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["scripted"]
    name: str
    replies: Path
    prices: Prices | None

    @property
    def reads(self) -> tuple[Path, ...]:
        """The files that a process needs which has this model."""
        return (self.replies.absolute(),)


class Scripted:
    """All scripts of one file. Raises SetupError where the file cannot be used."""

    def __init__(self, spec: ScriptedSpec) -> None:
        try:
            # Not by the validator's own parser, which refuses half a surrogate pair: a script may hold what models say.
            self._scripts = _SCRIPTS.validate_python(json.loads(spec.replies.read_bytes()))
        except ValidationError as error:
            fault = error.errors()[0]
            where = "".join(f"[{part!r}]" for part in fault["loc"])
            form = "its form is {query: [attempt: [reply, ...]]}"
            raise SetupError(f"model.replies: cannot use {spec.replies}{where}: {fault['msg']}; {form}") from None
        except (OSError, ValueError) as error:
            raise SetupError(
                f"model.replies: cannot use {spec.replies}: {error}; name a JSON file of replies"
            ) from None

    def model(self, place: Place) -> Model:
        attempts = self._scripts.get(str(place.query)) or self._scripts.get("*")
        if not attempts:
            raise SetupError(f"model.replies: no script for query {place.query}; add one under its number or under *")
        return _Script(attempts[min(place.attempt, len(attempts)) - 1], place.deadline)


@dataclass(frozen=True, slots=True)
class _Script:
    replies: list[dict[str, Any]]
    deadline: float

    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        turn = sum(isinstance(item, Reply) for item in history)
        if turn >= len(self.replies):
            raise ModelError(f"the script ends after {len(self.replies)} replies", kind="script_end")
        line = self.replies[turn]
        time.sleep(max(0.0, min(line.get("sleep_s", 0.0), self.deadline - time.monotonic())))
        usage = Usage(**{"requests": 1, **line.get("usage", {})})
        if error := line.get("error"):
            raise ModelError(error["message"], kind=error["kind"], usage=usage, retryable=error.get("retryable", False))
        return Reply(
            text=line.get("text", ""),
            calls=tuple(_call(call, turn, place) for place, call in enumerate(line.get("calls", ()))),
            usage=usage,
            reasoning_summary=line.get("reasoning_summary", ""),
            stop=line.get("stop", "end"),
        )


def _call(call: dict[str, Any], turn: int, place: int) -> ToolCall:
    arguments = call["arguments"]
    return ToolCall(
        f"call_{turn}_{place}", call["name"], arguments if isinstance(arguments, str) else json.dumps(arguments)
    )
