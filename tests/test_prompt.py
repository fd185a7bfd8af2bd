"""What the model reads, to the byte."""

from pathlib import Path

import pytest

from dkgi.config import load
from dkgi.prompt import prompt_digest, read_part, render_prompt
from dkgi.types import SetupError

GOLDEN = Path(__file__).parent / "golden"


def test_the_final_prompt_with_full_dkgi_is_the_golden_one() -> None:
    experiment = load([])
    text = render_prompt(
        experiment.prompt, experiment.tools, query="Which $genes cost {x}?", corpus="/graph", scratch="/scratch"
    )
    assert text == (GOLDEN / "final_full_dkgi.txt").read_text()


def test_the_question_is_not_itself_a_template() -> None:
    experiment = load([])
    text = render_prompt(
        experiment.prompt, experiment.tools, query="$corpus and ${scratch}", corpus="/graph", scratch="/scratch"
    )
    assert "Question: $corpus and ${scratch}" in text


def test_the_prompt_names_no_experiment_policy_harness_model_or_split() -> None:
    experiment = load([])
    text = render_prompt(experiment.prompt, experiment.tools, query="", corpus="/graph", scratch="/scratch").lower()
    assert not [word for word in ("full_dkgi", "dkgi", "native", "heuristic", "test", "hpo") if word in text]


def test_the_digest_covers_every_text_that_the_model_reads(tmp_path: Path) -> None:
    experiment = load([])
    whole = prompt_digest(experiment.prompt, experiment.tools)
    other_tools = load(["tools.tools=[bash]"])
    other_ranking = load(["prompt.ranking=task.md"])
    assert (
        len(
            {
                whole,
                prompt_digest(other_tools.prompt, other_tools.tools),
                prompt_digest(other_ranking.prompt, other_ranking.tools),
            }
        )
        == 3
    )


def test_a_missing_text_is_a_setup_error_that_names_it() -> None:
    with pytest.raises(SetupError, match=r"no_such\.md"):
        read_part("no_such.md")
