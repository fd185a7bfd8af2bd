"""The whole data set, made once for all tests here."""

import json
from pathlib import Path

import pytest

from dkgi.dataset import Dataset, DatasetSpec, prepare
from tests.questions.oracle import Facts, Sets, Shipped

SPEC = DatasetSpec(kind="hpo", name="hpo", version="4.0.0", split="test", seed=7)


@pytest.fixture(scope="session")
def dataset(data: Path) -> Dataset:
    return prepare(SPEC, data)


@pytest.fixture(scope="session")
def shipped(dataset: Dataset, data: Path) -> list[Shipped]:
    """All questions of both splits, by number."""
    found = []
    for split in dataset.sizes:
        queries, labels = (
            [json.loads(line) for line in (data / folder / "hpo" / f"{split}.jsonl").read_bytes().splitlines()]
            for folder in ("queries", "labels")
        )
        assert [query["number"] for query in queries] == [row["number"] for row in labels]
        found += [Shipped(query, row) for query, row in zip(queries, labels, strict=True)]
    return sorted(found, key=lambda question: question.query["number"])


@pytest.fixture(scope="session")
def facts(dataset: Dataset) -> Facts:
    return Facts(dataset.export)


@pytest.fixture(scope="session")
def sets(facts: Facts) -> Sets:
    return Sets(facts)
