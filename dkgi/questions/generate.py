"""Generates the questions of the hpo graph: exact gold, every constraint needed, a stated mix, the same for a seed.

>>> question = generate(folder, seed=7)[0]                                 # doctest: +SKIP
>>> question.text                                                          # doctest: +SKIP
'Which genes are associated with a disease in which Ataxia is recorded as absent while Hyperreflexia is recorded?'

A drawn question is kept where it has 1 to 20 answers of its template's type, dropping any one constraint changes them,
no other reading of its words gives other answers, and its path is what its regime promises. QUOTAS states the mix.
Not covered: which constants are worth drawing (templates.py) and where questions are kept (dkgi/dataset.py).
"""

import random
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dkgi.dataset import DatasetSpec, Question, Source
from dkgi.graph.read import Node, read_edges, read_nodes, read_schema
from dkgi.graph.sources import hpo
from dkgi.questions.draw import FEW, PRESENT, RECORDED, Draw, NoChoice
from dkgi.questions.lexicon import Names, Phrases
from dkgi.questions.programs import Links, Nodes, Program, evaluate, fan_out, hops, loosened, reach, record, reread
from dkgi.questions.templates import TEMPLATES, Draft, Template
from dkgi.types import SetupError

Sizes = tuple[int, int]

QUOTAS: dict[str, dict[Sizes, dict[str, int]]] = {
    "hub": {(1, 1): {"test": 32, "val": 11}, (2, 5): {"test": 45, "val": 15}, (6, 20): {"test": 28, "val": 9}},
    "multihop": {(1, 1): {"test": 42, "val": 14}, (2, 5): {"test": 22, "val": 7}, (6, 20): {"test": 11, "val": 4}},
    "text": {(1, 1): {"test": 61, "val": 20}, (2, 5): {"test": 38, "val": 13}, (6, 20): {"test": 21, "val": 7}},
}
"""Regime -> number of answers, from and to -> questions a split.

Regimes: 35%, 25%, 40%. Over all of a split, 45% of the questions have one answer, 35% have 2 to 5, 20% have 6 to 20.
"""

TEMPLATE_SHARE = 1.5
"""A template may have this many times its even share of a regime's questions; it makes up for rarer ones."""

TRIES_IN_TURN, TRIES = 500, 12_000
"""Draws of a template before the next one has its turn, and in all: then it is given up and others fill the quota."""

SYNONYM_TYPES = (None, "layperson term", "UK spelling")
SYNONYM_SHARE = 0.3
"""Exact synonyms that a question may use instead of a name, and how often it does where there are some."""

HELD_OUT_EVERY = 3
"""Every third test question of a template has a wording from the held-out file."""

SUBSET_SHARE = 0.1
"""Part of the test split that `test-0.1` keeps."""


@dataclass(frozen=True, slots=True)
class Accepted:
    """A question before it has a number, a split and a wording."""

    template: Template
    draft: Draft
    gold: Nodes
    sizes: Sizes


