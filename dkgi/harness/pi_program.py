"""How Pi is started: its files, command line, configuration and jail.

>>> arguments(find_program("0.65.0"), face, ("bash", "read"))
['/opt/pi/node', '/opt/pi/node_modules/@mariozechner/pi-coding-agent/dist/cli.js', '--mode', 'rpc', ...]

What differs among releases is in one table; no other release is started.
Not covered: installing it (nodetools.py), talking to it (pi_rpc.py).
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dkgi.context import Level3
from dkgi.nodetools import PI_CLI, find_node, find_pi
from dkgi.paths import data_dir
from dkgi.types import CliBox, Face, Session, SetupError, Task, ToolSocket, WireName

LEVELS = ("minimal", "low", "medium", "high", "xhigh")
"""How much a model may be told to reason."""

_STOCK = ("read", "bash")
_TOP, _HOME, _MODEL, _TOOLS = "/opt/pi", "/run/home", "/run/model", "/run/tools"
_PROVIDER = "local"

_APIS: dict[WireName, tuple[str, str]] = {
    "openai_responses": ("openai-responses", "http://model.invalid/v1"),
    "openai_chat": ("openai-completions", "http://model.invalid/v1"),
    "anthropic_messages": ("anthropic-messages", "http://model.invalid"),
}
"""Pi's name of a wire, and the address that its library completes; all of them lead to the gateway."""

_SETTINGS = {
    "quietStartup": True,
    "compaction": {"enabled": False},
    "retry": {"enabled": False},
    "images": {"blockImages": True},
    "transport": "sse",
    # Pi's own bash, if it were ever called, fails.
    "shellPath": "/nowhere",
}


@dataclass(frozen=True, slots=True)
class Release:
    """What is peculiar to one release.

    names_all         `--tools` names all tools, else those that Pi has itself
    options           further words of the command line
    doubles_thinking  on Chat Completions it counts reasoning tokens twice
    """

    names_all: bool
    options: tuple[str, ...]
    doubles_thinking: bool


_RELEASES = {
    "0.65.0": Release(names_all=False, options=(), doubles_thinking=True),
    "0.73.1": Release(names_all=True, options=("--no-context-files",), doubles_thinking=False),
}


@dataclass(frozen=True, slots=True)
class Program:
    node: Path
    tree: Path
    release: Release


def find_program(version: str) -> Program:
    """Raises SetupError where this release is not known or not installed."""
    if version not in _RELEASES:
        raise SetupError(f"harness.version: Pi {version} is not known here; use {' or '.join(_RELEASES)}")
    return Program(find_node(), find_pi(version), _RELEASES[version])


def level(face: Face) -> str:
    """Raises SetupError where Pi has no word for the model's effort."""
    if face.effort is not None and face.effort not in LEVELS:
        raise SetupError(f"model.effort: harness=pi reasons at {', '.join(LEVELS)}, not at {face.effort}")
    return face.effort or "off"


def arguments(program: Program, face: Face, tools: Sequence[str]) -> list[str]:
    named = tools if program.release.names_all else [name for name in _STOCK if name in tools]
    words = [f"{_TOP}/node", f"{_TOP}/node_modules/{PI_CLI}", "--mode", "rpc"]
    words += ["--provider", _PROVIDER, "--model", face.model, "--thinking", level(face)]
    words += ["--no-session", "--no-extensions", "--no-skills", "--no-prompt-templates", "--no-themes", "--offline"]
    words += ["--tools", ",".join(named)] if named else ["--no-tools"]
    return [*words, *program.release.options, "-e", f"{_TOP}/extension.mjs"]


def box(program: Program, task: Task, session: Session, context: Level3, *, wall_s: float, memory_mb: int) -> CliBox:
    """The jail of one attempt. Its working directory has the graph's path and is empty: Pi would read instructions there,
    and tools work elsewhere."""
    assert task.calls is not None, "an external harness comes with a socket for its tools"
    return CliBox(
        read_only=(
            (program.node, f"{_TOP}/node"),
            (program.tree, f"{_TOP}/node_modules"),
            (data_dir("sandbox") / "pi" / "extension.mjs", f"{_TOP}/extension.mjs"),
            (session.socket, _MODEL),
            (task.calls.path, _TOOLS),
        ),
        home=_HOME,
        files=(("settings.json", json.dumps(_SETTINGS)), ("models.json", json.dumps(_models(session)))),
        empty=task.workspace.graph_at,
        cwd=task.workspace.graph_at,
        env=_environment(task.calls, task.policy.tools, context),
        wall_s=wall_s,
        memory_mb=memory_mb,
    )


def _environment(calls: ToolSocket, tools: Sequence[str], context: Level3) -> tuple[tuple[str, str], ...]:
    return (
        ("PATH", "/usr/bin:/bin"),
        ("HOME", _HOME),
        ("LANG", "C.UTF-8"),
        ("PI_CODING_AGENT_DIR", _HOME),
        ("PI_OFFLINE", "1"),
        ("MODEL_SOCKET", _MODEL),
        ("TOOL_SOCKET", _TOOLS),
        ("TOOL_TOKEN", calls.token),
        ("TOOLS", ",".join(tools)),
        ("CONTEXT", json.dumps(asdict(context))),
    )


def _models(session: Session) -> dict[str, Any]:
    face = session.face
    api, address = _APIS[face.wire]
    model = {
        "id": face.model,
        "reasoning": face.effort is not None,
        "input": ["text"],
        "contextWindow": face.context_window,
        "maxTokens": face.max_output_tokens,
        "cost": dict.fromkeys(("input", "output", "cacheRead", "cacheWrite"), 0),
        # What the servers of Chat Completions understand that are not OpenAI's.
        "compat": {
            "supportsStore": False,
            "supportsDeveloperRole": False,
            "supportsReasoningEffort": face.effort is not None,
            "maxTokensField": "max_tokens",
        },
    }
    return {"providers": {_PROVIDER: {"baseUrl": address, "api": api, "apiKey": session.token, "models": [model]}}}
