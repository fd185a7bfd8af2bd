"""A composed Hydra config, turned into one frozen, checked `Experiment`.

>>> load(["limit=5", "limits.wall_s=600"]).limits.wall_s
600.0

No DictConfig travels past this module. There is no field for a key in any group, and values that look like one are
refused without being shown.
Not covered: whether a sandbox, a data set or a harness works here; they check that themselves.
"""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import orjson
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf, read_write
from omegaconf.errors import OmegaConfBaseException
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from dkgi.console import fail
from dkgi.dataset import DatasetSpec
from dkgi.files import check_writable
from dkgi.harness.bm25 import Bm25Spec
from dkgi.harness.cannot import faults
from dkgi.harness.codex import CodexSpec
from dkgi.harness.dense import DenseSpec
from dkgi.harness.hybrid import HybridSpec
from dkgi.harness.native import NativeSpec
from dkgi.harness.pi import PiSpec
from dkgi.jail.bare import BareSpec
from dkgi.jail.profile import SandboxSpec
from dkgi.keys import ADDRESS_RULE, is_address, looks_like_key
from dkgi.models import open_models
from dkgi.models.heuristic import HeuristicSpec
from dkgi.models.none import NoModelSpec
from dkgi.models.provider import ProviderSpec
from dkgi.models.replay import ReplaySpec
from dkgi.models.scripted import ScriptedSpec
from dkgi.paths import data_dir, runs_dir
from dkgi.prompt import PromptSpec, render_prompt
from dkgi.shards import Shard
from dkgi.types import Limits, Query, SetupError, ToolPolicy, Workspace

RUN_KEYS = {"limit", "shard", "threads", "repeats", "retry", "dry_run", "keep_scratch", "tracking"}
"""Keys that say how much to run and what to keep; they are no part of what a cell is."""

USD_CAPS = {"usd_query", "usd_run", "usd_grid", "tokens_grid"}
"""Keys of `limits` that say how much to spend; no part of a cell either."""

LEAST = {
    "limits.wall_s": 0.1,
    "limits.max_turns": 1,
    "tools.max_turns": 1,
    "limits.attempts": 1,
    "model.context_window": 1,
    "model.max_output_tokens": 1,
    "harness.context.max_chars": 1,
    "harness.context.keep_turns": 1,
    "harness.depth": 1,
    "harness.memory_mb": 256,
    "harness.scratch_mb": 16,
    "sandbox.wall_s": 1,
    "sandbox.memory_mb": 16,
    "sandbox.output_mb": 1,
    "sandbox.file_mb": 1,
    "sandbox.processes": 16,
    "sandbox.commands_at_once": 1,
    "sandbox.cpu_s": 1,
    "sandbox.scratch_mb": 1,
    "sandbox.scratch_files": 16,
}
"""The least value of a number; 0 where none is stated."""
MOST = 1_000_000_000
MOST_OF = {"limits.tokens_grid": 1_000_000_000_000}
"""The greatest value of a number; `MOST` where none is stated."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")

Positive = Annotated[int, Field(gt=0, le=MOST, strict=True)]


@dataclass(frozen=True, slots=True)
class MlflowSpec:
    """From conf/tracking/mlflow.yaml. `traces`: also log a trace a query; `uri`: a server in place of our own database."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["mlflow"]
    traces: bool
    uri: str | None


