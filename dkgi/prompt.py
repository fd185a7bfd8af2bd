"""The one user message of an attempt, put together from the files in prompts/ (paper, section 8).

    task, ranking instruction, output form, question, tool section

Rendering is pure: the same files and values give the same bytes. A question's own `$` stays as it is. A text that tells
the model which experiment it is part of is refused (`check_prompt`).
Not covered: the wording, which is data.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from string import Template
from typing import Any, ClassVar

from dkgi.paths import data_dir, user_folders
from dkgi.types import SetupError, ToolPolicy


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """From conf/prompt: the files of a prompt, relative to prompts/, and the key that an answer must use.

    names     an answer holds names, which are mapped to nodes when it is scored
    by_heart  it asks what a model knows without a look at the graph: only for policies without tools
    files     it speaks of the graph's files itself: only for policies that show them
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    name: str
    task: str
    ranking: str
    output: str
    question: str
    answer_key: str
    names: bool = False
    by_heart: bool = False
    files: bool = False

    def fault(self, policy: ToolPolicy) -> str:
        """Why this prompt cannot be used with a policy, in one line; empty where it can."""
        if self.by_heart and (policy.tools or policy.client):
            return f"prompt={self.name} asks without a look at the graph, tools={policy.name} has one; use tools=closed_book"
        if self.files and not policy.graph:
            return (
                f"prompt={self.name} speaks of the graph's files, tools={policy.name} shows none; use tools=full_dkgi"
            )
        return ""


def render_prompt(
    spec: PromptSpec,
    policy: ToolPolicy,
    *,
    query: str,
    corpus: str,
    scratch: str,
    knowledge_base: str = "",
    answer_kinds: str = "",
) -> str:
    """The message for one query.

    `corpus` and `scratch` are paths as the agent sees them; `knowledge_base` and `answer_kinds` say in words what the
    graph is and what can be an answer. Raises SetupError where a text needs one of them and there is none.
    """
    values = {
        "query": query,
        "corpus": corpus,
        "scratch": scratch,
        "knowledge_base": knowledge_base,
        "answer_kinds": answer_kinds,
    }
    texts = [read_part(name) for name in _parts(spec, policy)]
    for key in ("knowledge_base", "answer_kinds"):
        if not values[key] and any(f"${key}" in text for text in texts):
            raise SetupError(f"dataset.{key}: prompt={spec.name} says it in words; set it in the data set's YAML")
    parts = [Template(text).safe_substitute(values).strip() for text in texts]
    return "\n\n".join(parts) + "\n"


def prompt_digest(spec: PromptSpec, policy: ToolPolicy) -> str:
    """sha256 over all that the model reads from us under a prompt and a policy, tool texts included."""
    digest = hashlib.sha256()
    for name in _texts(spec, policy):
        digest.update(f"{name}\0{read_part(name)}\0".encode())
    return digest.hexdigest()


def check_prompt(spec: PromptSpec, policy: ToolPolicy, names: Iterable[str]) -> None:
    """Raise SetupError where a text that the model reads from us holds one of `names`, in any case, as a word."""
    for part in _texts(spec, policy):
        text = read_part(part).lower()
        for name in sorted(names):
            if re.search(rf"(?<![a-z0-9]){re.escape(name.lower())}(?![a-z0-9])", text):
                raise SetupError(
                    f"prompt: {part} holds the word {name}, which names an experiment, a policy, a harness, a model or "
                    "a split: agents must not read it; use another word or another name"
                )


def experiment_names() -> set[str]:
    """The names of all experiments that can be asked for, shipped ones and those of `DKGI_CONF`."""
    folders = [*user_folders(), data_dir("conf")]
    return {path.stem for folder in folders for path in (folder / "experiment").glob("*.yaml")}


def read_part(name: str) -> str:
    """The text of one file in the prompts folders: those of `DKGI_CONF` first, then the shipped one.

    Raises SetupError where it is in none of them.
    """
    folders = [*(folder / "prompts" for folder in user_folders()), data_dir("prompts")]
    for folder in folders:
        path = folder / name
        if path.is_file() and path.resolve().is_relative_to(folder.resolve()):
            return path.read_text(encoding="utf-8")
    where = ", ".join(map(str, folders))
    raise SetupError(f"prompt: there is no text {name} in {where}; name a file in one of these folders")


def _texts(spec: PromptSpec, policy: ToolPolicy) -> list[str]:
    """The files of all that the model reads from us, the graph's own aside."""
    tools = [f"tools/{name}.json" for name in policy.tools]
    return [*_parts(spec, policy), *tools, "tools/messages.json", "output_limit.txt"]


def _parts(spec: PromptSpec, policy: ToolPolicy) -> list[str]:
    return [spec.task, spec.ranking, spec.output, spec.question, policy.section]
