"""The rule-based agent on an invented graph about films: nothing in it knows the graphs that dkgi ships."""

import json
from itertools import pairwise
from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.context import Level3
from dkgi.harness.native import Native, NativeSpec
from dkgi.models.heuristic import Heuristic
from dkgi.prompt import render_prompt
from dkgi.runner import Seat
from dkgi.types import Attempt, Item, Limits, Query, Reply, Step, Task, ToolResult, ToolSpec, UserText
from tests.places import free_place

FILMS = ["The Long Boat", "Harbour Lights", "Winter in Bremen", "Paper Moons", "Salt Road"]
PEOPLE = ["Ada Lund", "Boris Keller", "Chiara Monti"]
PLOTS = [
    "A fisherman crosses the frozen sea to find his brother.",
    "Two sisters keep a lighthouse through a stormy winter.",
    "A clockmaker hides a stolen violin in a church tower.",
    "Children print their own newspaper about a stolen violin.",
    "A caravan carries salt across the desert.",
]
DIRECTED = [(5, 0), (5, 2), (5, 3), (6, 1), (7, 4)]
ACTED = [(6, 0), (6, 2), (7, 2), (7, 3), (6, 4)]
SCHEMA = {
    "name": "films",
    "version": "1",
    "nodes": 8,
    "candidates": 5,
    "shard_size": 10000,
    "node_types": [
        {"id": 0, "name": "film", "nodes": 5, "candidates": 5, "description": "A film, movie or motion picture."},
        {"id": 1, "name": "person", "nodes": 3, "candidates": 0, "description": "A person who works on films."},
    ],
    "relation_types": [
        {
            "id": 0,
            "name": "directed",
            "file": "edges/00.tsv",
            "rows": 5,
            "source_types": ["person"],
            "target_types": ["film"],
            "description": "The person (source) directed the film (target): the film was made under their direction.",
        },
        {
            "id": 1,
            "name": "acted_in",
            "file": "edges/01.tsv",
            "rows": 5,
            "source_types": ["person"],
            "target_types": ["film"],
            "description": "The person (source) acted in the film (target): they play a role, star or appear in it.",
        },
    ],
    "notes": ["Directly recorded: a row for exactly this pair stands in the file of the relation."],
    "terms_of_use": "None.",
}


@pytest.fixture
def films(tmp_path: Path) -> Path:
    """Overrides the shared small graph by one with text and two relations; `seat` works on it."""
    folder = tmp_path / "films"
    (folder / "nodes").mkdir(parents=True)
    (folder / "edges").mkdir()
    nodes = [
        {"node_id": n, "node_type": "film", "is_candidate": True, "attributes": {"title": title, "plot": plot}}
        for n, (title, plot) in enumerate(zip(FILMS, PLOTS, strict=True))
    ]
    nodes += [
        {"node_id": 5 + n, "node_type": "person", "is_candidate": False, "attributes": {"title": name, "plot": None}}
        for n, name in enumerate(PEOPLE)
    ]
    lines = "".join(json.dumps(node, separators=(",", ":")) + "\n" for node in nodes)
    (folder / "nodes" / "0000.jsonl").write_text(lines)
    for number, edges in enumerate((DIRECTED, ACTED)):
        rows = "".join(f"{source}\t{target}\n" for source, target in edges)
        (folder / "edges" / f"{number:02}.tsv").write_text("source_id\ttarget_id\n" + rows)
    (folder / "candidate_ids.txt").write_text("0\n1\n2\n3\n4\n")
    (folder / "schema.json").write_text(json.dumps(SCHEMA, indent=1))
    (folder / "DATA_FORMAT.txt").write_text("See schema.json.\n")
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder


