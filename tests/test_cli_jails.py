"""What can be seen and reached from inside of the jails of Pi and Codex: by commands, an extension, JavaScript.

A key lies in the environment of the process that starts them, as it does in a run that is paid for.
"""

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from threading import Event, Thread
from typing import Any

import psutil
import pytest

from dkgi.config import load
from dkgi.context import Level3
from dkgi.harness import open_harness
from dkgi.harness.pi_program import arguments, box, find_program
from dkgi.types import Attempt, SetupError, Task, ToolPolicy, Usage
from tests.jail.conftest import kill_jail_of, marked
from tests.loopback import Loopback, Turn
from tests.one_query import Films, FilmsCell, films_cell, write_all

KEY = "no-real-key-6e1f88b2f5"
ANSWER = '{"node_ids": [3]}'
QUESTION = "Which films were directed by Dario Vint?"

LOOK = """
import os, socket, stat, sys

def attempt(what, act):
    try:
        # In two parts, since the text of this program is seen as well.
        print("REA" + "CHED", what, act())
    except OSError as error:
        print("no", what, type(error).__name__)

def tcp(host, port):
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as one:
        one.settimeout(3)
        one.connect((host, port))

def unix(path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.settimeout(3)
        one.connect(path)

for port in (8080, int(sys.argv[1])):
    attempt(f"port {port}", lambda: tcp("127.0.0.1", port))
attempt("the network", lambda: tcp("192.0.2.1", 80))
seen = 0
for top, folders, files in os.walk("/"):
    folders[:] = [name for name in folders if os.path.join(top, name) not in ("/proc", "/sys", "/usr", "/opt")]
    for name in files:
        path = os.path.join(top, name)
        seen += 1
        try:
            mode = os.lstat(path).st_mode
            if stat.S_ISSOCK(mode):
                attempt(path, lambda: unix(path))
            elif stat.S_ISREG(mode):
                content = open(path, "rb").read(1 << 24)
                print("file", path, content[:40]) if b"no-real" + b"-key" in content else None
        except OSError:
            pass
for number in filter(str.isdigit, os.listdir("/proc")):
    for name in ("environ", "cmdline"):
        try:
            print(open(f"/proc/{number}/{name}", "rb").read().replace(b"\\0", b"\\n").decode(errors="replace"))
        except OSError:
            pass
print("environment", dict(os.environ))
print("looked at", seen > 10)
"""
"""A program that tries every way out and prints every environment; it takes a port of the host."""

SPY = """
import * as fs from "node:fs";
import * as net from "node:net";
import * as os from "node:os";

const open = (options) => new Promise((resolve) => {
  const socket = net.createConnection(options, () => { socket.destroy(); resolve("REACHED"); });
  socket.setTimeout(3000, () => { socket.destroy(); resolve("no: timeout"); });
  socket.on("error", (error) => resolve(`no: ${error.code}`));
});

const find = (top, found = []) => {
  let names = [];
  try { names = fs.readdirSync(top, { withFileTypes: true }); } catch { return found; }
  for (const entry of names) {
    const path = top === "/" ? `/${entry.name}` : `${top}/${entry.name}`;
    if (["/proc", "/sys", "/usr", "/opt"].includes(path)) continue;
    if (entry.isDirectory()) find(path, found);
    else found.push(path);
  }
  return found;
};

export default async function () {
  const told = { environment: process.env, sockets: {}, ways: {}, keys: [], writes: [], others: [] };
  for (const path of find("/")) {
    let kind;
    // A folder's entry tells what lies below a mount.
    try { kind = fs.statSync(path); } catch { continue; }
    if (kind.isSocket()) told.sockets[path] = await open({ path });
    try { if (kind.isFile() && fs.readFileSync(path).includes("no-real-key")) told.keys.push(path); } catch {}
  }
  told.ways.host = await open({ host: "127.0.0.1", port: HOST_PORT });
  told.ways.net = await open({ host: "192.0.2.1", port: 80 });
  told.interfaces = Object.keys(os.networkInterfaces());
  for (const path of ["/graph/x", "/opt/pi/x", "/usr/x", "/etc/x", "/x"]) {
    try { fs.writeFileSync(path, "x"); told.writes.push(path); } catch {}
  }
  for (const path of HIDDEN) if (fs.existsSync(path)) told.others.push(path);
  told.uid = process.getuid();
  process.stderr.write(`\\nTOLD ${JSON.stringify(told)}\\n`);
  process.exit(0);
}
"""

JAVASCRIPT = """
const names = ["process", "require", "Deno", "Bun", "fetch", "XMLHttpRequest", "WebSocket", "importScripts"];
const found = names.filter((name) => typeof globalThis[name] !== "undefined");
let modules = [];
for (const name of ["fs", "node:fs", "net", "std", "os"]) {
  try { await import(name); modules.push(name); } catch {}
}
text(JSON.stringify({ found, modules, tools: Object.keys(tools).sort() }));
"""


