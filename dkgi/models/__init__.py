"""Models by their `kind`, loaded when one is opened.

>>> open_models(ScriptedSpec(kind="scripted", name="scripted", replies=Path("replies.json"), prices=None))
Scripted(...)

    open_models(spec, lines=lines)              a cell of a grid: one limiter and one set of connections a provider
    open_models(spec, transports=to_parent)     a process without a key, whose requests somebody else sends

A model behind a provider has the name of its wire as its kind.
Not covered: what a model is (types.Model).
"""

from importlib import import_module
from typing import Any

from dkgi.lines import Lines
from dkgi.models.provider import ProviderSpec, Transports
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


def open_models(spec: Any, *, transports: Transports | None = None, lines: Lines | None = None) -> ModelSource:
    """The source of models that a model's configuration describes. Raises SetupError where it cannot work.

    The two options are for models behind a provider (models/provider.py); others send nothing.
    """
    module, _, name = _KINDS[spec.kind].partition(":")
    opened = getattr(import_module(module), name)
    source: ModelSource = opened(spec, transports, lines) if isinstance(spec, ProviderSpec) else opened(spec)
    return source
