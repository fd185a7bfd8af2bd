"""Codex itself, in its jail, with scripted models and a provider on a loopback socket behind the gateway."""

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from dkgi.config import load
from dkgi.gateway import ModelGateway
from dkgi.graph.export import write_export
from dkgi.harness.codex import Codex, CodexSpec
from dkgi.harness.codex_program import find_codex
from dkgi.jail.external import AttemptPrograms
from dkgi.jail.scratch import RunFolder
from dkgi.kg.index import open_index
from dkgi.kg.server import GraphSeat, GraphServer
from dkgi.kg.tools import graph_tools
from dkgi.meter import Ledger
from dkgi.models.scripted import Scripted, ScriptedSpec
from dkgi.tools import GRAPH_TOOLS
from dkgi.types import (
    Attempt,
    CommandResult,
    Limits,
    Model,
    Query,
    SetupError,
    Step,
    Task,
    ToolPolicy,
    Usage,
    Workspace,
)
from tests.gateways import wired
from tests.jail.conftest import marked
from tests.jail.outer import run_inside
from tests.kg.conftest import SPEC as INDEX
from tests.kg.conftest import library
from tests.loopback import Loopback, Turn
from tests.places import free_place

ANSWER = '{"node_ids": [0]}'
LIMITS = Limits(wall_s=40, max_turns=300, attempts=1, backoff_s=0)
KEY = "sk-test-0123456789abcdef"


@cache
def spec() -> CodexSpec:
    found = load(["harness=codex"]).harness
    assert isinstance(found, CodexSpec)
    return found


@cache
def policy_of(name: str) -> ToolPolicy:
    return load([f"tools={name}"]).tools


try:
    find_codex(spec().version)
except SetupError as missing:
    pytest.skip(str(missing), allow_module_level=True)


class NoCommands:
    """Codex has a sandbox of its own for commands."""

    def run(self, argv: Any, *, timeout_s: float) -> CommandResult:
        raise AssertionError("a command outside of Codex")


@dataclass
class Ran:
    attempt: Attempt
    steps: list[Step]
    workspace: Workspace
    graph_calls: int

    @property
    def results(self) -> list[str]:
        """What the model saw of its calls, without how long they took."""
        texts = [step.text for step in self.steps if step.type == "tool_result"]
        return [text.partition("Output:")[2].removeprefix("\n") or text for text in texts]


Run = Callable[..., Ran]


@dataclass(frozen=True)
class Place:
    export: Path
    folder: RunFolder
    server: GraphServer
    gateway: ModelGateway


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A small library, and what serves it and models to all attempts."""
    folder = tmp_path_factory.mktemp("codex")
    export = folder / "graphs" / "library-1"
    write_export(library(), export)
    tools = graph_tools(open_index(export, INDEX, folder))
    with (
        RunFolder(folder / "w") as own,
        GraphServer(own.path, tools, "") as server,
        ModelGateway(own.path) as gateway,
    ):
        yield Place(export, own, server, gateway)


@pytest.fixture
def run(place: Place, tmp_path: Path) -> Run:
    """One attempt under a policy by name."""

    def start(model: Model, name: str = "full_dkgi", *, driven: CodexSpec | None = None, **changes: Any) -> Ran:
        policy, steps = policy_of(name), list[Step]()
        with seat(place.server, policy, tmp_path) as graph:
            workspace = replace(place.folder.new_attempt(place.export), client=graph.files)
            task = Task(
                Query(1, "q", "val", False),
                "the prompt",
                policy,
                LIMITS,
                workspace,
                model,
                NoCommands(),
                steps.append,
                graph.tools,
                place.gateway,
                programs=AttemptPrograms(workspace),
            )
            attempt = Codex(driven or spec()).run(replace(task, **changes))
            return Ran(attempt, steps, workspace, graph.calls())

    return start


@contextmanager
def seat(server: GraphServer, policy: ToolPolicy, logs: Path) -> Iterator[GraphSeat]:
    offered = tuple(name for name in policy.tools if name in GRAPH_TOOLS)
    with server.attempt(offered, policy.client, logs / "graph_calls.jsonl") as graph:
        yield graph


def call(tool: str, **arguments: Any) -> dict[str, Any]:
    return {"name": tool, "arguments": arguments}


def script(program: str) -> dict[str, Any]:
    """A call of Codex's own JavaScript tool."""
    return {"name": "exec", "arguments": program}


