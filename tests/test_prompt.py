"""What the model reads, to the byte."""

import re
from pathlib import Path

import pytest

from dkgi.config import Experiment, load
from dkgi.experiment import run
from dkgi.graph.export import data_format
from dkgi.paths import data_dir
from dkgi.prompt import check_prompt, experiment_names, prompt_digest, read_part, render_prompt
from dkgi.types import SetupError
from tests.composed import composed

GOLDEN = Path(__file__).parent / "golden"
PROMPTS = sorted(path.stem for path in (data_dir("conf") / "prompt").glob("*.yaml"))
POLICIES = sorted(path.stem for path in (data_dir("conf") / "tools").glob("*.yaml"))
PROBES = ("id_probe", "name_probe")
UNFIT = {f"{probe} {policy}" for probe in PROBES for policy in POLICIES if policy != "closed_book"} | {
    f"rg {policy}" for policy in ("graph_tools", "graph_tools_code", "retrieval_only", "closed_book")
}


def message(experiment: Experiment, query: str = "Which one?") -> str:
    return render_prompt(
        experiment.prompt,
        experiment.tools,
        query=query,
        corpus="/graph",
        scratch="/scratch",
        knowledge_base=experiment.dataset.knowledge_base,
        answer_kinds=experiment.dataset.answer_kinds,
    )


def sections(text: str) -> list[str]:
    """What stands before the question, and what stands after it."""
    return text.split("Question: Which one?\n\n")


def test_the_final_prompt_with_full_dkgi_is_the_golden_one() -> None:
    assert message(composed(), "Which $genes cost {x}?") == (GOLDEN / "final_full_dkgi.txt").read_text()


def test_the_question_is_not_itself_a_template() -> None:
    assert "Question: $corpus and ${scratch}" in message(composed(), "$corpus and ${scratch}")


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_changes_the_tool_section_alone(policy: str) -> None:
    assert sections(message(composed(f"tools={policy}")))[0] == sections(message(composed()))[0]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prompt", ["base", "earlier"])
def test_a_ranking_changes_the_instruction_alone(prompt: str, policy: str) -> None:
    before, after = sections(message(composed(f"prompt={prompt}", f"tools={policy}")))
    final_before, final_after = sections(message(composed(f"tools={policy}")))
    assert after == final_after
    assert [one == other for one, other in zip(before.split("\n\n"), final_before.split("\n\n"), strict=False)][:3] == [
        True,
        True,
        False,
    ]


def test_rankings_say_how_many_answers_they_want() -> None:
    wanted = {
        prompt: re.findall(r"\b(?:20|100)\b", sections(message(composed(f"prompt={prompt}", *fit)))[0])
        for prompt, fit in ((name, ["tools=closed_book"] if name in PROBES else []) for name in PROMPTS)
    }
    assert wanted == {
        "base": ["100"],
        "earlier": ["20"],
        "final": ["20"],
        "id_probe": ["20"],
        "name_probe": ["20"],
        "rg": ["20"],
    }


def test_the_rg_prompt_is_the_earlier_one_with_a_preference_for_rg_and_python_is_mentioned_nowhere() -> None:
    rg, earlier = composed("prompt=rg"), composed("prompt=earlier")
    assert sections(message(rg))[0] == sections(message(earlier))[0]
    assert "Prefer rg" in message(rg)
    read = [message(rg), data_format(tools_line=rg.tools.tools_line)]
    read += [read_part(f"tools/{tool}.json") for tool in rg.tools.tools]
    assert "python" not in "".join(read).lower()
    assert "python" in message(earlier).lower()
    assert (rg.tools.name, rg.axes["prompt"]) == ("full_dkgi", "rg")


def test_one_program_adds_one_line_to_the_full_section() -> None:
    full, one = message(composed()), message(composed("tools=one_program"))
    assert one.startswith(full)
    assert re.fullmatch(r"\n[^\n]*Python[^\n]*once[^\n]*\n", one.removeprefix(full))


def test_shell_only_names_its_programs_and_no_language() -> None:
    experiment = composed("tools=shell_only")
    text = sections(message(experiment))[1]
    named = re.search(r"all the programs: (.*)\.\n", text)
    assert named
    assert sorted(named[1].split(", ")) == sorted(experiment.tools.programs or ())
    assert not re.search("python|perl|awk", text.lower())


def test_no_edges_says_that_only_nodes_are_given() -> None:
    text = sections(message(composed("tools=no_edges")))[1]
    assert "only nodes" in text
    assert not re.search(r"\bedges?\b", text)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_no_shipped_text_names_an_experiment_policy_harness_model_or_split(prompt: str, policy: str) -> None:
    if f"{prompt} {policy}" in UNFIT:
        with pytest.raises(SetupError, match=f"prompt={prompt} .* tools={policy} "):
            composed(f"prompt={prompt}", f"tools={policy}")
        return
    experiment = composed(f"prompt={prompt}", f"tools={policy}")
    names = {path.stem for group in ("tools", "harness", "model") for path in (data_dir("conf") / group).glob("*.yaml")}
    check_prompt(experiment.prompt, experiment.tools, {*names, *experiment_names(), "test", "test-0.1", "val", "dkgi"})


@pytest.mark.parametrize("word", ["full_dkgi", "Luna", "test-0.1"])
def test_a_prompt_that_holds_a_telling_name_is_refused(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "mine.md").write_text(f"This is the run of {word.upper()}, so take care.")
    monkeypatch.setenv("DKGI_CONF", str(tmp_path))
    experiment = load(["tools.section=mine.md"])
    with pytest.raises(SetupError, match=rf"mine\.md holds the word {word}"):
        check_prompt(experiment.prompt, experiment.tools, [word])
    check_prompt(experiment.prompt, experiment.tools, ["car"])


@pytest.mark.parametrize("word", ["floor", "full_dkgi", "native", "heuristic", "test", "test-0.1"])
def test_a_run_is_refused_whose_prompt_names_its_experiment_policy_harness_model_or_split(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts" / "mine.md").write_text(f"This is about {word}.")
    monkeypatch.setenv("DKGI_CONF", str(tmp_path))
    with pytest.raises(SetupError, match=r"mine\.md holds the word"):
        run(load(["tools.section=mine.md", "dataset.split=test-0.1", "dry_run=true"]))


def test_experiments_of_ones_own_are_known_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").touch()
    monkeypatch.setenv("DKGI_CONF", str(tmp_path))
    assert experiment_names() >= {"mine", "floor"}


def test_the_digest_covers_every_text_that_the_model_reads() -> None:
    experiments = [composed(), composed("tools.tools=[bash]"), composed("prompt.ranking=task.md")]
    assert len({prompt_digest(experiment.prompt, experiment.tools) for experiment in experiments}) == 3


def test_a_missing_text_is_a_setup_error_that_names_it() -> None:
    with pytest.raises(SetupError, match=r"no_such\.md"):
        read_part("no_such.md")
