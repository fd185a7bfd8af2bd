"""What the rule-based agent reaches and costs, and how much of it hangs on the names in the graph.

    python tests/bench/heuristic.py [SPLIT] [LIMIT]

    hpo, val                n   hit@1  recall@20   MRR  turns  own ms  jail s
    all                   100    97.0       99.1  98.1    5.0      19     1.5
    ...
    names replaced        100    97.0       99.1  98.1    5.0      19     1.5
    words replaced too    100    93.0       95.4  94.2    5.0      19     1.5

Percent, and medians a query: turns, CPU milliseconds of the agent, CPU seconds of its commands, which run in a plain
shell. The last two rows are the same queries on a copy of the export in which node types, relation types and attribute
keys are opaque tokens, in the descriptions too: as identifiers, then also where they are English words ("gene").
Not covered: jails and the loop around the agent (tests/bench/native.py, tests/bench/jail.py).
"""

import resource
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median

from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.answer import parse_answer
from dkgi.config import load
from dkgi.console import stdout
from dkgi.dataset import prepare
from dkgi.gold import read_labels
from dkgi.metrics import score
from dkgi.paths import cache_dir
from dkgi.types import Query, Reply, Score
from tests.models.conftest import converse, tools_in
from tests.models.renaming import rename


@dataclass(frozen=True, slots=True)
class Asked:
    """One query: what its answer was worth and what it cost."""

    score: Score
    turns: int
    own_s: float
    commands_s: float


def ask(query: Query, gold: set[int], graph: Path, outputs: Path) -> Asked:
    own, commands = time.process_time(), cpu_of_children()
    history = converse(query.text, tools_in(graph, outputs))
    replies = [item for item in history if isinstance(item, Reply)]
    entries = parse_answer(replies[-1].text, key="node_ids").entries
    return Asked(
        score=score(list(entries), gold=gold),
        turns=len(replies),
        own_s=time.process_time() - own,
        commands_s=cpu_of_children() - commands,
    )


def cpu_of_children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def row(asked: list[Asked]) -> list[str]:
    means = [fmean(getattr(one.score, name) for one in asked) for name in ("hit_at_1", "recall_at_20", "mrr")]
    costs = (
        median(one.turns for one in asked),
        median(one.own_s for one in asked),
        median(one.commands_s for one in asked),
    )
    return [
        str(len(asked)),
        *(f"{100 * mean:.1f}" for mean in means),
        f"{costs[0]:.1f}",
        f"{1000 * costs[1]:.0f}",
        f"{costs[2]:.1f}",
    ]


def main(split: str = "val", limit: str = "1000") -> None:
    spec = load(["dataset=hpo"]).dataset
    dataset = prepare(spec, cache_dir())
    labels = read_labels(spec.name, split, cache_dir())
    queries = dataset.queries(split)[: int(limit)]
    groups: dict[str, list[Asked]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rename(dataset.export, folder / "names")
        rename(dataset.export, folder / "words", words=True)
        for query in queries:
            facts = labels[query.number]
            asked = ask(query, set(facts["gold"]), dataset.export, folder)
            for group in ("all", f"regime: {facts['regime']}", f"wording: {facts['phrasing_file']}"):
                groups[group].append(asked)
            for group, graph in (("names replaced", "names"), ("words replaced too", "words")):
                groups[group].append(ask(query, set(facts["gold"]), folder / graph, folder))
    table = Table(f"{spec.name}, {split}", "n", "hit@1", "recall@20", "MRR", "turns", "own ms", "jail s")
    for group in sorted(groups, key=lambda group: (group.endswith(("replaced", "too")), group)):
        table.add_row(group, *row(groups[group]))
    stdout().print(table)


if __name__ == "__main__":
    main(*sys.argv[1:])