def scripted(folder: Path, *replies: Mapping[str, Any]) -> Model:
    path = folder / "replies.json"
    path.write_text(json.dumps({"*": [replies]}))
    return Scripted(ScriptedSpec("scripted", "scripted", path, None)).model(free_place())


def test_a_model_that_knows_bash_and_read_sees_what_native_would_show_it(run: Run, tmp_path: Path) -> None:
    calls = [call("bash", command="echo one > /scratch/f; cat /scratch/f; exit 3"), call("bash", command="true")]
    more = [call("read", path="candidate_ids.txt", offset=2, limit=2), call("bash", command="sleep 60", timeout=1)]
    model = scripted(tmp_path, {"calls": calls, "usage": {"input_fresh": 9}}, {"calls": more}, {"text": ANSWER})
    ran = run(model)
    assert (ran.attempt.stop, ran.attempt.final_answer, ran.attempt.error) == ("answered", ANSWER, "")
    assert ran.results == ["one\n[exit code 3]", "(no output)", "1\n2\n", "[exit code 124]"]
    assert (ran.attempt.turns, ran.attempt.tool_calls, ran.attempt.tool_errors) == (3, 4, 2)
    assert ran.attempt.usage == Usage(input_fresh=9, requests=3)
    assert ran.attempt.flags == ()
    assert (ran.workspace.scratch_dir / "f").read_text() == "one\n"


def test_a_command_that_codex_hands_back_is_waited_for_to_its_end(run: Run, tmp_path: Path) -> None:
    command = "echo first; sleep 11; echo last"
    ran = run(scripted(tmp_path, {"calls": [call("bash", command=command)]}, {"text": ANSWER}))
    assert ran.results == ["first\nlast\n"]
    assert ran.attempt.turns == 2


def test_arguments_that_are_none_come_back_as_an_error(run: Run, tmp_path: Path) -> None:
    calls = [{"name": "bash", "arguments": "{not json"}, {"name": "bash", "arguments": "{}"}]
    ran = run(scripted(tmp_path, {"calls": calls}, {"text": ANSWER}))
    assert ran.attempt.stop == "answered"
    assert all(text.startswith("bash: ") for text in ran.results)


def test_the_trajectory_has_javascript_and_the_prompt(run: Run, tmp_path: Path) -> None:
    ran = run(scripted(tmp_path, {"calls": [script('text("hi " + 6 * 7)')]}, {"text": ANSWER}))
    kinds = [(step.type, step.name) for step in ran.steps]
    told = [("user", None), ("user", None)]
    assert kinds == [*told, ("tool_call", "exec"), ("tool_result", "exec"), ("assistant", None)]
    assert "<cwd>/graph</cwd>" in ran.steps[0].text
    assert [step.text for step in ran.steps[1:3]] == ["the prompt", 'text("hi " + 6 * 7)']
    assert ran.results == ["hi 42"]


PROBE = r"""
for path in /graph/x /opt/codex/x /run/x /run/codex/x /usr/x; do touch $path 2>/dev/null && echo "wrote $path"; done
python3 - <<'E'
import glob, os, socket
for family, place in ((socket.AF_INET, ("127.0.0.1", 8080)), (socket.AF_UNIX, "/run/model/socket")):
    try:
        socket.socket(family).connect(place)
        print("reached", place)
    except OSError:
        pass
names = glob.glob("/proc/[0-9]*/environ")
for top in ("/run", "/tmp", "/scratch", "/etc"):
    names += [os.path.join(folder, name) for folder, _, files in os.walk(top) for name in files]
for name in names:
    try:
        text = open(name, "rb").read()
    except OSError:
        continue
    if b"DKGI_MODEL_KEY=" in text:
        print("saw the key in", name)
E
echo done
"""


def test_commands_write_to_scratch_and_tmp_alone_and_reach_nothing(run: Run, tmp_path: Path) -> None:
    ran = run(scripted(tmp_path, {"calls": [call("bash", command=PROBE)]}, {"text": ANSWER}))
    assert ran.results == ["done\n"]


