"""What the words of schema.json mean: which nouns name a type, which words point to a relation.

>>> schema = parse_schema(text)
>>> schema.nouns[stem("movies")], schema.cues[stem("directed")]
({'film': 0.0}, frozenset({3}))

Everything is learned from names and descriptions, mostly from the descriptions: they carry the meaning also where the
names are opaque. "The film (source) was directed by the person (target)" teaches nouns for the types at both ends and
the words that set this relation apart from others between the same types.
Not covered: attributes, which schema.json does not list (programs.py looks at the data).
"""

import json
import re
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from dkgi.models.heuristic.words import (
    ABSENCES,
    AUXILIARIES,
    CLASSES,
    DEGREES,
    GENERIC,
    OPPOSITES,
    PREPOSITIONS,
    STOP,
    SYNONYMS,
    noun_key,
    stem,
)

T = TypeVar("T")

AROUND = 1.0
"""The cost of a word that stands before a noun: "human" in "a human gene"."""

_CHUNK = re.compile(r"[.,:;()]|\bor\b|->")
_EXAMPLES = re.compile(r"\bsuch as [^.;]*")
_WORD = re.compile(r"[^\W_]+")
_ARROW = re.compile(r"([^\W_]+)(?: term| node)? -> ([^\W_]+)")
_END = re.compile(r"([^\W_]+) \((source|target)\)")
_HEAD_ENDS = AUXILIARIES | PREPOSITIONS | frozenset(["that", "which", "who", "as", "such", "how", "its"])
_ABSENCE_STEMS = frozenset(stem(word) for phrase in ABSENCES for word in phrase if word not in STOP)


@dataclass(frozen=True, slots=True)
class Relation:
    """One relation type; `negative` where its rows record an absence."""

    id: int
    file: str
    sources: frozenset[str]
    targets: frozenset[str]
    negative: bool

    @property
    def within(self) -> bool:
        """Whether it links nodes of one type, so that only its direction tells the ends apart."""
        return bool(self.sources & self.targets)


@dataclass(frozen=True, slots=True)
class Role:
    """An end of a relation within one type: the noun that names it ("parent") is what `side` is."""

    relation: int
    side: str


@dataclass(frozen=True, slots=True)
class Schema:
    """Types and relations, and what points to them, by stem.

    nouns   types
    unnamed candidate types for which there is no noun at all, because their name is no word
    roles   ends of relations within a type
    cues    relations that the word tells apart from others between the same types
    """

    types: frozenset[str]
    candidates: frozenset[str]
    relations: dict[int, Relation]
    nouns: dict[str, frozenset[str]]
    unnamed: frozenset[str]
    roles: dict[str, tuple[Role, ...]]
    cues: dict[str, frozenset[int]]

    def knows(self, word: str) -> bool:
        """Whether a word means something here or in any question."""
        keys = {noun_key(word), stem(word)}
        return word in STOP or bool(keys & (self.nouns.keys() | self.roles.keys() | self.cues.keys() | GENERIC))

    def between(self, ones: frozenset[str], others: frozenset[str]) -> list[tuple[bool, frozenset[int]]]:
        """Relations between nodes of two sets of types, by whether `ones` are the source; alike ones together."""
        found = []
        for forward, sources, targets in ((True, ones, others), (False, others, ones)):
            alike: dict[tuple[frozenset[str], frozenset[str]], set[int]] = defaultdict(set)
            for relation in self.relations.values():
                if relation.sources & sources and relation.targets & targets:
                    alike[relation.sources, relation.targets].add(relation.id)
            found += [(forward, frozenset(ids)) for ids in alike.values()]
        return found


def parse_schema(text: str) -> Schema | None:
    """The schema, or None where the text is not one. It may know no relations."""
    start = text.find("{")
    try:
        data = json.loads(text[start:])
        types, rows = data["node_types"], data.get("relation_types", [])
        names = frozenset(str(row["name"]) for row in types)
        candidates = frozenset(str(row["name"]) for row in types if row["candidates"]) or names
        costs = _noun_costs(types, rows)
        relations = {row["id"]: _relation(row) for row in rows}
        return Schema(
            types=names,
            candidates=candidates,
            relations=relations,
            nouns=_with_synonyms({word: _cheapest(by_type) for word, by_type in costs.items()}, noun_key),
            unnamed=candidates
            - {type_ for by_type in costs.values() for type_, cost in by_type.items() if cost < AROUND},
            roles=_roles(rows, relations),
            cues=_cues(rows, relations),
        )
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _relation(row: dict[str, Any]) -> Relation:
    said = row["name"].replace("_", " ") + " " + row["description"]
    negative = " NOT " in said or any(word.lower() in ("absent", "excluded", "absence") for word in _WORD.findall(said))
    return Relation(row["id"], row["file"], frozenset(row["source_types"]), frozenset(row["target_types"]), negative)


