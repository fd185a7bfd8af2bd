"""Names that a model gave in place of IDs, mapped to nodes when they are scored (paper, section 8).

>>> nodes_of = read_names(export, ("name", "synonyms.text"))
>>> nodes_of("  SEIZURE "), nodes_of(17)
(frozenset({1250}), frozenset())

Both sides are normalised: NFKC, case folding, everything but letters and digits as a space. A name stands for every
node that has it.
Not covered: names that are only nearly right; which attributes are names (conf/dataset).
"""

import unicodedata
from collections import defaultdict
from collections.abc import Sequence, Set
from pathlib import Path
from typing import Any

from dkgi.graph.read import read_nodes
from dkgi.kg.text import names_of
from dkgi.metrics import NodesOf
from dkgi.types import SetupError


def read_names(export: Path, paths: Sequence[str]) -> NodesOf:
    """What each name stands for in an export. `paths` are dotted paths of attributes; a list on the way means each entry.

    Raises SetupError where there are none.
    """
    if not paths:
        raise SetupError(
            f"dataset.index.names: none are set for {export.name}, and names are to be mapped to its nodes"
        )
    found: dict[str, set[int]] = defaultdict(set)
    for node in read_nodes(export):
        for name in names_of(node.attributes, paths):
            found[normalise(name)].add(node.node_id)
    found.pop("", None)

    def nodes_of(entry: Any) -> Set[int]:
        return found.get(normalise(entry), frozenset()) if isinstance(entry, str) else frozenset()

    return nodes_of


def normalise(name: str) -> str:
    """`"The  Café-au-lait\u00a0spot"` -> `"the café au lait spot"`."""
    folded = unicodedata.normalize("NFKC", name).casefold()
    return " ".join("".join(character if character.isalnum() else " " for character in folded).split())
