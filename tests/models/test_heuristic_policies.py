"""The rule-based agent under other rules: bash alone, one start of Python, no edges. It learns them from what it reads."""

import os
import shlex
import shutil
from itertools import count
from pathlib import Path

import pytest

from dkgi.answer import parse_answer
from dkgi.config import load
from dkgi.graph.views import make_view
from dkgi.jail.profile import find_host
from dkgi.models.heuristic import programs, shell
from dkgi.models.heuristic.text import quotes_in
from dkgi.models.heuristic.toolbox import BASH, ONE_START, PYTHON, toolbox
from dkgi.models.heuristic.understanding import strange_words, understand
from dkgi.prompt import render_prompt
from dkgi.tools import make_tools
from dkgi.types import Item, Reply
from tests.models.conftest import PlainShell, converse_after
from tests.models.films import QUESTIONS

PROGRAMS = load(["tools=shell_only"]).tools.programs or ()


@pytest.fixture(scope="session")
def closed_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the programs of shell_only and nothing else."""
    folder = tmp_path_factory.mktemp("bin")
    for name in PROGRAMS:
        found = str(find_host().ripgrep) if name == "rg" else shutil.which(name)
        assert found
        (folder / name).symlink_to(found)
    return folder


@pytest.fixture
def bash_only(closed_path: Path, film_export: Path, tmp_path: Path) -> PlainShell:
    return PlainShell(film_export, tmp_path, count(), {"PATH": str(closed_path), "LANG": "C.UTF-8"})


def play(options: list[str], question: str, shell: PlainShell) -> list[Item]:
    """A whole conversation under the prompt and the view of some options."""
    experiment = load(options)
    policy = experiment.tools
    view = shell.outputs / "view"
    make_view(shell.folder, view, graph=True, edges=policy.edges, tools_line=policy.tools_line)
    text = render_prompt(experiment.prompt, policy, query=question, corpus="/graph", scratch="/scratch")
    commands = PlainShell(view, shell.outputs, count(), shell.environment)
    return converse_after(text, make_tools(policy.tools, commands, {}))


def first(history: list[Item], number: int) -> set[int]:
    last = history[-1]
    assert isinstance(last, Reply)
    return set(parse_answer(last.text, key="node_ids").entries[:number])


def commands(history: list[Item]) -> list[str]:
    return [call.arguments for item in history if isinstance(item, Reply) for call in item.calls if call.name == "bash"]


@pytest.mark.parametrize("shown", QUESTIONS)
def test_with_bash_alone_the_right_answers_come_first(shown: str, bash_only: PlainShell) -> None:
    question, right = QUESTIONS[shown]
    history = play(["tools=shell_only"], question, bash_only)
    assert first(history, len(right)) == right
    assert not [command for command in commands(history) if "python" in command]


def test_under_the_rg_prompt_it_writes_for_bash_although_python_is_there(bash_only: PlainShell) -> None:
    question, right = QUESTIONS["two hops"]
    history = play(["prompt=rg"], question, bash_only)
    assert first(history, len(right)) == right
    assert not [command for command in commands(history) if "python" in command]


@pytest.mark.parametrize("shown", QUESTIONS)
def test_with_one_start_of_python_one_program_is_enough(
    shown: str, closed_path: Path, film_export: Path, tmp_path: Path
) -> None:
    # Each start leaves a line, and after the first one there is no Python.
    starts = tmp_path / "starts"
    python = shutil.which("python3", path="/usr/bin:/bin") or shutil.which("python3")
    (tmp_path / "python3").write_text(
        f'#!{shutil.which("bash")}\n[[ -e {starts} ]] && exit 126\necho once >{starts}\nexec {shlex.quote(str(python))} "$@"\n'
    )
    (tmp_path / "python3").chmod(0o755)
    environment = {"PATH": f"{tmp_path}:{closed_path}", "LANG": "C.UTF-8"}
    question, right = QUESTIONS[shown]
    history = play(["tools=one_program"], question, PlainShell(film_export, tmp_path, count(), environment))
    assert first(history, len(right)) == right
    assert sum("python3" in command for command in commands(history)) == 1
    assert starts.read_text() == "once\n"


def test_without_edges_it_answers_from_names_and_texts(film_export: Path, tmp_path: Path) -> None:
    plain = PlainShell(film_export, tmp_path, count(), {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
    question, right = QUESTIONS["text"]
    history = play(["tools=no_edges"], question, plain)
    assert first(history, len(right)) == right
    assert not [command for command in commands(history) if ".tsv" in command and "edges/0" in command]


def test_without_edges_answers_are_of_the_type_that_is_asked_for(film_export: Path, tmp_path: Path) -> None:
    plain = PlainShell(film_export, tmp_path, count(), {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
    history = play(["tools=no_edges"], "Which films were made by the person of Winter in Bremen?", plain)
    assert first(history, 20) <= set(range(6))
    assert 2 in first(history, 20)


@pytest.mark.parametrize("shown", QUESTIONS)
def test_bash_and_python_find_the_same_names_and_compute_the_same_sets(
    shown: str, bash_only: PlainShell, film_export: Path, tmp_path: Path
) -> None:
    python = PlainShell(film_export, tmp_path, count(100), {"PATH": os.environ["PATH"], "LANG": "C.UTF-8"})
    question = QUESTIONS[shown][0]
    schema = (film_export / "schema.json").read_text()
    quoted = [(start, end) for start, end, _ in quotes_in(question)]

    def printed(command: str, runner: PlainShell) -> str:
        return runner.run(["/bin/bash", "-c", command], timeout_s=60).output.read_text()

    asked = (question, quoted, strange_words(question, schema))
    one = understand(question, schema, printed(programs.link(*asked), python))
    other = understand(question, schema, shell.names(question, quoted, printed(shell.link(*asked), bash_only)))
    assert one == other
    wholes = [one.expressions(reading) for reading in one.readings]
    found = [printed(kind.evaluate(wholes), runner) for kind, runner in ((programs, python), (shell, bash_only))]
    assert [line.replace(" ", "") for line in found[0].splitlines()] == [
        line.replace(" ", "") for line in found[1].splitlines()
    ]
    assert found[0]


@pytest.mark.parametrize(
    ("words", "types"),
    [('say "no"', ("film",)), ("it's $HOME `ls` \\ .* [x]", ("film", "a b")), ("émigré", ("person",))],
)
def test_what_a_question_says_cannot_become_a_command(
    words: str, types: tuple[str, ...], bash_only: PlainShell
) -> None:
    command = shell.evaluate([(f"says({words!r}, {types!r}, ('plot',)) - N(3)", [])])
    output = bash_only.run(["/bin/bash", "-c", command], timeout_s=60).output.read_text()
    assert output == '{"reading": 0, "size": 0, "ids": [], "looser": []}\n'


def test_what_a_graph_says_cannot_become_a_command(closed_path: Path, tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    name = "a[$(echo x >owned)]`echo x >owned`"
    line = f'{{"node_id":0,"node_type":"film","is_candidate":true,"attributes":{{"name":"{name}"}}}}\n'
    (tmp_path / "nodes" / "0000.jsonl").write_text(line * 2)
    runner = PlainShell(tmp_path, tmp_path, count(), {"PATH": str(closed_path), "LANG": "C.UTF-8"})
    question = "Which a echo x owned echo x owned?"
    output = runner.run(["/bin/bash", "-c", shell.link(question, [], ["owned"])], timeout_s=60).output.read_text()
    assert f'"text": "{name}"' in output
    assert not (tmp_path / "owned").exists()


def test_a_search_with_bash_ranks_by_rare_words_and_neighbours(bash_only: PlainShell) -> None:
    command = shell.search("a film with a lighthouse and a singer", [7], ("film",))
    lines = bash_only.run(["/bin/bash", "-c", command], timeout_s=60).output.read_text().splitlines()
    assert lines
    assert lines[0].startswith('{"id": 1, ')
    assert {int(line.split()[1].strip(",")) for line in lines} <= set(range(6))


@pytest.mark.parametrize(
    ("said", "tools"),
    [
        ("Search with shell tools, with rg, or with Python 3 programs.", PYTHON),
        ("Search with shell tools and rg. No general-purpose programming language is installed.", BASH),
        ("Python 3 suits. Python can be started only once while you work.", ONE_START),
        ("", BASH),
    ],
)
def test_what_was_said_of_the_tools_decides_what_it_writes(said: str, tools: object) -> None:
    assert toolbox(said) is tools
