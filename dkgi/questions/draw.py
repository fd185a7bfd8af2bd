"""Random constants for questions about the hpo graph: nodes, frequencies and phrases that belong together.

>>> inheritance, disease = draw.common_target("inheritance")               # doctest: +SKIP
>>> phenotype, frequency = draw.recorded(disease, hub=True)                # doctest: +SKIP

Every choice is made from a sorted list, so that a seed gives the same questions in every process.
Not covered: what the constants are drawn for (templates.py).
"""

import random
from collections.abc import Iterable
from functools import cache
from itertools import islice
from typing import Any

from dkgi.questions.lexicon import Names, Phrases
from dkgi.questions.programs import Links, Mentions, Nodes

FREQUENCIES = ("obligate", "very frequent", "frequent", "occasional", "very rare")
PRESENT = tuple(f"has_phenotype_{name.replace(' ', '_')}" for name in (*FREQUENCIES, "unspecified"))
"""Together these relations say that a phenotype is recorded in a disease."""

RECORDED = (*PRESENT, "lacks_phenotype")
"""What "recorded" could be taken for as well: recorded as present or as absent."""


FEW = 20
"""Neighbours that one tool call shows at most; a node with more is a hub."""

HUB = (3 * FEW, 10 * FEW)
"""Neighbours of the hubs that are drawn: well above FEW, and not so many that they narrow nothing down."""


class NoChoice(Exception):
    """There is nothing to draw: the constants drawn so far lead nowhere."""


def present_as(frequency: str) -> str:
    """The relation that records a phenotype with this frequency."""
    return f"has_phenotype_{frequency.replace(' ', '_')}"


class Draw:
    """Random constants of one graph."""

    def __init__(self, links: Links, names: Names, phrases: Phrases, rng: random.Random) -> None:
        self.links = links
        self.names = names
        self.phrases = phrases
        self.rng = rng
        self.all_hubs = cache(self._all_hubs)
        self.common_targets = cache(self._common_targets)

    def one(self, choices: Iterable[Any]) -> Any:
        """One of `choices`; NoChoice where there are none."""
        ordered = sorted(choices)
        if not ordered:
            raise NoChoice
        return self.rng.choice(ordered)

    def some(self, choices: Iterable[Any], count: int) -> list[Any]:
        """`count` different ones of `choices`."""
        ordered = sorted(choices)
        if len(ordered) < count:
            raise NoChoice
        return self.rng.sample(ordered, count)

    def near(self, node: int, *relations: str, reverse: bool = False) -> Nodes:
        return self.links.of((node,), relations, reverse)

    def with_link(self, relation: str, reverse: bool = False) -> int:
        """A node that has the relation."""
        return int(self.rng.choice(self.links.nodes(relation, reverse)))

    def common_target(self, relation: str) -> tuple[int, int]:
        """A target that is a hub and one of its sources. Rarer targets are as likely as common ones."""
        target = self.one(self.common_targets(relation))
        return target, int(self.one(self.near(target, relation, reverse=True)))

    def _common_targets(self, relation: str) -> list[int]:
        nodes = self.links.nodes(relation, reverse=True)
        return [
            node for node in nodes if len(self.near(node, relation, reverse=True)) >= HUB[0] and self.names.of(node)
        ]

    def recorded(self, *diseases: int, hub: bool = False) -> tuple[int, str]:
        """A phenotype and a frequency that it is recorded with in each of the diseases; a hub where asked for."""
        shared = {}
        for name in FREQUENCIES:
            found = frozenset.intersection(*(self.near(disease, present_as(name)) for disease in diseases))
            shared[name] = self.hubs(found, present_as(name)) if hub else found
        frequency = self.one(name for name in FREQUENCIES if shared[name])
        return self.one(shared[frequency]), frequency

    def hubs(self, phenotypes: Nodes, *relations: str) -> Nodes:
        """Those that one of the relations joins to a number of diseases within HUB."""
        return phenotypes & self.all_hubs(relations or PRESENT)

    def _all_hubs(self, relations: tuple[str, ...]) -> Nodes:
        nodes = {node for relation in relations for node in self.links.nodes(relation, reverse=True)}
        return frozenset(n for n in nodes if HUB[0] <= self.links.most(n, relations, reverse=True) <= HUB[1])

    def diseases_of_same_gene(self, disease: int) -> Nodes:
        genes = self.near(disease, "gene_disease", reverse=True)
        return self.links.of(genes, ("gene_disease",), reverse=False) - {disease}

    def mentioned(self, node: int, count: int = 1, but_not: int | None = None) -> list[Mentions]:
        """`count` clear phrases of the node's definition, none of them a phrase of the definition of `but_not`."""
        others = self.phrases.of(but_not) if but_not is not None else ()
        phrases = [phrase for phrase in self.phrases.of(node) if phrase not in others]
        clear = ((phrase, self.phrases.found(phrase)) for phrase in self.some(phrases, len(phrases)))
        found = list(islice((Mentions(phrase, nodes) for phrase, nodes in clear if nodes is not None), count))
        if len(found) < count:
            raise NoChoice
        return found