def test_the_javascript_tool_reaches_nothing_but_commands(run: Run, tmp_path: Path) -> None:
    names = "fetch XMLHttpRequest WebSocket require process Deno importScripts"
    program = f'text("{names}".split(" ").filter((name) => typeof globalThis[name] !== "undefined").join());'
    program += "text(ALL_TOOLS.map((tool) => tool.name).join());"
    program += 'try { await import("node:fs"); text("imported"); } catch { text(" refused"); }'
    ran = run(scripted(tmp_path, {"calls": [script(program)]}, {"text": ANSWER}))
    assert ran.results == ["exec_command,write_stdin refused"]


def test_graph_tools_are_functions_and_there_is_no_shell(run: Run, tmp_path: Path) -> None:
    calls = [call("search", query="ice lake", k=1), call("get_node", node_id=99), call("bash", command="id")]
    ran = run(scripted(tmp_path, {"calls": calls}, {"text": ANSWER}), "graph_tools")
    assert ran.results[0].startswith("found 1 results\n[0] The Long Boat (book)")
    assert ran.results[1].startswith("get_node: there is no node 99")
    assert ran.results[2] == "unsupported call: bash"
    assert (ran.graph_calls, ran.attempt.tool_calls, ran.attempt.tool_errors) == (2, 2, 1)


def test_javascript_composes_graph_tools_where_programs_may_call_them(run: Run, tmp_path: Path) -> None:
    program = (
        "const graph = async (name, args) => (await tools[`mcp__kg__${name}`](args)).content[0].text;\n"
        'const found = await graph("search", {query: "lake", k: 2});\n'
        "const ids = [...found.matchAll(/^\\[(\\d+)\\]/gm)].map((match) => Number(match[1]));\n"
        'for (const node_id of ids) text(await graph("get_node", {node_id}) + "\\n");\n'
        "text(typeof tools.exec_command);"
    )
    calls = [script(program), call("get_node", node_id=4)]
    ran = run(scripted(tmp_path, {"calls": calls}, {"text": ANSWER}), "graph_tools_code")
    assert ran.results[0].count('"node_type"') == 2
    assert ran.results[0].endswith("undefined")
    assert "Bo Ek" in ran.results[1]
    assert ran.graph_calls == ran.attempt.tool_calls == 4


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("full_dkgi", ["exec", "wait"]),
        ("no_edges", ["exec", "wait"]),
        ("graph_tools_code", ["exec", "wait"]),
        ("closed_book", []),
        ("retrieval_only", ["get_node", "get_schema", "search"]),
    ],
)
def test_a_provider_is_offered_the_tools_of_the_policy_and_no_others(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, tools: list[str]
) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    with Loopback([Turn(text=ANSWER, input=900, cached=300, output=40, reasoning=7)]) as server:
        ran = run(provider(server, tmp_path), name)
    (request,) = server.requests
    offered = [inner["name"] for tool in request.body["tools"] for inner in tool.get("tools", [tool])]
    # Codex lists resources wherever there are tools of a server; ours has none.
    assert sorted(tool for tool in offered if "resource" not in tool) == tools
    assert request.headers["authorization"] == f"Bearer {KEY}"
    assert ran.attempt.usage == Usage(input_fresh=600, cache_read=300, output=40, reasoning=7, requests=1)
    assert (ran.attempt.stop, ran.attempt.final_answer, ran.attempt.flags) == ("answered", ANSWER, ())


