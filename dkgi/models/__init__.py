"""Models by their `kind`, loaded when one is opened.

>>> open_models(ScriptedSpec(kind="scripted", name="scripted", replies=Path("replies.json"), prices=None))
Scripted(...)

A model behind a provider has the name of its wire as its kind.
Not covered: what a model is (types.Model).
"""

from importlib import import_module
from typing import Any

from dkgi.types import ModelSource

_KINDS = {
    "anthropic_messages": "dkgi.models.anthropic_messages:open_source",
    "heuristic": "dkgi.models.heuristic:Heuristic",
    "none": "dkgi.models.none:NoModels",
    "openai_chat": "dkgi.models.openai_chat:open_source",
    "openai_responses": "dkgi.models.openai_responses:open_source",
    "replay": "dkgi.models.replay:Replay",
    "scripted": "dkgi.models.scripted:Scripted",
}


def open_models(spec: Any) -> ModelSource:
    """The source of models that a model's configuration describes. Raises SetupError where it cannot work."""
    module, _, name = _KINDS[spec.kind].partition(":")
    source: ModelSource = getattr(import_module(module), name)(spec)
    return source
