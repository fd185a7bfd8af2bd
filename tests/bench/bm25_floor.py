"""How far keyword search alone gets: `python tests/bench/bm25_floor.py`, a document = name + attributes of a candidate.

    questions (seed 7)    n   hit@1  recall@20   MRR
    all                 300     5.7       22.9  10.8
    hub                 105     0.0        0.3   0.1
    multihop             75     0.0        3.6   1.1
    text                120    14.2       54.7  26.1
    wording: dev        206     6.8       23.2  11.8
    wording: held_out    94     3.2       22.1   8.4

Percent. bm25s 0.3.16 with its defaults (method lucene, k1 1.5, b 0.75, English stop words, no stemmer) over all test
questions of the shipped configuration. Hit@1 over all of them should lie between 5 and 25: then the questions neither
give themselves away nor hide from search. Other seeds give about 7 to 8.
Not covered: relation text in the documents; dense retrieval.
"""

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

import bm25s
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.config import load
from dkgi.console import stdout
from dkgi.dataset import prepare
from dkgi.gold import read_labels
from dkgi.graph.read import read_nodes
from dkgi.metrics import score
from dkgi.paths import cache_dir
from dkgi.types import Score

SHOWN = 100


def words_of(value: Any) -> Iterator[str]:
    """Every string and number within a node's attributes."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from words_of(part)
    elif value is not None:
        yield str(value)


def main() -> None:
    spec = load(["dataset=hpo"]).dataset
    dataset = prepare(spec, cache_dir())
    candidates = [node for node in read_nodes(dataset.export) if node.is_candidate]
    documents = [" ".join(words_of(node.attributes)) for node in candidates]
    index = bm25s.BM25()
    index.index(bm25s.tokenize(documents, show_progress=False), show_progress=False)

    queries = dataset.queries("test")
    tokens = bm25s.tokenize([query.text for query in queries], show_progress=False)
    places, _ = index.retrieve(tokens, k=SHOWN, show_progress=False)
    labels = read_labels(spec.name, "test", cache_dir())
    scores: dict[str, list[Score]] = defaultdict(list)
    for query, row in zip(queries, places.tolist(), strict=True):
        facts = labels[query.number]
        reached = score([candidates[place].node_id for place in row], gold=set(facts["gold"]))
        for group in ("all", facts["regime"], f"wording: {facts['phrasing_file']}"):
            scores[group].append(reached)

    table = Table("questions", "n", "hit@1", "recall@20", "MRR", title=f"BM25 on {dataset.name}, seed {spec.seed}")
    for group, found in sorted(scores.items()):
        means = (fmean(getattr(one, name) for one in found) for name in ("hit_at_1", "recall_at_20", "mrr"))
        table.add_row(group, str(len(found)), *(f"{100 * mean:.1f}" for mean in means))
    stdout().print(table)


if __name__ == "__main__":
    main()
