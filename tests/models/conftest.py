"""The films as an export, and a plain shell in the place of the jail."""

import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path

import pytest

from dkgi.models.heuristic import Heuristic, HeuristicSpec
from dkgi.tools import make_tools, run_call
from dkgi.types import CommandResult, Item, Model, Reply, Tool, ToolResult, UserText
from tests.models.films import QUESTIONS, write_films
from tests.places import free_place

ENVIRONMENT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


@dataclass(frozen=True)
class PlainShell:
    """Runs commands in a folder, outside any jail."""

    folder: Path
    outputs: Path
    numbers: "count[int]"
    environment: Mapping[str, str] = field(default_factory=lambda: ENVIRONMENT)

    def run(self, argv: Sequence[str], *, timeout_s: float) -> CommandResult:
        output = self.outputs / f"{next(self.numbers)}.txt"
        environment = {**self.environment, "TMPDIR": str(self.outputs)}
        with output.open("wb") as file:
            done = subprocess.run(
                argv,
                cwd=self.folder,
                env=environment,
                stdout=file,
                stderr=subprocess.STDOUT,
                timeout=60,
                check=False,
            )
        return CommandResult(done.returncode, None, output, output.stat().st_size, 0.0, 0.0, 0.0)


@pytest.fixture(scope="session")
def film_export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs") / "films"
    write_films(folder)
    return folder


@pytest.fixture
def tools(film_export: Path, tmp_path: Path) -> dict[str, Tool]:
    return tools_in(film_export, tmp_path)


def tools_in(graph: Path, outputs: Path) -> dict[str, Tool]:
    """The tools of an attempt on a graph."""
    return make_tools(("bash", "read"), PlainShell(graph, outputs, count()), {})


def heuristic() -> Model:
    return Heuristic(HeuristicSpec("heuristic", "heuristic", None)).model(free_place(0))


def prompt(question: str) -> str:
    return f'Answer with one JSON object:\n\n{{"node_ids": [12, 345]}}\n\nQuestion: {question}\n\nFiles in /graph.\n'


def converse(question: str, tools: dict[str, Tool]) -> list[Item]:
    """A whole conversation, the answer last."""
    return converse_after(prompt(question), tools)


def converse_after(text: str, tools: dict[str, Tool]) -> list[Item]:
    """A whole conversation after a prompt, the answer last."""
    history: list[Item] = [UserText(text)]
    model = heuristic()
    while True:
        history.append(reply := model.reply(history, [tool.spec for tool in tools.values()]))
        if not reply.calls:
            return history
        assert sum(isinstance(item, Reply) for item in history) < 40
        for call in reply.calls:
            output = run_call(call, tools, timeout_s=60)
            history.append(ToolResult(call.id, call.name, output.text, output.is_error))


def answer(question: str, tools: dict[str, Tool]) -> str:
    last = converse(question, tools)[-1]
    assert isinstance(last, Reply)
    return last.text


@pytest.fixture(scope="session")
def two_hops(film_export: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Item]:
    """A whole conversation about a film's actors."""
    return converse(QUESTIONS["two hops"][0], tools_in(film_export, tmp_path_factory.mktemp("outputs")))
