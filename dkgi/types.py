"""The types that cross module borders, and the contracts between them.

>>> Usage(input_fresh=90, cache_read=10, output=5) + Usage(output=1)
Usage(input_fresh=90, cache_read=10, cache_write=0, output=6, reasoning=0, requests=0, complete=True)

Frozen dataclasses and protocols only; the standard library is all they import. The file is long, since these
types refer to each other and are read together.
Not covered: configuration (config.py), which validates the ones marked "from YAML".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Protocol, runtime_checkable

Stop = Literal[
    "answered",
    "bad_answer",
    "time_limit",
    "turn_limit",
    "budget",
    "model_error",
    "refused",
    "sandbox_error",
    "crashed",
]
"""Why an attempt ended. `answered` is the only one with a valid answer."""

Outcome = Literal["scored", "failed_agent", "failed_infra", "pending"]
"""What became of a query: an answer, a failure of the agent, a failure around it, or not decided yet."""


class SetupError(Exception):
    """Something the user can fix. The message is one line that names the key or path and the way out."""


class AnswerError(Exception):
    """The final message is not the JSON object that was asked for."""


class SandboxError(Exception):
    """A jail could not be started, or its self-check failed: the attempt is void, and not by the agent's doing."""


class SafetyStop(Exception):
    """Labels or a key were seen where they must not be: the whole run stops."""


class RunStop(Exception):
    """The run cannot go on, whatever the query (a provider's quota is used up); the message is one line. Exit code 3."""


