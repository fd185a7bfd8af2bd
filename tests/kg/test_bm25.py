"""Our ranking against the formula, written out in plain Python."""

import math
import random
from collections import Counter
from pathlib import Path

import pytest

from dkgi.kg.bm25 import BLOCK, Bm25, Bm25Writer

WORDS = [f"w{number}" for number in range(400)]


def random_texts(rng: random.Random, n: int) -> list[list[str]]:
    """Common words are in most texts, rare ones in few; some texts are empty and many are alike."""
    texts = [[WORDS[min(int(rng.expovariate(0.03)), 399)] for _ in range(rng.randint(0, 40))] for _ in range(n)]
    return [texts[0] if rng.random() < 0.1 else text for text in texts]


def build(folder: Path, texts: list[list[str]], run_words: int = 4_000_000) -> Bm25:
    folder.mkdir(exist_ok=True)
    writer = Bm25Writer(folder, run_words)
    for text in texts:
        writer.add(text)
    writer.write()
    return Bm25(folder)


class Plain:
    """The textbook's BM25 with Lucene's idf, k1 1.2, b 0.75."""

    def __init__(self, texts: list[list[str]]) -> None:
        self.counts = [Counter(text) for text in texts]
        self.having = Counter(word for text in texts for word in set(text))
        self.mean = sum(map(len, texts)) / len(texts)

    def scores(self, query: list[str]) -> dict[int, float]:
        found = {}
        for node, counts in enumerate(self.counts):
            norm = 1.2 * (0.25 + 0.75 * counts.total() / self.mean)
            parts = [self.idf(w) * counts[w] * 2.2 / (counts[w] + norm) for w in query if counts[w]]
            if parts:
                found[node] = math.fsum(parts)
        return found

    def idf(self, word: str) -> float:
        return math.log(1 + (len(self.counts) - self.having[word] + 0.5) / (self.having[word] + 0.5))


def expect(found: list[tuple[int, float]], scores: dict[int, float], k: int) -> None:
    """The k best of `scores`, best first, ties by node."""
    best = sorted(scores.items(), key=lambda hit: (-round(hit[1], 9), hit[0]))[:k]
    assert [node for node, _ in found] == [node for node, _ in best]
    assert [score for _, score in found] == pytest.approx([score for _, score in best], abs=1e-9)


@pytest.mark.parametrize("run_words", [4_000_000, 1_000], ids=["one run", "many runs"])
def test_scores_and_order_are_those_of_the_formula(tmp_path: Path, run_words: int) -> None:
    rng = random.Random(5)
    texts = random_texts(rng, 40 * BLOCK)
    index, plain = build(tmp_path, texts, run_words), Plain(texts)
    for _ in range(60):
        query = rng.choices(WORDS, weights=[1 / (1 + n) for n in range(400)], k=rng.randint(1, 7))
        k = rng.choice([1, 5, 20, 30])
        expect(index.best(query, k), plain.scores(query), k)


def test_a_repeated_word_counts_as_often_as_it_is_asked_for(tmp_path: Path) -> None:
    texts = [["ice", "lake"], ["lake"], ["ice"], ["boat"]]
    index = build(tmp_path, texts)
    expect(index.best(["ice", "lake", "lake"], 4), Plain(texts).scores(["ice", "lake", "lake"]), 4)


def test_equal_scores_are_in_the_order_of_ids_beyond_the_end_of_the_list_too(tmp_path: Path) -> None:
    index = build(tmp_path, [["ice"]] * 1000)
    assert [node for node, _ in index.best(["ice"], 7)] == list(range(7))


def test_rare_words_decide_without_common_ones_being_lost(tmp_path: Path) -> None:
    """Here the long list of the common word is never added to all nodes, and yet it decides between two."""
    rng = random.Random(1)
    texts = [["the"] * rng.randint(1, 3) for _ in range(200 * BLOCK)]
    texts[900], texts[901], texts[5000] = ["rare", "the", "the"], ["rare", "x"], ["rare", "rare", "the"]
    index = build(tmp_path, texts)
    for k in (1, 2, 3, 10):
        expect(index.best(["the", "rare"], k), Plain(texts).scores(["the", "rare"]), k)


def test_mostly_empty_texts_are_weighed_by_the_formula_too(tmp_path: Path) -> None:
    texts = [["ice"], [], [], ["lake", "ice"], [], [], []]
    expect(build(tmp_path, texts).best(["ice", "lake"], 5), Plain(texts).scores(["ice", "lake"]), 5)


def test_many_nodes_with_a_common_word_come_before_few_with_a_rare_one_where_their_score_is_higher(
    tmp_path: Path,
) -> None:
    texts = [["x"]] * (70 * BLOCK)
    texts[1:401:2] = [["common"]] * 200
    for number in range(30):
        texts[2 * BLOCK * number] = ["rare", "x", "x"] if number else ["rare"]
    index = build(tmp_path, texts)
    expect(index.best(["rare", "common"], 5), Plain(texts).scores(["rare", "common"]), 5)
    assert [node for node, _ in index.best(["rare", "common"], 5)] == [0, 1, 3, 5, 7]


def test_nodes_without_any_of_the_words_are_not_found(tmp_path: Path) -> None:
    index = build(tmp_path, [["ice"], ["lake"], []])
    assert [node for node, _ in index.best(["ice", "unknown"], 20)] == [0]
    assert index.best(["unknown"], 20) == []
    assert index.best([], 20) == []


def test_it_tells_which_nodes_have_a_word(tmp_path: Path) -> None:
    index = build(tmp_path, [["ice"], ["lake", "ice", "ice"], []])
    assert index.nodes_with("ice").tolist() == [0, 1]
    assert index.nodes_with("unknown").tolist() == []


@pytest.mark.parametrize("texts", [[], [[]], [[], []]], ids=["no node", "one empty text", "two"])
def test_a_graph_without_words_has_no_hits(tmp_path: Path, texts: list[list[str]]) -> None:
    assert build(tmp_path, texts).best(["ice"], 5) == []