@pytest.fixture(scope="module")
def films(tmp_path_factory: pytest.TempPathFactory) -> Films:
    return write_all(tmp_path_factory.mktemp("cache"))


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


@pytest.fixture
def played(films: Films, tmp_path: Path) -> Callable[..., str]:
    """Plays one call of a tool under a harness and a policy, and gives what its result shows."""

    def play(harness: str, policy: str, name: str, call: dict[str, Any]) -> str:
        reply = {"calls": [{"name": name, "arguments": call}]}
        (tmp_path / "replies.json").write_text(json.dumps({"*": [[reply, {"text": ANSWER}]]}))
        options = [f"harness={harness}", f"tools={policy}", "model=scripted"]
        options.append(f"model.replies={tmp_path / 'replies.json'}")
        skip_where_missing(options)
        with films_cell(options, films, tmp_path) as cell:
            told = cell.ask(QUESTION)
        assert told is not None
        assert told.result.stops == ("answered",), told.result.error
        (result,) = [step.text for step in told.steps if step.type == "tool_result"]
        return result

    return play


def skip_where_missing(options: list[str]) -> None:
    try:
        open_harness((experiment := load(options)).harness).check(experiment.tools)
    except SetupError as reason:
        pytest.skip(str(reason))


@pytest.fixture
def environments() -> Iterator[set[str]]:
    """Environments and command lines of all that runs below this process while a test does."""
    seen: set[str] = set()
    done = Event()

    def look() -> None:
        me = psutil.Process()
        while not done.wait(0.02):
            for child in me.children(recursive=True):
                try:
                    seen.update(f"{name}={value}" for name, value in child.environ().items())
                    seen.add("\n".join(child.cmdline()))
                except psutil.Error:
                    pass

    thread = Thread(target=look, daemon=True)
    thread.start()
    yield seen
    done.set()
    thread.join()


@pytest.mark.parametrize("harness", ["pi", "codex"])
def test_commands_reach_nothing_and_see_neither_key_nor_token(
    harness: str, played: Callable[..., str], environments: set[str]
) -> None:
    with Loopback([Turn(text="hello")]) as outside:
        port = outside.root.rpartition(":")[2]
        program = f"cat > /scratch/look.py <<'E'\n{LOOK}\nE\npython3 /scratch/look.py {port}"
        seen = played(harness, "full_dkgi", "bash", {"command": program})
        assert outside.requests == []
    assert "looked at True" in seen
    assert seen.count("no port") == 2
    assert "REACHED" not in seen
    assert "no-real-key" not in seen
    assert "API_KEY" not in seen
    # What the program that drives them was given to speak with.
    tokens = {entry.partition("=")[2] for entry in environments if entry.startswith(("DKGI_MODEL_KEY=", "TOOL_TOKEN="))}
    assert tokens
    assert not [token for token in tokens if token in seen]
    assert not [entry for entry in environments if KEY in entry]


class _Spied:
    """Starts Pi as its harness does, with one more extension, which tells what it sees and ends it."""

    def __init__(self, version: str, context: Level3, spy: Path) -> None:
        self.program, self.context, self.spy = find_program(version), context, spy
        self.told: dict[str, Any] = {}
        self.token = ""

    def check(self, policy: ToolPolicy) -> None: ...

    def run(self, task: Task) -> Attempt:
        assert task.gateway is not None
        assert task.programs is not None
        with task.gateway.session(task.model, task.on_step, max_turns=1, merge=True) as session:
            own = box(self.program, task, session, self.context, wall_s=60, memory_mb=1024)
            own = replace(own, read_only=(*own.read_only, (self.spy, "/opt/pi/spy.mjs")))
            words = arguments(self.program, session.face, task.policy.tools)
            with task.programs.start(own, [*words, "-e", "/opt/pi/spy.mjs"]) as process:
                process.wait(60)
                said = process.told()
            self.token = session.token
        (line,) = [line for line in said.splitlines() if line.startswith("TOLD ")] or [said]
        self.told = json.loads(line.removeprefix("TOLD "))
        return Attempt("answered", ANSWER, Usage(), 0.0, 0, 0, 0)


