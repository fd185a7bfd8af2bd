"""Harnesses by their `kind`, loaded when one is opened.

>>> open_harness(NativeSpec(kind="native", name="native", context=Level3()))
Native(spec=NativeSpec(...))

Not covered: what a harness may do (types.Harness).
"""

from importlib import import_module
from typing import Any

from dkgi.types import Harness

_KINDS = {
    "bm25": "dkgi.harness.bm25:open_bm25",
    "codex": "dkgi.harness.codex:Codex",
    "dense": "dkgi.harness.dense:open_dense",
    "hybrid": "dkgi.harness.hybrid:open_hybrid",
    "native": "dkgi.harness.native:Native",
    "pi": "dkgi.harness.pi:Pi",
}


def open_harness(spec: Any) -> Harness:
    """The harness that its configuration describes."""
    module, _, name = _KINDS[spec.kind].partition(":")
    harness: Harness = getattr(import_module(module), name)(spec)
    return harness
