"""The second engine against the first."""

import random
import subprocess
from pathlib import Path

import pytest

from dkgi.kg.bm25 import Bm25, Bm25Writer
from dkgi.kg.tantivy_bm25 import TantivyBm25, TantivyWriter


def build(folder: Path, texts: list[list[str]]) -> tuple[Bm25, TantivyBm25]:
    writers = Bm25Writer(folder), TantivyWriter(folder / "tantivy")
    for writer in writers:
        for text in texts:
            writer.add(text)
        writer.write()
    return Bm25(folder), TantivyBm25(folder / "tantivy")


def test_scores_of_texts_up_to_40_words_are_ours_repeated_query_words_included(tmp_path: Path) -> None:
    rng = random.Random(2)
    words = [f"w{number}" for number in range(200)]
    texts = [[words[min(int(rng.expovariate(0.05)), 199)] for _ in range(rng.randint(1, 40))] for _ in range(2000)]
    ours, theirs = build(tmp_path, texts)
    for _ in range(50):
        query = rng.choices(words, k=rng.randint(1, 6))
        query.append(query[0])
        ours_best, theirs_best = ours.best(query, 20), theirs.best(query, 20)
        assert [score for _, score in theirs_best] == pytest.approx([score for _, score in ours_best], rel=1e-5)
        assert [node for node, _ in theirs_best[:3]] == [node for node, _ in ours_best[:3]]


def test_words_are_those_of_our_tokenizer(tmp_path: Path) -> None:
    _, theirs = build(tmp_path, [["β", "2"], ["中文"], ["a" * 300], []])
    assert [node for word in ("β", "中文", "a" * 300) for node, _ in theirs.best([word], 5)] == [0, 1, 2]
    assert theirs.best(["unknown"], 5) == []


def test_without_the_package_the_way_out_is_named(python: str) -> None:
    """A fresh interpreter that cannot find the package."""
    program = (
        "import sys; sys.modules['tantivy'] = None\n"
        "from dkgi.kg.tantivy_bm25 import import_tantivy\n"
        "from dkgi.types import SetupError\n"
        "try: import_tantivy()\n"
        "except SetupError as error: print(error)\n"
    )
    run = subprocess.run([python, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert "pip install 'dkgi[tantivy]'" in run.stdout
    assert "dataset.index.engine=csr" in run.stdout
