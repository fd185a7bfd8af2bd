"""Models by their `kind`, loaded when one is opened.

>>> open_models(ScriptedSpec(kind="scripted", name="scripted", replies=Path("replies.json"), prices=None))
Scripted(...)

Not covered: providers' models (their wires are modules of this folder).
"""

from importlib import import_module
from typing import Any

from dkgi.types import ModelSource

_KINDS = {
    "heuristic": "dkgi.models.heuristic:Heuristic",
    "scripted": "dkgi.models.scripted:Scripted",
}


def open_models(spec: Any) -> ModelSource:
    """The source of models that a model's configuration describes. Raises SetupError where it cannot work."""
    module, _, name = _KINDS[spec.kind].partition(":")
    source: ModelSource = getattr(import_module(module), name)(spec)
    return source
