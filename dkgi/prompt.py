"""The one user message of an attempt, put together from the files in prompts/ (paper, section 8).

    task, ranking instruction, output form, question, tool section

Rendering is pure: the same files and values give the same bytes. A question's own `$` stays as it is.
Not covered: the wording, which is data.
"""

import hashlib
from dataclasses import dataclass
from string import Template
from typing import Any, ClassVar

from dkgi.paths import data_dir, user_folders
from dkgi.types import SetupError, ToolPolicy


@dataclass(frozen=True, slots=True)
class PromptSpec:
    """From conf/prompt: the files of a prompt, relative to prompts/, and the key that an answer must use."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    name: str
    task: str
    ranking: str
    output: str
    question: str
    answer_key: str


def render_prompt(spec: PromptSpec, policy: ToolPolicy, *, query: str, corpus: str, scratch: str) -> str:
    """The message for one query; `corpus` and `scratch` are paths as the agent sees them."""
    values = {"query": query, "corpus": corpus, "scratch": scratch}
    parts = [Template(read_part(name)).safe_substitute(values).strip() for name in _parts(spec, policy)]
    return "\n\n".join(parts) + "\n"


def prompt_digest(spec: PromptSpec, policy: ToolPolicy) -> str:
    """sha256 over all that the model reads from us under a prompt and a policy, tool texts included."""
    names = [
        *_parts(spec, policy),
        *(f"tools/{name}.json" for name in policy.tools),
        "tools/messages.json",
        "output_limit.txt",
    ]
    digest = hashlib.sha256()
    for name in names:
        digest.update(f"{name}\0{read_part(name)}\0".encode())
    return digest.hexdigest()


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


def _parts(spec: PromptSpec, policy: ToolPolicy) -> list[str]:
    return [spec.task, spec.ranking, spec.output, spec.question, policy.section]
