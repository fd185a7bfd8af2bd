"""The export and the questions, read and answered with code that shares nothing with ours.

Two ways to answer a program of the labels: by sets, and by asking of each node whether it fits.
"""

import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

PRESENT = [
    f"has_phenotype_{name}"
    for name in ("obligate", "very_frequent", "frequent", "occasional", "very_rare", "unspecified")
]
Pairs = dict[int, set[int]]
Program = dict[str, Any]


@dataclass(frozen=True)
class Shipped:
    """One question as it lies on disk: what an agent gets, and its labels."""

    query: dict[str, Any]
    labels: dict[str, Any]

    @property
    def text(self) -> str:
        return str(self.query["text"])

    @property
    def gold(self) -> set[int]:
        return set(self.labels["gold"])

    @property
    def program(self) -> Program:
        found: Program = self.labels["program"]
        return found

    def __repr__(self) -> str:
        return f"{self.query['number']} ({self.labels['template']}): {self.text}"


class Facts:
    """The export, read from its files with the standard library."""

    def __init__(self, export: Path) -> None:
        self.nodes: dict[int, dict[str, Any]] = {}
        for path in sorted((export / "nodes").iterdir()):
            for line in path.read_text(encoding="utf-8").splitlines():
                node = json.loads(line)
                self.nodes[node["node_id"]] = node
        self.forward: dict[str, Pairs] = {}
        self.backward: dict[str, Pairs] = {}
        for relation in json.loads((export / "schema.json").read_text(encoding="utf-8"))["relation_types"]:
            forward, backward = defaultdict(set), defaultdict(set)
            with (export / relation["file"]).open(encoding="utf-8", newline="") as file:
                for row in csv.DictReader(file, delimiter="\t"):
                    source, target = int(row["source_id"]), int(row["target_id"])
                    forward[source].add(target)
                    backward[target].add(source)
            self.forward[relation["name"]], self.backward[relation["name"]] = dict(forward), dict(backward)

    @cached_property
    def names(self) -> dict[str, set[int]]:
        """Name or synonym of any scope, in lower case -> the nodes that have it."""
        owners: dict[str, set[int]] = defaultdict(set)
        for number, node in self.nodes.items():
            for name in [*self.own_names(number), *(entry["text"] for entry in node["attributes"].get("synonyms", ()))]:
                owners[name.casefold()].add(number)
        return owners

    def own_names(self, number: int) -> list[str]:
        """Name and exact synonyms."""
        attributes = self.nodes[number]["attributes"]
        exact = [entry["text"] for entry in attributes.get("synonyms", ()) if entry["scope"] == "EXACT"]
        return [name for name in (attributes.get("name"), attributes.get("symbol"), *exact) if name]

    @cached_property
    def definitions(self) -> dict[int, str]:
        """Definitions of phenotypes in lower case."""
        phenotypes = {n: node["attributes"] for n, node in self.nodes.items() if node["node_type"] == "phenotype"}
        return {number: (attributes["definition"] or "").lower() for number, attributes in phenotypes.items()}

    def holding(self, phrase: str) -> set[int]:
        """Phenotypes whose definition holds the string, within words or not."""
        return {number for number, text in self.definitions.items() if phrase in text}

    def mentioning(self, phrase: str) -> set[int]:
        """Phenotypes whose definition holds the phrase as whole words."""
        pattern = re.compile(rf"(?<![\w-]){re.escape(phrase)}(?![\w-])")
        return {number for number in self.holding(phrase) if pattern.search(self.definitions[number])}


class Sets:
    """Answers of programs as sets, from the named nodes towards the answers."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._defined: dict[str, set[int]] = {}

    def answers(self, program: Program) -> set[int]:
        if "node" in program:
            return {program["node"]}
        if "mentions" in program:
            phrase = program["mentions"]
            if phrase not in self._defined:
                self._defined[phrase] = self._facts.mentioning(phrase)
            return self._defined[phrase]
        if "all" in program:
            return set.intersection(*map(self.answers, program["all"]))
        if "keep" in program:
            return self.answers(program["keep"]) - self.answers(program["minus"])
        tables = self._facts.forward if program["way"] == "to_target" else self._facts.backward
        starts = self.answers(program["from"])
        return {end for name in program["follow"] for start in starts for end in tables[name].get(start, ())}


class Fits:
    """Whether one node answers a program, asked from the answer back to the named nodes."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._known: dict[tuple[int, int], bool] = {}
        self._kept: list[Program] = []

    def fits(self, node: int, program: Program) -> bool:
        key = (node, id(program))
        if key not in self._known:
            self._kept.append(program)  # while it lives, no other program gets its id
            self._known[key] = self._fits(node, program)
        return self._known[key]

    def _fits(self, node: int, program: Program) -> bool:
        if "node" in program:
            return bool(node == program["node"])
        if "mentions" in program:
            definition = self._facts.nodes[node]["attributes"].get("definition") or ""
            return program["mentions"] in " ".join(definition.lower().split())
        if "all" in program:
            return all(self.fits(node, part) for part in program["all"])
        if "keep" in program:
            return self.fits(node, program["keep"]) and not self.fits(node, program["minus"])
        tables = self._facts.backward if program["way"] == "to_target" else self._facts.forward
        return any(
            self.fits(other, program["from"]) for name in program["follow"] for other in tables[name].get(node, ())
        )


def looser(program: Program) -> Iterator[Program]:
    """The program without one of its constraints, for each of them."""
    if "all" in program:
        for place, part in enumerate(program["all"]):
            others = [other for number, other in enumerate(program["all"]) if number != place]
            yield {"all": others}
            yield from ({"all": [*others, less]} for less in looser(part))
    elif "keep" in program:
        yield program["keep"]
        yield from (program | {"keep": less} for less in looser(program["keep"]))
        yield from (program | {"minus": less} for less in looser(program["minus"]))
    elif "follow" in program:
        if len(program["follow"]) == 1 and program["follow"][0] in PRESENT:
            yield program | {"follow": PRESENT}
        yield from (program | {"from": less} for less in looser(program["from"]))


def named_nodes(program: Program) -> Iterator[int]:
    if "node" in program:
        yield program["node"]
    for part in program.get("all", ()):
        yield from named_nodes(part)
    for key in ("keep", "minus", "from"):
        if key in program:
            yield from named_nodes(program[key])


def phrases(program: Program) -> Iterator[str]:
    if "mentions" in program:
        yield program["mentions"]
    for part in program.get("all", ()):
        yield from phrases(part)
    for key in ("keep", "minus", "from"):
        if key in program:
            yield from phrases(program[key])


def with_recorded_as(program: Program, relations: list[str]) -> Program:
    """The program with "recorded", of any frequency, taken for other relations."""
    if "follow" in program:
        changed = relations if program["follow"] == PRESENT else program["follow"]
        return program | {"follow": changed, "from": with_recorded_as(program["from"], relations)}
    if "all" in program:
        return {"all": [with_recorded_as(part, relations) for part in program["all"]]}
    if "keep" in program:
        return {key: with_recorded_as(program[key], relations) for key in ("keep", "minus")}
    return program
