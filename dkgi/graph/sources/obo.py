r"""Reads an ontology in the OBO flat file format, version 1.2.

    [Term]
    id: HP:0000098
    name: Tall stature
    alt_id: HP:0001533
    def: "A height above that which is expected according to age and gender norms." [PMID:19125436]
    synonym: "Increased body height" EXACT layperson []
    is_a: HP:0000002 ! Abnormality of body height

>>> quoted('"A \\"pectus\\" chest." [PMID:1, https://orcid.org/0]')
('A "pectus" chest.', ['PMID:1', 'https://orcid.org/0'])

Not covered: typedefs, trailing modifiers in braces, and the tags that `Ontology.record` and `parents` do not read.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Stanza = Mapping[str, list[str]]
"""Tag -> its values in order; a missing tag has none."""


@dataclass(frozen=True, slots=True)
class Ontology:
    """Terms that are not obsolete by ID; where other IDs lead (None: nowhere); names of the types of synonyms."""

    live: Mapping[str, Stanza]
    moved: Mapping[str, str | None]
    synonym_types: Mapping[str, str]

    @classmethod
    def read(cls, path: Path) -> "Ontology":
        header, *blocks = path.read_text(encoding="utf-8").strip().split("\n\n")
        terms = [stanza(block) for block in blocks if block.startswith("[Term]")]
        live = {term["id"][0]: term for term in terms if not term["is_obsolete"]}
        moved = {term["id"][0]: next(iter(term["replaced_by"]), None) for term in terms if term["is_obsolete"]}
        moved |= {alt_id: term_id for term_id, term in live.items() for alt_id in term["alt_id"]}
        return cls(live, moved, dict(re.findall(r'^synonymtypedef: (\S+) "(.*)"', header, re.MULTILINE)))

    def resolve(self, term_id: str) -> str | None:
        """The live term that `term_id` stands for, by `alt_id` and `replaced_by`; None if there is none."""
        seen: set[str] = set()
        current: str | None = term_id
        while current is not None and current not in self.live and current not in seen:
            seen.add(current)
            current = self.moved.get(current)
        return current if current in self.live else None

    def parents(self, term_id: str) -> list[str]:
        return [line.split(" ", 1)[0] for line in self.live[term_id]["is_a"]]

    def branches(self, roots: Mapping[str, str]) -> dict[str, str]:
        """Term -> name of the branch that holds it, given name -> root; the first such branch, none for other terms."""
        children: dict[str, list[str]] = defaultdict(list)
        for term_id in self.live:
            for parent in self.parents(term_id):
                children[parent].append(term_id)
        names: dict[str, str] = {}
        for name, root in roots.items():
            branch: set[str] = set()
            waiting = [root]
            while waiting:
                term_id = waiting.pop()
                if term_id not in branch:
                    branch.add(term_id)
                    names.setdefault(term_id, name)
                    waiting += children[term_id]
        return names

    def record(self, term_id: str) -> dict[str, Any]:
        """What the ontology says of the term itself; its place among other terms is left to edges."""
        term = self.live[term_id]
        definition, references = quoted(term["def"][0]) if term["def"] else (None, [])
        return {
            "name": unescape(term["name"][0]),
            "external_id": term_id,
            "definition": definition,
            "definition_references": references,
            "comment": unescape(term["comment"][0]) if term["comment"] else None,
            "synonyms": [self._synonym(line) for line in term["synonym"]],
            "cross_references": [unescape(line) for line in term["xref"]],
            "subsets": list(term["subset"]),
            "alternative_ids": list(term["alt_id"]),
        }

    def _synonym(self, line: str) -> dict[str, Any]:
        text, references = quoted(line)
        scope, *kind = line[line.rindex('" ') + 2 : line.rindex("[")].split()
        kind_name = self.synonym_types[kind[0]] if kind else None
        return {"text": text, "scope": scope, "type": kind_name, "references": references}


def stanza(block: str) -> Stanza:
    tags: dict[str, list[str]] = defaultdict(list)
    for line in block.splitlines()[1:]:
        tag, value = line.split(": ", 1)
        tags[tag].append(value)
    return tags


def quoted(line: str) -> tuple[str, list[str]]:
    """Text and references of a definition or synonym. ValueError if the line does not begin with a quoted text."""
    text = re.match(r'"((?:[^"\\]|\\.)*)"', line)
    if text is None:
        raise ValueError(f"no quoted text: {line}")
    inside = line[line.rindex("[") + 1 : line.rindex("]")]
    return unescape(text[1]), [unescape(reference) for reference in inside.split(", ") if reference]


def unescape(text: str) -> str:
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t"}.get(found[1], found[1]), text)