@dataclass(frozen=True, slots=True)
class NoTrackingSpec:
    """From conf/tracking/none.yaml."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    kind: Literal["none"]


class Experiment(BaseModel):
    """One cell and how to run it: the composed configuration, checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    dataset: DatasetSpec
    harness: Annotated[NativeSpec | PiSpec | CodexSpec | Bm25Spec | DenseSpec | HybridSpec, Field(discriminator="kind")]
    model: Annotated[
        HeuristicSpec | NoModelSpec | ScriptedSpec | ReplaySpec | ProviderSpec, Field(discriminator="kind")
    ]
    tools: ToolPolicy
    sandbox: Annotated[SandboxSpec | BareSpec, Field(discriminator="kind")]
    prompt: PromptSpec
    limits: Limits
    tracking: Annotated[MlflowSpec | NoTrackingSpec, Field(discriminator="kind")]
    limit: Positive | None
    shard: Shard
    threads: Positive
    repeats: Positive
    retry: Literal["none", "infra", "failed"]
    dry_run: bool
    keep_scratch: bool

    @model_validator(mode="after")
    def _usable_values(self) -> "Experiment":
        for key, value in _leaves(self.model_dump()):
            least, most = LEAST.get(key, 0), MOST_OF.get(key, MOST)
            # Written so that a number which is none at all (nan) fails as well.
            if isinstance(value, int | float) and not least <= value <= most:
                raise ValueError(f"{key}: must be between {least} and {most:,}, not {value}")
            if key.endswith((".name", ".version", ".answer_key")) and not _NAME.fullmatch(value):
                raise ValueError(f"{key}: use letters, digits, _, . and - alone, not {value!r}")
            if key.endswith((".base_url", "tracking.uri")) and value is not None and not is_address(value):
                raise ValueError(f"{key}: {ADDRESS_RULE}")
        if isinstance(self.model, ReplaySpec):
            self.model.check(self.axes)
        return self

    @model_validator(mode="after")
    def _enforceable_policy(self) -> "Experiment":
        """What a policy holds back needs a jail; and starts of Python are counted only beside a closed set of programs."""
        policy = self.tools
        if isinstance(self.sandbox, BareSpec) and (fault := self.sandbox.fault(policy)):
            raise ValueError(fault)
        if fault := self.prompt.fault(policy):
            raise ValueError(fault)
        if (policy.programs is None) != (policy.python_starts is None):
            raise ValueError(
                "tools.python_starts: must be null with tools.programs=null, and a number with a list of programs"
            )
        if any(re.match("python|pypy", name) for name in policy.programs or ()):
            raise ValueError(
                "tools.programs: Python is not given here; say with tools.python_starts how often it starts"
            )
        return self

    @model_validator(mode="after")
    def _what_the_harness_holds(self) -> "Experiment":
        if broken := faults(self.harness.name, getattr(self.harness, "cannot", ()), self.model_dump()):
            raise ValueError("; ".join(broken))
        return self

    @model_validator(mode="after")
    def _model_for_the_harness(self) -> "Experiment":
        if self.harness.asks_model and isinstance(self.model, NoModelSpec):
            raise ValueError(f"model={self.model.name}: harness={self.harness.name} asks a model; name one")
        if not self.harness.asks_model and not isinstance(self.model, NoModelSpec):
            raise ValueError(f"model={self.model.name}: harness={self.harness.name} asks no model; leave it out")
        return self

    @property
    def told(self) -> ToolPolicy:
        """The tool policy as prompts tell it: a harness that has other tools for it has another section."""
        sections: Mapping[str, str] = getattr(self.harness, "sections", {})
        return replace(self.tools, section=sections.get(self.tools.section, self.tools.section))

    @property
    def axes(self) -> dict[str, str]:
        """The names by which people compare cells."""
        return {
            "dataset": self.dataset.name,
            "split": self.dataset.base_split,
            "harness": self.harness.name,
            "tools": self.tools.name,
            "model": self.model.name,
            "prompt": self.prompt.name,
            "sandbox": self.sandbox.kind,
        }

    def prompt_for(self, query: Query, workspace: Workspace) -> str:
        """The message for one query at one place."""
        return render_prompt(
            self.prompt,
            self.told,
            query=query.text,
            corpus=workspace.graph_at,
            scratch=workspace.scratch_at,
            knowledge_base=self.dataset.knowledge_base,
            answer_kinds=self.dataset.answer_kinds,
        )

    def identity(self) -> dict[str, Any]:
        """The part of the configuration that can change an answer; two runs that agree in it are one cell."""
        whole = self.model_dump(
            include={"harness", "model", "tools", "prompt", "limits"},
            exclude={
                "limits": USD_CAPS,
                "model": {"key_variable", "stream", "source"},
                "harness": {"memory_mb", "scratch_mb", "cannot"},
            },
        )
        sandbox = {"kind": self.sandbox.kind}
        dataset = self.model_dump(exclude={"dataset": {"index"}})["dataset"] | {"split": self.dataset.base_split}
        return whole | {"dataset": dataset, "sandbox": sandbox}