class ModelError(Exception):
    """A model gave no reply. `usage` is what it cost all the same; `kind` is a class of exchange.py's table."""

    def __init__(self, message: str, *, kind: str, usage: "Usage | None" = None, retryable: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.usage = usage or Usage()
        self.retryable = retryable


# ------------------------------------------------------------------- tokens and money


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of one or more requests in disjoint buckets; `reasoning` is the part of `output` that was thought.

    `complete` is False where a provider or a killed process left a request without figures.
    """

    input_fresh: int = 0
    cache_read: int = 0
    cache_write: int = 0
    output: int = 0
    reasoning: int = 0
    requests: int = 0
    complete: bool = True

    @property
    def input_tokens(self) -> int:
        """All input, cached or not, as the paper counts it."""
        return self.input_fresh + self.cache_read + self.cache_write

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            self.input_fresh + other.input_fresh,
            self.cache_read + other.cache_read,
            self.cache_write + other.cache_write,
            self.output + other.output,
            self.reasoning + other.reasoning,
            self.requests + other.requests,
            self.complete and other.complete,
        )


@dataclass(frozen=True, slots=True)
class Prices:
    """US dollars per million tokens (from YAML)."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    input: float
    cached_input: float
    cache_write: float
    output: float


class Hold(Protocol):
    """Money set aside for one request that is under way."""

    @property
    def bound(self) -> Usage:
        """The most that the request can use: what is held, and what it counts as where no figures come back."""

    def settle(self, usage: Usage | None) -> Usage:
        """Give the rest back and return what is counted: `usage`, or with None the bound with `complete=False`.

        Called once, on every way out.
        """


class Account(Protocol):
    """The money of one query. Thread-safe."""

    def hold(self, bound: Usage, *, deadline: float) -> Hold:
        """Set aside the price of `bound`; wait while only the open holds of other requests stand in the way.

        Raises ModelError: `budget` where a cap does not have it, `timeout` where `deadline` passes in waiting.
        """


@dataclass(frozen=True, slots=True)
class Place:
    """Where a model's requests belong: one attempt (counted from 1) at a query.

    deadline  a `time.monotonic()` instant by which every request has ended
    folder    the query's folder in the store, which exists
    account   pays for what is sent
    """

    query: int
    repeat: int
    attempt: int
    deadline: float
    folder: Path
    account: Account


# ------------------------------------------------------------------- the conversation


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool as the model sees it; `parameters` is a JSON schema."""

    name: str
    description: str
    parameters: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A request of the model to run a tool. `arguments` is the raw JSON text, which may be malformed."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class UserText:
    text: str


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer of a model. `native` is the provider's own item, sent back unchanged."""

    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    usage: Usage = field(default_factory=Usage)
    reasoning_summary: str = ""
    stop: Literal["end", "length", "refused"] = "end"
    native: Any = None


@dataclass(frozen=True, slots=True)
class ToolResult:
    call_id: str
    name: str
    text: str
    is_error: bool = False


Item = UserText | Reply | ToolResult


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """What a tool gave back; its failures, bad arguments included, are text with `is_error`."""

    text: str
    is_error: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One item of a trajectory, in the form in which the paper's records are published.

    `time` (Unix seconds) and `usage` (on the first step of a model's reply) are ours.
    """

    type: Literal["user", "reasoning_summary", "assistant", "tool_call", "tool_result"]
    text: str
    name: str | None = None
    call_id: str | None = None
    is_error: bool | None = None
    time: float = 0.0
    usage: Usage | None = None


# ------------------------------------------------------------------- a query and its surroundings


@dataclass(frozen=True, slots=True)
class Query:
    """A question without its answer. `number` is opaque: it says nothing about the gold."""

    number: int
    text: str
    split: str
    in_test_subset: bool


@dataclass(frozen=True, slots=True)
class ToolPolicy:
    """What the agent may touch (from YAML): data that code reads, never a name that code compares.

    graph       the graph's files are in the agent's corpus directory; else one README is
    edges       the edge files and what schema.json says of relations are among them
    tools_line  DATA_FORMAT.txt keeps its line on which programs suit
    tools       names of the tools offered to the model, in this order
    section     file in prompts/ with the prompt's tool section
    expected    tokens a query, for the price line of a dry run (input, cached input, output)
    programs    the programs that can be started, nothing else can; None: whatever the host's /usr has
    python_starts  how often Python can be started beside a closed set of programs; None where all programs can
    client      names of the graph tools that programs in the jail can call, through the client module
    max_turns   replies an attempt, where the policy allows fewer than the limits do
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    name: str
    graph: bool
    edges: bool
    tools_line: bool
    tools: tuple[str, ...]
    section: str
    expected: tuple[int, int, int]
    programs: tuple[str, ...] | None = None
    python_starts: int | None = None
    client: tuple[str, ...] = ()
    max_turns: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of one query (from YAML).

    `wall_s` seconds an attempt, `max_turns` replies an attempt (None: no bound), `attempts` a query,
    `backoff_s` seconds before the second attempt, doubled before each further one. `usd_query` and `usd_run` are dollars
    that a query and all of its cell may cost, `usd_grid` and `tokens_grid` dollars and tokens of all cells of a grid
    (None: no bound). They say how far to go and are no part of a cell; a run of one cell alone has no grid.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    wall_s: float
    max_turns: int | None
    attempts: int
    backoff_s: float
    usd_query: float | None = None
    usd_run: float | None = None
    usd_grid: float | None = None
    tokens_grid: int | None = None


@dataclass(frozen=True, slots=True)
class Workspace:
    """Host folders of one attempt, under neutral names. `graph_dir` is shared and read-only, the rest is the attempt's own.

    The fields `..._at` say where the agent finds them. `client`: files for calls of the graph tools from programs, by
    name; none where programs have no such calls.
    """

    graph_dir: Path
    scratch_dir: Path
    tmp_dir: Path
    outputs_dir: Path
    graph_at: str = "/graph"
    scratch_at: str = "/scratch"
    outputs_at: str = "/scratch/full_outputs"
    client: tuple[tuple[Path, str], ...] = ()

    def bare(self) -> "Workspace":
        """The same for an agent without a jail."""
        return replace(
            self, graph_at=str(self.graph_dir), scratch_at=str(self.scratch_dir), outputs_at=str(self.outputs_dir)
        )


@dataclass(frozen=True, slots=True)
class Box:
    """What one jailed command may see and use; paths on the left are host paths, on the right jail paths.

    `env` holds the whole environment, `proc` says whether there is a /proc, with the jail's own processes. `wall_s` seconds, `memory_mb` MiB summed over the process tree,
    `output_mb` MiB of stdout and stderr together, `cpu_s` CPU seconds of the tree, `scratch_mb` MiB and `scratch_files`
    files in all that can be written; past a limit the whole tree is killed.
    """

    read_only: tuple[tuple[Path, str], ...]
    writable: tuple[tuple[Path, str], ...]
    cwd: str
    wall_s: float
    memory_mb: int
    output_mb: int
    cpu_s: float = math.inf
    scratch_mb: float = math.inf
    scratch_files: float = math.inf
    env: tuple[tuple[str, str], ...] = ()
    proc: bool = True


@dataclass(frozen=True, slots=True)
class CliBox:
    """What an agent's long-lived program sees and may use. Plain data, so that it can be asked for over a socket.

    read_only   host path, jail path
    home        jail path of a folder of its own, which it may write; `files` are texts that it finds there, by name
    empty       jail path of an empty folder, where one is wanted
    folders     whether the attempt's scratch and tmp are there, writable; without them /tmp is a small one in memory
    cwd, env    as Box
    wall_s      seconds until all of it is killed
    memory_mb   MiB of all its processes together
    scratch_mb  MiB on disk in all folders that it may write; None: no bound
    nested      it can make namespaces of its own, for a sandbox inside, and has a /proc
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    read_only: tuple[tuple[Path, str], ...]
    home: str
    cwd: str
    env: tuple[tuple[str, str], ...]
    wall_s: float
    memory_mb: int
    files: tuple[tuple[str, str], ...] = ()
    empty: str | None = None
    folders: bool = False
    scratch_mb: float | None = None
    nested: bool = False


ProgramKilledBy = Literal["time", "memory", "scratch", "sandbox"]


class Program(Protocol):
    """An agent's long-lived program while it runs."""

    @property
    def stdin(self) -> IO[bytes]: ...

    @property
    def stdout(self) -> IO[bytes]: ...

    @property
    def killed_by(self) -> ProgramKilledBy | None:
        """The limit of its box that ended it, "sandbox" where its jail was killed from outside; known once it has ended."""

    def wait(self, timeout: float) -> int:
        """The exit code, 128 + N after signal N. Raises TimeoutError where it still runs after `timeout` seconds."""

    def kill(self) -> None:
        """End all of its processes."""

    def told(self) -> str:
        """The end of what it has said on standard error so far."""


class ProgramStarter(Protocol):
    """Starts the external program of one attempt; the only way from a harness to a process of its own."""

    def start(self, box: CliBox, argv: Sequence[str]) -> AbstractContextManager[Program]:
        """Run `argv` in its jail. Leaving kills all of it, and what it kept in its home is gone.

        Raises SandboxError where the jail does not start, or another program of the attempt runs; SetupError where a
        mount would show labels or results, or the disk is full.
        """


@dataclass(frozen=True, slots=True)
class PythonStart:
    """One start of Python where starts are counted.

    argv      its arguments, without the name
    program   the text that it ran, up to 256 KiB; None where it could not be had (a module, a stream that is not there yet)
    error     what kept it from starting; the start is used up all the same
    """

    argv: tuple[str, ...]
    program: str | None
    exit_code: int
    wall_s: float
    cpu_s: float
    error: str = ""


@dataclass(frozen=True, slots=True)
class CommandResult:
    """How one jailed command ended.

    exit_code    the command's own (128 + N after signal N), 137 when it was killed; 255 when the jail did not start
    killed_by    time, cpu, memory, output, scratch (too much written), cancelled (attempt over), sandbox (not started or killed
                 from outside, see `error`), or None
    output       host file with all that was printed, stdout and stderr in the order written
    peak_rss_mb  the most memory seen that the kernel cannot drop (a mapped graph is not counted), MiB; 0 for a
                 command that ended before the first look, after a tenth of a second
    shown_at        folder in which the agent finds `output`
    python          starts of Python, where they are counted; `python_refused` further ones were refused
    """

    exit_code: int
    killed_by: Literal["time", "cpu", "memory", "output", "scratch", "cancelled", "sandbox"] | None
    output: Path
    output_bytes: int
    wall_s: float
    cpu_s: float
    peak_rss_mb: float
    error: str = ""
    shown_at: str = "/scratch/full_outputs"
    python: tuple[PythonStart, ...] = ()
    python_refused: int = 0

    @property
    def signal(self) -> int | None:
        """The signal that ended the command, as a shell tells it; a command may exit with such a code by itself."""
        return self.exit_code - 128 if 128 < self.exit_code <= 128 + 64 else None


class CommandRunner(Protocol):
    """Runs the commands of one attempt in its jail; the only way from a tool to a process."""

    def run(self, argv: Sequence[str], *, timeout_s: float) -> CommandResult:
        """Run `argv` in a fresh jail of this attempt. Never raises for what the command does; thread-safe."""


class Model(Protocol):
    def reply(self, history: Sequence[Item], tools: Sequence[ToolSpec]) -> Reply:
        """The next reply to `history`. Keeps no state between calls.

        Raises ModelError; RunStop and SetupError (a wrong key, say) where no query can be answered.
        """


class ModelSource(Protocol):
    def model(self, place: Place) -> Model:
        """The model for one attempt at a query."""


WireName = Literal["openai_responses", "openai_chat", "anthropic_messages"]


@dataclass(frozen=True, slots=True)
class Face:
    """A model as an external program is to see it: what speaks `wire`, under the id `model`.

    `effort` is how much it reasons, in the provider's words, and None where it is not asked to. `context_window` and
    `max_output_tokens` are tokens. `lite`: the address is OpenAI's own, which takes the short form of Codex's requests.
    """

    wire: WireName
    model: str
    effort: str | None
    context_window: int
    max_output_tokens: int
    lite: bool = False


class Session(Protocol):
    """The door of one attempt's external program to its model."""

    @property
    def face(self) -> Face: ...

    @property
    def socket(self) -> Path:
        """Host path of the Unix socket that speaks HTTP; an address's host name does not matter, its path does."""

    @property
    def token(self) -> str:
        """What the program sends as its API key. It opens this session alone, and nothing elsewhere."""

    @property
    def turns(self) -> int:
        """Requests answered so far."""

    @property
    def usage(self) -> Usage:
        """What all requests have used so far, failed ones too. This is what is counted, whatever the program says."""

    @property
    def last(self) -> Reply | None:
        """The newest reply."""

    @property
    def fault(self) -> Exception | None:
        """What a request ended in: ModelError, RunStop or SetupError; any other is an error of ours. All further
        requests are refused."""

    @property
    def over_turns(self) -> bool:
        """A request past the most turns was refused."""


class Gateway(Protocol):
    def session(
        self, model: Model, on_step: Callable[[Step], None], *, max_turns: int | None, merge: bool
    ) -> AbstractContextManager[Session]:
        """A door to `model` until it is left. Each step is told before the next request is sent.

        With `merge`, neighbouring pieces of a streamed text come as one.
        """


class Tool(Protocol):
    @property
    def spec(self) -> ToolSpec: ...

    def call(self, args: Mapping[str, Any], *, timeout_s: float) -> ToolOutput:
        """Run once, for `timeout_s` seconds at most. Bad arguments are an error output that teaches the right call.

        Raises SandboxError where no jail could be started.
        """


@runtime_checkable
class TextTool(Protocol):
    """A tool that is given what the model wrote: whoever does its work checks the arguments, and counts wrong ones."""

    def call_text(self, arguments: str, *, timeout_s: float) -> ToolOutput: ...


@dataclass(frozen=True, slots=True)
class ToolSocket:
    """Where a program in a jail calls the tools of its attempt.

    `path` is the host path of a Unix socket that takes lines of JSON (toolserver.py), `token` what each of them says.
    """

    path: Path
    token: str


@dataclass(frozen=True, slots=True)
class Task:
    """All that a harness needs for one attempt. `on_step` is called with each step as it happens, before the next request.

    `graph_tools` are those that the policy offers to the model, by name; calls of them are counted and recorded.
    `gateway`, `calls`, where all tools of the policy answer, and `programs` are there for harnesses with an external
    program; they end it once the attempt is `cancelled`, which nobody waits for any more.
    """

    query: Query
    prompt: str
    policy: ToolPolicy
    limits: Limits
    workspace: Workspace
    model: Model
    commands: CommandRunner
    on_step: Callable[[Step], None]
    graph_tools: Mapping[str, Tool] = field(default_factory=dict)
    gateway: Gateway | None = None
    calls: ToolSocket | None = None
    cancelled: Callable[[], bool] = lambda: False
    programs: ProgramStarter | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a query. `final_answer` is the last message of the model, unparsed.

    `tool_calls` are the agent's own actions; `graph_calls` all calls of graph tools, those inside its programs included.
    `flags` are findings that leave the answer as it is: `usage_mismatch` where an external program counted otherwise.
    """

    stop: Stop
    final_answer: str
    usage: Usage
    wall_s: float
    turns: int
    tool_calls: int
    tool_errors: int
    error: str = ""
    graph_calls: int = 0
    flags: tuple[str, ...] = ()


class Harness(Protocol):
    def check(self, policy: ToolPolicy) -> None:
        """Raise SetupError where this policy cannot work here. Makes no model call."""

    def run(self, task: Task) -> Attempt:
        """Work on one query until an answer or a limit. Failures of model, agent and time are `Attempt.stop`.

        Thread-safe; keeps no state on self.
        """


# ------------------------------------------------------------------- results


@dataclass(frozen=True, slots=True)
class Answer:
    """The list that the agent returned; every entry keeps its place, also those that cannot be right."""

    entries: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """Metrics of one query, each in 0..1 (paper, section 6)."""

    hit_at_1: float
    hit_at_5: float
    recall_at_20: float
    mrr: float
    ndcg_at_20: float
    map_at_20: float


@dataclass(frozen=True, slots=True)
class QueryResult:
    """What one query came to, without gold and scores. Usage, cost and time are of all attempts together.

    `stops` has one entry an attempt; `interrupted` counts those that a dying process or a cap cut off, which have none.
    `sandboxed` is False where nothing kept the agent from the labels. `cost_usd` is None where the model has no price.
    `turns`, `tool_calls`, `tool_errors`, `graph_calls`, `flags` are of the last attempt. `engine` is what answered the searches of
    graph tools, with its parameters, as JSON.
    """

    cell: str
    number: int
    repeat: int
    dataset: str
    split: str
    in_test_subset: bool
    query: str
    outcome: Outcome
    stops: tuple[Stop, ...]
    interrupted: int
    final_answer: str
    node_ids: tuple[Any, ...]
    usage: Usage
    last_usage: Usage
    cost_usd: float | None
    wall_s: float
    turns: int
    tool_calls: int
    tool_errors: int
    started: float
    error: str = ""
    sandboxed: bool = True
    graph_calls: int = 0
    engine: str = ""
    flags: tuple[str, ...] = ()