@pytest.mark.parametrize("version", ["0.65.0", "0.73.1"])
def test_an_extension_of_pi_sees_two_sockets_and_neither_key_nor_host(
    version: str, films: Films, tmp_path: Path
) -> None:
    with Loopback([Turn(text=ANSWER)]) as server:
        options = ["harness=pi", f"harness.version={version}", "model=luna", f"model.base_url={server.url}"]
        skip_where_missing(options)
        hidden = [str(films.cache), str(Path(__file__).parent), str(Path.home() / ".cache")]
        spy = tmp_path / "spy.mjs"
        spy.write_text(SPY.replace("HOST_PORT", server.root.rpartition(":")[2]).replace("HIDDEN", json.dumps(hidden)))
        with films_cell(options, films, tmp_path / "runs") as cell:
            spied = _Spied(version, Level3(), spy)
            FilmsCell(replace(cell.run, harness=spied)).ask(QUESTION)
        assert server.requests == []
    told = spied.told
    assert told["sockets"] == {"/run/model": "REACHED", "/run/tools": "REACHED"}
    assert not [way for way in told["ways"].values() if way == "REACHED"]
    assert told["interfaces"] in ([], ["lo"])
    assert KEY not in json.dumps(told)
    assert (told["keys"], told["writes"], told["others"]) == ([], [], [])
    assert told["uid"] != 0
    assert set(told["environment"]) <= {
        *("PATH", "HOME", "LANG", "PI_CODING_AGENT_DIR", "PI_OFFLINE", "PI_SKIP_VERSION_CHECK", "PI_CODING_AGENT"),
        *("MODEL_SOCKET", "TOOL_SOCKET", "TOOL_TOKEN", "TOOLS", "CONTEXT", "PWD", "SHLVL", "_", "OLDPWD"),
    }


@pytest.mark.parametrize(
    ("policy", "tools"),
    [
        ("full_dkgi", ["exec_command", "write_stdin"]),
        ("graph_tools_code", [f"mcp__kg__{name}" for name in ("get_node", "get_schema", "neighbors", "search")]),
    ],
)
def test_javascript_in_codex_has_the_tools_of_its_policy_and_no_other_way_out(
    policy: str, tools: list[str], played: Callable[..., str]
) -> None:
    seen = played("codex", policy, "exec", {"input": JAVASCRIPT})
    told = json.loads(seen[seen.index("{") :])
    assert (told["found"], told["modules"]) == ([], [])
    assert [name for name in told["tools"] if name in tools] == tools
    assert not [name for name in told["tools"] if name.startswith(("exec", "write", "apply")) and name not in tools]


def test_to_commands_of_codex_the_graph_is_read_only_and_scratch_is_their_own(played: Callable[..., str]) -> None:
    command = "echo x > /graph/x; echo y > /scratch/y && cat /scratch/y; echo z > /etc/z; ls -A / /home /root /run"
    seen = played("codex", "full_dkgi", "bash", {"command": command})
    assert "\ny\n" in f"\n{seen}"
    assert seen.count("Read-only file system") + seen.count("Permission denied") >= 2


@pytest.mark.parametrize(
    ("harness", "inner"),
    [("native", "killed-marker"), ("pi", "killed-marker"), ("pi", "cli.js"), ("codex", "/opt/codex/bin")],
)
def test_an_attempt_whose_jail_is_killed_from_outside_is_void_and_the_next_one_answers(
    harness: str, inner: str, films: Films, tmp_path: Path
) -> None:
    slow = {"calls": [{"name": "bash", "arguments": {"command": "exec -a killed-marker sleep 300"}}]}
    (tmp_path / "replies.json").write_text(json.dumps({"*": [[slow, {"text": ANSWER}], [{"text": ANSWER}]]}))
    options = [f"harness={harness}", "model=scripted", f"model.replies={tmp_path / 'replies.json'}"]
    skip_where_missing(options)

    def kill() -> None:
        deadline = time.monotonic() + 30
        while not marked("killed-marker\x00300") and time.monotonic() < deadline:
            time.sleep(0.02)
        kill_jail_of(inner)

    with films_cell(options, films, tmp_path / "runs") as cell:
        thread = Thread(target=kill)
        thread.start()
        told = cell.ask(QUESTION)
        thread.join()
    assert told is not None
    assert (told.result.stops, told.result.node_ids) == (("sandbox_error", "answered"), (3,))
    errors = [attempt.end.error for attempt in cell.run.cell.attempts(1, 0) if attempt.end]
    assert "killed from outside" in errors[0]
    assert marked("killed-marker") == []


def test_nothing_is_left_of_an_attempt(films: Films, tmp_path: Path) -> None:
    replies = {"*": [[{"calls": [{"name": "bash", "arguments": {"command": "sleep 300 & echo x > /scratch/x"}}]}]]}
    (tmp_path / "replies.json").write_text(json.dumps(replies))
    for harness in ("pi", "codex"):
        options = [f"harness={harness}", "model=scripted", f"model.replies={tmp_path / 'replies.json'}"]
        skip_where_missing(options)
        with films_cell(options, films, tmp_path / harness) as cell:
            before = running(), sorted((films.cache / "w").rglob("*"))
            cell.ask(QUESTION, attempts=1)
            deadline = time.monotonic() + 5
            while running() - before[0] and time.monotonic() < deadline:
                time.sleep(0.05)
            assert (running(), sorted((films.cache / "w").rglob("*"))) == before
        assert list((films.cache / "w").iterdir()) == []


def running() -> set[psutil.Process]:
    return set(psutil.Process().children(recursive=True))