def cell_id(experiment: Experiment, digests: Mapping[str, str]) -> str:
    """First 12 hex digits of the sha256 over what can change an answer: configuration, prompts, export, labels, prices.

    A file that the configuration names counts by its content.
    """
    identity = {"config": experiment.identity(), "digests": dict(digests)}
    whole = orjson.dumps(identity, default=_content_digest, option=orjson.OPT_SORT_KEYS)
    return hashlib.sha256(whole).hexdigest()[:12]


def _content_digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}; name a file that can be read") from None


def build(config: DictConfig) -> Experiment:
    """Check a composed configuration. Raises SetupError with one line a fault, each naming its key."""
    for override in OmegaConf.select(config, "hydra.overrides.task") or ():
        group, _, options = override.partition("=")
        # Hydra takes a list of options for their union, in which the last one wins.
        if options.startswith("[") and (data_dir("conf") / group).is_dir():
            each = options.strip("[]")
            raise SetupError(f"{override}: a cell has one option of {group}; for a cell of each, -m {group}={each}")
    task = OmegaConf.masked_copy(config, [str(key) for key in config if key not in ("hydra", "experiment")])
    try:
        missing = sorted(OmegaConf.missing_keys(task))
        values = OmegaConf.to_container(task, resolve=True)
    except OmegaConfBaseException as error:
        raise SetupError(f"{error.full_key or 'config'}: {str(error).splitlines()[0]}") from None
    if missing:
        raise SetupError("\n".join(f"{key}: a value is needed; set {key}=... on the command line" for key in missing))
    for key, value in _leaves(values):
        if looks_like_key(value):
            raise SetupError(f"{key}: this looks like an API key; keep keys in environment variables")
    try:
        return Experiment.model_validate(values)
    except ValidationError as error:
        raise SetupError(
            "\n".join(_fault(fault) for fault in error.errors(include_input=False, include_url=False))
        ) from None


def load(overrides: Sequence[str] = ()) -> Experiment:
    """Compose and check the shipped configuration, as the command line does. For other programs and for tests."""
    from hydra import compose, initialize_config_dir

    register_resolvers()
    with initialize_config_dir(str(data_dir("conf")), version_base="1.3"):
        return build(compose("config", overrides=list(overrides)))


def register_resolvers() -> None:
    """`${dkgi.runs:}` in YAML: the folder that runs write to."""
    OmegaConf.register_new_resolver("dkgi.runs", lambda: str(runs_dir()), replace=True)


class ValidateCallback(Callback):
    """Checks the configuration before Hydra makes a folder. Hydra turns exceptions of callbacks into warnings, not exits."""

    def on_multirun_start(self, config: DictConfig, **_: Any) -> None:
        """Before Hydra writes there."""
        try:
            check_writable(runs_dir())
        except SetupError as error:
            fail(error)

    def on_run_start(self, config: DictConfig, **_: Any) -> None:
        try:
            experiment = build(config)
            # What a run would cost can be asked without a key.
            if not experiment.dry_run:
                open_models(experiment.model)
            check_writable(runs_dir())
        except SetupError as error:
            fail(error)
        if experiment.dry_run:
            # Hydra keeps what a run was started with; here nothing is run.
            with read_write(config.hydra):
                config.hydra.run.dir, config.hydra.output_subdir = ".", None


def _fault(fault: Any) -> str:
    """One line for one of pydantic's errors; the value is left out, it could be a secret."""
    message = fault["msg"].removeprefix("Value error, ")
    # The tag of a union is a place in pydantic's path, but not in the user's YAML.
    keys = [str(part) for place, part in enumerate(fault["loc"]) if not (place == 1 and fault["loc"][0] in _UNIONS)]
    if fault["type"] == "union_tag_invalid":
        keys.append("kind")
        message = f"must be one of {fault['ctx']['expected_tags']}"
    return f"{'.'.join(keys)}: {message}" if keys else message


_UNIONS = {name for name, field in Experiment.model_fields.items() if field.discriminator}


def _leaves(value: Any, key: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for name, inner in value.items():
            yield from _leaves(inner, f"{key}.{name}" if key else str(name))
    else:
        yield key, value
