"""The one user message of an attempt, put together from the files in prompts/ (paper, section 8).

    task, ranking instruction, output form, question, tool section

Rendering is pure: the same files and values give the same bytes. A question's own `$` stays as it is.
Not covered: the wording, which is data.
"""

import hashlib
from dataclasses import dataclass
from string import Template
from typing import Any, ClassVar

from dkgi.paths import data_dir
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
    """The text of one file in prompts/. Raises SetupError where it is missing."""
    try:
        return (data_dir("prompts") / name).read_text(encoding="utf-8")
    except OSError as error:
        raise SetupError(f"prompt: cannot read prompts/{name}: {error.strerror}; name an existing file") from None


def _parts(spec: PromptSpec, policy: ToolPolicy) -> list[str]:
    return [spec.task, spec.ranking, spec.output, spec.question, policy.section]