def _noun_costs(types: list[dict[str, Any]], rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """What it costs to take a word for a type: nothing for what its description calls it first, most for words around."""
    costs: dict[str, dict[str, float]] = defaultdict(dict)

    def learn(word: str, type_: str, cost: float) -> None:
        key = noun_key(word.lower())
        if word.isalpha() and word.lower() not in STOP and key not in GENERIC | CLASSES:
            costs[key][type_] = min(cost, costs[key].get(type_, cost))

    for row in types:
        for place, chunk in enumerate(_CHUNK.split(_EXAMPLES.sub("", row["description"]))):
            for before, word in enumerate(reversed(_noun_phrase(chunk))):
                learn(word, row["name"], 0.05 * place + (AROUND if before else 0.0))
        for word in _WORD.findall(row["name"].replace("_", " "))[-1:]:
            learn(word, row["name"], -0.2)
    for row in rows:
        for word, side in _END.findall(row["description"]):
            if len(row[f"{side}_types"]) < 3:
                learn(word, row[f"{side}_types"][0], 0.1)
    return costs


def _with_synonyms(found: dict[str, T], key_of: Callable[[str], str]) -> dict[str, T]:
    """`found` with the synonyms of its words, which mean what most of the known ones mean."""
    added: dict[str, T] = {}
    for words in SYNONYMS:
        keys = [key_of(word) for word in sorted(words)]
        known = [found[key] for key in keys if key in found]
        if known:
            added.update((key, max(known, key=known.count)) for key in keys)
    return added | found


def _cheapest(costs: dict[str, float]) -> frozenset[str]:
    return frozenset(type_ for type_, cost in costs.items() if cost <= min(costs.values()) + 0.3)


def _noun_phrase(chunk: str) -> list[str]:
    """The words of a chunk up to where its noun ends: "A human gene with its symbol" gives a, human, gene."""
    words = _WORD.findall(chunk)
    end = next((place for place, word in enumerate(words) if word.lower() in _HEAD_ENDS), len(words))
    return words[:end]


def _roles(rows: list[dict[str, Any]], relations: dict[int, Relation]) -> dict[str, tuple[Role, ...]]:
    found: dict[str, set[Role]] = defaultdict(set)
    for row in rows:
        if not relations[row["id"]].within:
            continue
        sides = _sides(row["description"])
        for side, opposite in (("source", "target"), ("target", "source")):
            for word in sides[side] - sides[opposite]:
                found[word].add(Role(row["id"], side))
        for high, low in OPPOSITES:
            for known, other in ((high, low), (low, high)):
                for role in tuple(found.get(stem(known), ())):
                    if role.relation == row["id"] and not found.get(stem(other)):
                        found[stem(other)].add(Role(role.relation, "source" if role.side == "target" else "target"))
    ordered = {key: tuple(sorted(roles, key=lambda role: (role.relation, role.side))) for key, roles in found.items()}
    return _with_synonyms(ordered, stem)


def _sides(description: str) -> dict[str, set[str]]:
    """Stems by the end of the relation that they describe: what follows "source" or "target", and both sides of "->"."""
    sides: dict[str, set[str]] = {"source": set(), "target": set()}
    for low, high in _ARROW.findall(description):
        sides["source"].add(stem(low.lower()))
        sides["target"].add(stem(high.lower()))
    side = ""
    for word in _WORD.findall(_ARROW.sub(" ", description)):
        lower = word.lower()
        if lower in sides:
            side = lower
        elif side and lower not in STOP and stem(lower) not in GENERIC and lower not in ("directly", "immediately"):
            sides[side].add(stem(lower))
    return sides


def _cues(rows: list[dict[str, Any]], relations: dict[int, Relation]) -> dict[str, frozenset[int]]:
    said = {row["id"]: _said(row, relations[row["id"]]) for row in rows}
    found: dict[str, frozenset[int]] = {}
    for relation in relations.values():
        peers = [
            peer.id
            for peer in relations.values()
            if peer.sources & relation.sources and peer.targets & relation.targets
        ]
        for term in said[relation.id]:
            sharing = sum(term in said[peer] for peer in peers)
            if len(peers) > 1 and sharing <= max(1, len(peers) // 3):
                found[term] = found.get(term, frozenset()) | {relation.id}
    return found


def _said(row: dict[str, Any], relation: Relation) -> set[str]:
    """Terms that speak of the relation; of a negative one its words of absence only, elsewhere nothing that is denied."""
    text = row["name"].replace("_", " ") + ". " + row["description"]
    terms: set[str] = set()
    for clause in re.split(r"[.,:;()]", text):
        words = [word.lower() for word in _WORD.findall(clause)]
        if not relation.negative:
            words = words[: next((place for place, word in enumerate(words) if word in ("not", "no")), len(words))]
        terms.update(terms_of(words))
    return terms & _ABSENCE_STEMS if relation.negative else terms - _ABSENCE_STEMS


def terms_of(words: list[str]) -> list[str]:
    """Stems of the words that mean something, each with the degree before it: "very frequent" is one term."""
    terms = []
    for place, word in enumerate(words):
        if word not in STOP and word not in DEGREES:
            degree = f"{words[place - 1]} " if place and words[place - 1] in DEGREES else ""
            terms.append(degree + stem(word))
    return terms