class Candidates:
    """What can be asked of one graph, and which of it is a good question."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        schema = read_schema(folder)
        nodes = list(read_nodes(folder))
        definitions = {n.node_id: n.attributes["definition"] for n in nodes if n.node_type == "phenotype"}
        self.links = Links({r.name: read_edges(folder, r).tolist() for r in schema.relation_types})
        self.names = Names([(node.node_id, *_names_of(node)) for node in nodes])
        phrases = Phrases({node: text for node, text in definitions.items() if text})
        self.draw = Draw(self.links, self.names, phrases, rng)
        self._types = {n.node_id: n.node_type for n in nodes if n.is_candidate}

    def accept(self, template: Template) -> Accepted | None:
        """One draw of the template; None where it makes no good question."""
        try:
            draft = template.draw(self.draw)
        except NoChoice:
            return None
        gold = evaluate(draft.program, self.links)
        sizes = next((sizes for sizes in QUOTAS[template.regime] if sizes[0] <= len(gold) <= sizes[1]), None)
        if sizes is None or any(self._types.get(node) != template.answers for node in gold):
            return None
        named = {slot for slot in draft.slots.values() if isinstance(slot, int)}
        words = [word for slot in draft.slots.values() for word in (slot.split() if isinstance(slot, str) else [slot])]
        if gold & named or len(set(words)) < len(words) or not all(self.names.of(node) for node in named):
            return None
        if not self._keeps_promise(template.regime, draft.program, gold):
            return None
        if any(evaluate(program, self.links) == gold for program in loosened(draft.program)):
            return None
        if evaluate(reread(draft.program, PRESENT, RECORDED), self.links) != gold:
            return None
        return Accepted(template, draft, gold, sizes)

    def _keeps_promise(self, regime: str, program: Program, gold: Nodes) -> bool:
        if regime == "text":
            return True
        widest = fan_out(program, self.links)
        if regime == "multihop":
            return widest <= FEW
        return widest > FEW and 2 * len(reach(program, self.links, FEW) & gold) <= len(gold)


def source(spec: DatasetSpec) -> Source:
    """The data set `hpo`."""
    return Source(graph=hpo.build, questions=lambda folder: generate(folder, spec.seed))


def generate(folder: Path, seed: int) -> list[Question]:
    """All questions over the export in `folder`, sorted by number. SetupError where the seed cannot fill the quotas."""
    rng = random.Random(seed)
    candidates = Candidates(folder, rng)
    accepted = [question for regime in QUOTAS for question in _fill(candidates, regime)]
    split_of = _assign_splits(accepted)
    order = list(range(len(accepted)))
    rng.shuffle(order)
    wordings = _assign_wordings(accepted, split_of, order, rng)
    tests = [index for index in order if split_of[index] == "test"]
    subset = set(rng.sample(tests, round(len(tests) * SUBSET_SHARE)))
    questions = []
    for number, index in enumerate(order, start=1):
        origin, wording = wordings[index]
        text = _say(wording, accepted[index].draft, candidates.names, rng)
        labels = _labels(accepted[index], candidates.links) | {"phrasing_file": origin}
        gold = tuple(sorted(accepted[index].gold))
        questions.append(Question(number, text, split_of[index], index in subset, gold, labels))
    return questions


def _fill(candidates: Candidates, regime: str) -> list[Accepted]:
    """Questions that fill the quotas of one regime; the templates take turns."""
    room = {sizes: sum(counts.values()) for sizes, counts in QUOTAS[regime].items()}
    templates = [template for template in TEMPLATES if template.regime == regime]
    share = int(TEMPLATE_SHARE * sum(room.values()) / len(templates))
    tries: Counter[str] = Counter()
    seen: set[tuple[str, Nodes]] = set()
    found: list[Accepted] = []
    while any(room.values()):
        if not templates:
            raise SetupError(
                f"dataset.seed: it leaves {sum(room.values())} {regime} questions unmade; set another seed"
            )
        for template in list(templates):
            for _ in range(TRIES_IN_TURN):
                tries[template.name] += 1
                question = candidates.accept(template)
                if question and room[question.sizes] and (template.name, question.gold) not in seen:
                    room[question.sizes] -= 1
                    seen.add((template.name, question.gold))
                    found.append(question)
                    break
            full = sum(name == template.name for name, _ in seen) >= share
            if full or tries[template.name] >= TRIES or not any(room.values()):
                templates.remove(template)
    return found


def _assign_splits(accepted: Sequence[Accepted]) -> list[str]:
    """The split of each question: what the quotas say, and each template in both splits as evenly as that allows."""
    splits = [""] * len(accepted)
    for regime, cells in QUOTAS.items():
        for sizes, counts in cells.items():
            members = [n for n, one in enumerate(accepted) if (one.template.regime, one.sizes) == (regime, sizes)]
            members.sort(key=lambda n: accepted[n].template.name)
            given: Counter[str] = Counter()
            for place, member in enumerate(members, start=1):
                # The split that is furthest behind its share so far.
                split = max(counts, key=lambda name: counts[name] * place / len(members) - given[name])
                given[split] += 1
                splits[member] = split
    return splits


def _assign_wordings(
    accepted: Sequence[Accepted], split_of: Sequence[str], order: Sequence[int], rng: random.Random
) -> dict[int, tuple[str, str]]:
    """Question's index -> (file, wording); each template uses its wordings equally often."""
    files = {"dev": read_phrasings("phrasings.yaml"), "held_out": read_phrasings("phrasings_held_out.yaml")}
    asked: Counter[tuple[str, str]] = Counter()
    turns: dict[tuple[str, str], list[str]] = defaultdict(list)
    wordings = {}
    for index in order:
        name, split = accepted[index].template.name, split_of[index]
        asked[name, split] += 1
        held_out = split == "test" and asked[name, split] % HELD_OUT_EVERY == 0
        origin = "held_out" if held_out else "dev"
        if not turns[name, origin]:
            turns[name, origin] = rng.sample(files[origin][name], len(files[origin][name]))
        wordings[index] = origin, turns[name, origin].pop()
    return wordings


def _say(wording: str, draft: Draft, names: Names, rng: random.Random) -> str:
    words = {}
    for slot, value in draft.slots.items():
        if isinstance(value, str):
            words[slot] = value
        else:
            choices = names.of(value)
            words[slot] = rng.choice(choices) if rng.random() < SYNONYM_SHARE else choices[0]
    return wording.format(**words)


def _labels(question: Accepted, links: Links) -> dict[str, object]:
    program = question.draft.program
    met = reach(program, links, FEW) & question.gold
    return {
        "template": question.template.name,
        "regime": question.template.regime,
        "answer_type": question.template.answers,
        "hops": hops(program),
        "fan_out": fan_out(program, links),
        "reach": round(len(met) / len(question.gold), 3),
        "program": record(program),
    }


def read_phrasings(name: str) -> dict[str, list[str]]:
    """Template -> wordings, from a file beside this module."""
    import yaml

    phrasings: dict[str, list[str]] = yaml.safe_load((Path(__file__).parent / name).read_text(encoding="utf-8"))
    return phrasings


def _names_of(node: Node) -> tuple[list[str], list[str]]:
    """Names of a node that a question may use (its own, exact synonyms), and its other ones."""
    own = node.attributes.get("name") or node.attributes.get("symbol")
    usable, others = ([own] if own else []), list(node.attributes.get("alternative_names", ()))
    for synonym in node.attributes.get("synonyms", ()):
        exact = synonym["scope"] == "EXACT" and synonym["type"] in SYNONYM_TYPES
        if synonym["text"] not in usable:
            (usable if exact else others).append(synonym["text"])
    if node.node_type in ("inheritance", "onset"):
        # The wordings need a noun: "with Infantile onset", not "with Infantile".
        return [name for name in usable[:1] if name.endswith(node.node_type)], usable + others
    return usable, others
