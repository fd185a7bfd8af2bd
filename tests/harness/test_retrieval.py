"""The baselines without a model: what they rank, with which embedding, and what they refuse."""

import json
from dataclasses import replace

import pytest

from dkgi.config import load
from dkgi.harness import open_harness
from dkgi.harness.bm25 import rank_by_words
from dkgi.harness.dense import DenseSpec, Embedding
from dkgi.harness.hybrid import fuse
from dkgi.models import open_models
from dkgi.runner import Seat
from dkgi.types import Harness, Query, SetupError, Step, Task
from tests.places import free_place

LETTERS = Embedding("tests.harness.letters:Letters", "vectors", {"alphabet": "abcdefghijklmnopqrstuvwxyz"})
BASELINES = ("bm25", "dense", "hybrid")


def answer(harness: Harness, question: str, seat: Seat) -> tuple[list[int], list[Step]]:
    experiment = load(["harness=bm25"])
    steps: list[Step] = []
    model = open_models(experiment.model).model(free_place())
    query = Query(1, question, "val", False)
    task = Task(
        query, "prompt", experiment.tools, experiment.limits, seat.workspace, model, seat.commands, steps.append
    )
    attempt = harness.run(task)
    assert attempt.stop == "answered"
    return json.loads(attempt.final_answer)["node_ids"], steps


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_ranks_candidates_by_their_text(name: str, seat: Seat) -> None:
    found, steps = answer(open_harness(load([f"harness={name}"]).harness), "the lights of a harbour", seat)
    assert found[0] == 1
    assert set(found) <= {0, 1, 2}
    assert [step.type for step in steps] == ["user", "assistant"]


def test_any_embedding_can_be_named(seat: Seat) -> None:
    harness = open_harness(DenseSpec("dense", "dense", LETTERS))
    assert answer(harness, "Harbour Lights", seat)[0][0] == 1
    assert answer(harness, "?!", seat)[0] == [0, 1, 2]


@pytest.mark.parametrize(
    "embedding",
    [
        replace(LETTERS, load="no_such_package:Model"),
        replace(LETTERS, load="tests.harness.letters:Missing"),
        replace(LETTERS, load="tests.harness.letters"),
        replace(LETTERS, encode="missing"),
        replace(LETTERS, arguments={"no_such": 1}),
        replace(LETTERS, load="builtins:str", encode="join"),
        replace(LETTERS, load="builtins:dict", encode="get"),
    ],
)
def test_an_embedding_that_does_not_work_is_a_setup_error_that_names_its_key(embedding: Embedding, seat: Seat) -> None:
    with pytest.raises(SetupError, match=r"^harness\.embedding"):
        answer(open_harness(DenseSpec("dense", "dense", embedding)), "lights", seat)


def test_bm25_leaves_out_what_shares_no_word_and_keeps_the_order_of_ties() -> None:
    ranking = rank_by_words(["red boat", "blue car", "red boat", "green"])
    assert ranking.best("a red boat", 10) == [0, 2]
    assert ranking.best("zebra", 10) == []


def test_fusion_is_by_reciprocal_ranks() -> None:
    assert fuse([[7, 8], [8, 9]], constant=60) == [8, 7, 9]
    assert fuse([[1, 2, 3], [3, 2, 1]], constant=1) == [1, 3, 2]
    assert fuse([[], []], constant=60) == []


@pytest.mark.parametrize("name", BASELINES)
def test_a_baseline_needs_node_files_and_no_model(name: str) -> None:
    experiment = load([f"harness={name}"])
    open_harness(experiment.harness).check(experiment.tools)
    with pytest.raises(SetupError, match="reads the node files"):
        open_harness(experiment.harness).check(load(["tools=graph_tools"]).tools)
    with pytest.raises(SetupError, match="asks no model"):
        load([f"harness={name}", "model=luna"])


def test_a_harness_that_asks_a_model_gets_one() -> None:
    with pytest.raises(SetupError, match="asks a model"):
        load(["model=no_model"])
