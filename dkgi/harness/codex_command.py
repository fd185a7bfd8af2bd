"""Codex's command line: one run, nothing of the user's, no network, no features beside the tools of a policy.

>>> shape_of(policy, ("get_schema", "search"))
Shape(shell=False, code=False, graph=('get_schema', 'search'))
>>> arguments(spec, face, shape)
['exec', '--json', '--strict-config', ...]

Each key was seen to be taken by the pinned version; with `--strict-config` one that it does not know ends the run.
Not covered: what these paths are on the host (codex.py).
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from dkgi.jail.profile import GRAPH, SCRATCH, TMP
from dkgi.tools import GRAPH_TOOLS
from dkgi.types import Face, ToolPolicy

PORT = 8080
# Not below TMPDIR: there Codex refuses to make the helper that its sandbox starts.
HOME = "/run/codex"
SOCKET, RELAY = "/run/model/socket", "/run/model/relay.py"
PROGRAM = "/opt/codex"
GRAPH_SOCKET, GRAPH_SERVER = "/run/graph/socket", "/run/graph/server.py"
TOKEN, CATALOG = f"{HOME}/token", f"{HOME}/models.json"
KEY = "DKGI_MODEL_KEY"
SERVER = "kg"
"""What its tools of the graph are named after."""

# Everything that is no part of the agent that the paper ran: what asks, fetches, remembers or looks elsewhere.
OFF = [
    "multi_agent",
    "multi_agent_v2",
    "memories",
    "plugins",
    "remote_plugin",
    "plugin_sharing",
    "apps",
    "browser_use",
    "browser_use_external",
    "browser_use_full_cdp_access",
    "in_app_browser",
    "in_app_chat",
    "computer_use",
    "image_generation",
    "view_image",
    "goals",
    "hooks",
    "tool_suggest",
    "skill_search",
    "skill_mcp_dependency_install",
    "sleep_tool",
    "shell_snapshot",
    "guardian_approval",
    "fast_mode",
    "realtime_conversation",
    "workspace_dependencies",
    "worktrees",
    "auth_elicitation",
    "tool_call_mcp_elicitation",
    "enable_request_compression",
    "mentions_v2",
    "unbounded_connection_retries",
]
SHELL = ("shell_tool", "unified_exec")


@dataclass(frozen=True, slots=True)
class Shape:
    """Codex's tools under a policy.

    shell  commands, by way of its JavaScript tool
    code   the JavaScript tool, which may combine the tools of the graph
    graph  names of the graph's tools
    """

    shell: bool
    code: bool
    graph: tuple[str, ...]

    @property
    def tool_mode(self) -> str:
        """What a catalog calls it."""
        return "code_mode_only" if self.shell or self.code else "direct"


def shape_of(policy: ToolPolicy) -> Shape:
    """Where programs may call the graph, its JavaScript does that, and there is no shell beside it."""
    offered = policy.client or tuple(name for name in policy.tools if name in GRAPH_TOOLS)
    return Shape("bash" in policy.tools and not policy.client, bool(policy.client), offered)


def environment(token: str) -> tuple[tuple[str, str], ...]:
    return (
        ("PATH", "/usr/local/bin:/usr/bin:/bin"),
        ("HOME", HOME),
        ("CODEX_HOME", HOME),
        ("TMPDIR", TMP),
        ("LANG", "C.UTF-8"),
        ("LC_ALL", "C.UTF-8"),
        (KEY, token),
    )


def arguments(face: Face, shape: Shape, *, catalog: bool) -> list[str]:
    """The words after `codex`. With `catalog`, the file CATALOG says how models are driven."""
    words = ["exec", "--json", "--strict-config", "--ignore-user-config", "--ignore-rules", "--skip-git-repo-check"]
    words += ["--ephemeral", "-C", GRAPH, "-m", face.model]
    for key, value in _settings(face, shape, catalog=catalog):
        words += ["-c", f"{key}={_toml(value)}"]
    for name in (*OFF, *(() if shape.shell else SHELL)):
        words += ["--disable", name]
    return [*words, "-"]


def _settings(face: Face, shape: Shape, *, catalog: bool) -> Iterator[tuple[str, Any]]:
    provider = {"name": "dkgi", "base_url": f"http://127.0.0.1:{PORT}/v1", "env_key": KEY, "wire_api": "responses"}
    # Requests are tried again behind the gateway, where their money is; a reply may take as long as the attempt.
    tries = {"request_max_retries": 0, "stream_max_retries": 0, "stream_idle_timeout_ms": 86_400_000}
    yield "model_provider", "dkgi"
    yield "model_providers.dkgi", provider | tries
    if face.effort is not None:
        yield "model_reasoning_effort", face.effort
        yield "model_reasoning_summary", "auto"
    yield "model_context_window", face.context_window
    if catalog:
        yield "model_catalog_json", CATALOG
    yield "approval_policy", "never"
    yield "default_permissions", "dkgi"
    writable = {SCRATCH: "write", TMP: "write"} if shape.shell else {}
    yield "permissions.dkgi", {"filesystem": {":root": "read", **writable}, "network": {"enabled": False}}
    yield "allow_login_shell", False
    yield "shell_environment_policy.inherit", "core"
    yield from _quiet()
    if shape.graph:
        yield f"mcp_servers.{SERVER}", _graph_server(shape)


def _quiet() -> Iterator[tuple[str, Any]]:
    """Nothing of a project, no history, no look-ups."""
    yield "web_search", "disabled"
    yield "project_doc_max_bytes", 0
    yield "history.persistence", "none"
    for key in (
        "check_for_update_on_startup",
        "analytics.enabled",
        "feedback.enabled",
        "agents.enabled",
        "skills.bundled.enabled",
        "skills.include_instructions",
        "orchestrator.skills.enabled",
        "orchestrator.mcp.enabled",
        "tools.experimental_request_user_input.enabled",
        "tools.update_plan.enabled",
    ):
        yield key, False


def _graph_server(shape: Shape) -> dict[str, Any]:
    """Without `required` the run would go on without its tools, without `approve` each call would be refused."""
    return {
        "command": "python3",
        "args": [GRAPH_SERVER, GRAPH_SOCKET, TOKEN],
        "startup_timeout_sec": 30,
        "tool_timeout_sec": 120,
        "required": True,
        "default_tools_approval_mode": "approve",
        "enabled_tools": list(shape.graph),
    }


def _toml(value: Any) -> str:
    """A value as TOML in one line. JSON's strings, numbers, booleans and lists are TOML's."""
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{json.dumps(key)}={_toml(inner)}" for key, inner in value.items()) + "}"
    return json.dumps(value)
