"""No model: for harnesses that ask none.

>>> NoModels(NoModelSpec(kind="none", name="no_model", prices=None)).model(place)
NoModel()

Not covered: which harnesses these are; each says so by `asks_model`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from dkgi.types import Item, Model, Place, Prices, Reply, SetupError, ToolSpec


@dataclass(frozen=True, slots=True)
class NoModelSpec:
    """From conf/model/no_model.yaml."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["none"]
    name: str
    prices: Prices | None


@dataclass(frozen=True, slots=True)
class NoModels:
    spec: NoModelSpec

    def model(self, place: Place) -> Model:
        return NoModel()


@dataclass(frozen=True, slots=True)
class NoModel:
    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        raise SetupError("model=no_model: this harness asks a model; name one")