def test_an_account_that_differs_from_the_gateways_is_a_flag(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    with Loopback([Turn(text=ANSWER, fault="no_usage")]) as server:
        ran = run(provider(server, tmp_path))
    assert (ran.attempt.stop, ran.attempt.error, ran.attempt.flags) == ("answered", "", ("usage_mismatch",))
    assert not ran.attempt.usage.complete


def provider(server: Loopback, folder: Path) -> Model:
    return wired("openai_responses", server.root, folder, Ledger(cap_usd=None, prices=None), seconds=30)


@pytest.mark.parametrize(
    ("turn", "stop", "error"),
    [
        (Turn(status=400, body={"error": {"message": "no such thing"}}), "model_error", "bad_request: no such thing"),
        (Turn(text="no", stop="refusal"), "refused", ""),
        (Turn(text="[1, 2", stop="length"), "answered", ""),
    ],
)
def test_how_a_request_ended_decides_how_the_attempt_did(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, turn: Turn, stop: str, error: str
) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    with Loopback([turn]) as server:
        ran = run(provider(server, tmp_path))
    assert (ran.attempt.stop, ran.attempt.error, len(server.requests)) == (stop, error, 1)
    assert ran.attempt.final_answer == turn.text


def test_a_wrong_key_is_raised(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DKGI_TEST_KEY", KEY)
    turn = Turn(status=401, body={"error": {"message": "bad key", "type": "authentication_error"}})
    with Loopback([turn]) as server, pytest.raises(SetupError, match="DKGI_TEST_KEY"):
        run(provider(server, tmp_path))


def test_a_policy_of_one_turn_has_one(run: Run, tmp_path: Path) -> None:
    ran = run(scripted(tmp_path, {"calls": [call("search", query="x")]}, {"text": ANSWER}), "closed_book")
    assert (ran.attempt.stop, ran.attempt.turns) == ("turn_limit", 1)


def test_it_has_no_limit_of_turns_but_the_one_that_is_asked_for(run: Run, tmp_path: Path) -> None:
    assert load(["harness=codex"]).limits.max_turns is None
    assert load(["harness=codex", "limits.max_turns=2"]).limits.max_turns == 2
    model = scripted(tmp_path, *[{"calls": [call("bash", command="true")]}] * 3, {"text": ANSWER})
    ran = run(model, limits=replace(LIMITS, max_turns=2))
    assert (ran.attempt.stop, ran.attempt.turns) == ("turn_limit", 2)


def test_the_time_limit_ends_everything_and_nothing_is_left(run: Run, tmp_path: Path) -> None:
    mark = f"sleep 98{time.time_ns() % 10**6}"
    started = time.monotonic()
    model = scripted(tmp_path, {"calls": [call("bash", command=mark)]}, {"text": ANSWER})
    ran = run(model, limits=replace(LIMITS, wall_s=2.5))
    assert (ran.attempt.stop, ran.attempt.turns) == ("time_limit", 1)
    assert time.monotonic() - started < 2.5 + 5
    assert marked(mark) == []
    assert sorted(path.name for path in ran.workspace.scratch_dir.parent.iterdir()) == ["outputs", "scratch", "tmp"]


@pytest.mark.parametrize(
    ("command", "driven", "error"),
    [
        ("head -c 400M /dev/zero > /scratch/big; sleep 30", replace(spec(), scratch_mb=300), "harness.scratch_mb=300"),
        (
            "python3 -c 'import time; x = bytearray(700 * 2**20); time.sleep(30)'",
            replace(spec(), memory_mb=600),
            "harness.memory_mb",
        ),
    ],
)
def test_commands_that_take_too_much_end_the_attempt(
    run: Run, tmp_path: Path, command: str, driven: CodexSpec, error: str
) -> None:
    started = time.monotonic()
    ran = run(scripted(tmp_path, {"calls": [call("bash", command=command)]}, {"text": ANSWER}), driven=driven)
    assert ran.attempt.stop == "sandbox_error"
    assert error in ran.attempt.error
    assert time.monotonic() - started < 20


def test_a_run_that_is_stopped_does_not_wait_for_codex(run: Run, tmp_path: Path) -> None:
    stopped = threading.Event()
    threading.Timer(2.0, stopped.set).start()
    started = time.monotonic()
    run(scripted(tmp_path, {"calls": [call("bash", command="sleep 60")]}, {"text": ANSWER}), cancelled=stopped.is_set)
    assert time.monotonic() - started < 8


def test_what_codex_says_where_it_fails_is_told(run: Run, tmp_path: Path) -> None:
    ran = run(scripted(tmp_path, {"text": ANSWER}), prompt="")
    assert ran.attempt.stop == "crashed"
    assert ran.attempt.error.startswith("Codex ended with exit code 1: ")
    assert "prompt" in ran.attempt.error


def test_it_holds_for_an_ordinary_user_in_an_outer_jail(tmp_path: Path) -> None:
    test = "test_commands_write_to_scratch_and_tmp_alone_and_reach_nothing"
    done = run_inside(tmp_path, ["tests/harness/test_codex.py", "-k", test])
    assert "1 passed" in done.stdout, done.stdout