def ask(seat: Seat, question: str) -> tuple[Attempt, list[Step]]:
    experiment = load(["model=heuristic"])
    prompt = render_prompt(experiment.prompt, experiment.tools, query=question, corpus="/graph", scratch="/scratch")
    model = Heuristic(experiment.model).model(free_place())  # type: ignore[arg-type]
    limits = Limits(wall_s=60, max_turns=50, attempts=1, backoff_s=0)
    steps: list[Step] = []
    query = Query(1, question, "val", False)
    task = Task(query, prompt, experiment.tools, limits, seat.workspace, model, seat.commands, steps.append)
    return Native(NativeSpec("native", "native", Level3())).run(task), steps


def answer(seat: Seat, question: str) -> list[int]:
    attempt, _ = ask(seat, question)
    assert attempt.stop == "answered", attempt
    entries: list[int] = json.loads(attempt.final_answer)["node_ids"]
    return entries


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Which films did Boris Keller direct?", {1}),
        ("Which films directed by Ada Lund star Chiara Monti and not Boris Keller?", {3}),
        ("Find the films that Ada Lund directed and in which both Boris Keller and Chiara Monti acted.", {2}),
        ('Which films whose plot mentions "stolen violin" star Boris Keller?', {2}),
        ('Which films directed by Ada Lund have a plot that does not mention "stolen violin"?', {0}),
    ],
)
def test_a_question_about_another_graph_is_answered_from_its_schema(seat: Seat, question: str, first: set[int]) -> None:
    assert answer(seat, question)[0] in first


def test_it_answers_with_candidates_that_it_has_met_and_no_repeats(seat: Seat) -> None:
    entries = answer(seat, "Which films did Ada Lund direct?")
    assert len(entries) == len(set(entries))
    assert set(entries) <= {0, 1, 2, 3, 4}
    assert set(entries[:3]) == {0, 2, 3}


@pytest.mark.parametrize(
    "question", ["hello", "", "?", "12 + 30", "Which films did Nobody Known direct?", "$(ls) `id`"]
)
def test_a_question_that_it_does_not_understand_still_ends_in_a_valid_answer(seat: Seat, question: str) -> None:
    assert isinstance(answer(seat, question), list)


def test_it_keeps_no_state_between_requests(seat: Seat) -> None:
    attempt, steps = ask(seat, "Which films did Boris Keller direct?")
    again, others = ask(seat, "Which films did Boris Keller direct?")
    assert attempt.final_answer == again.final_answer
    assert [(step.type, step.text) for step in steps] == [(step.type, step.text) for step in others]


@pytest.mark.parametrize(
    "garbage", ["", "\0\ufffd", "Traceback (most recent call last):\n  boom", "x" * 18_000, "[exit code 1]"]
)
def test_garbage_from_its_tools_ends_in_an_answer_and_not_in_a_crash(garbage: str) -> None:
    experiment = load(["model=heuristic"])
    prompt = render_prompt(
        experiment.prompt, experiment.tools, query="Which films did X direct?", corpus="/graph", scratch="/scratch"
    )
    model = Heuristic(experiment.model).model(free_place())  # type: ignore[arg-type]
    specs = [ToolSpec("bash", "", {}), ToolSpec("read", "", {})]
    history: list[Item] = [UserText(prompt)]
    for _ in range(60):
        reply = model.reply(history, specs)
        history.append(reply)
        if not reply.calls:
            break
        history += [ToolResult(call.id, call.name, garbage, is_error=True) for call in reply.calls]
    last = history[-1]
    assert isinstance(last, Reply)
    assert set(json.loads(last.text)) == {"node_ids"}


def test_usage_counts_what_was_sent_before_as_read_from_the_cache(seat: Seat) -> None:
    _, steps = ask(seat, "Which films did Boris Keller direct?")
    usages = [step.usage for step in steps if step.usage]
    assert len(usages) > 1
    assert usages[0].cache_read == 0
    for earlier, later in pairwise(usages):
        assert later.cache_read == pytest.approx(earlier.input_tokens, rel=0.2)
    assert all(usage.requests == 1 and usage.output > 0 for usage in usages)
