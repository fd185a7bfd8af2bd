"""From Hydra's combinations to a grid: what the launchers in launchers/ call.

>>> launch_workers(context, config, [["tools=full_dkgi"], ["tools=no_edges"]], {"n_jobs": 2, "jail": True, "timeout_s": None})

Each combination is composed here, once, and checked before the first one begins. Workers get what was composed, so that
files which change meanwhile change nothing.
Not covered: single cells (__main__.py).
"""

import resource
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, TypeVar

from omegaconf import DictConfig
from pydantic import AfterValidator, Field, TypeAdapter, ValidationError

from dkgi import console
from dkgi.files import as_setup_error, check_writable
from dkgi.grid.cells import Grid, freeze, grid_name, held_folder, make_grid
from dkgi.grid.cluster import Submitted, run_cluster
from dkgi.grid.parent import Workers, run_grid
from dkgi.grid.report import report_dry_run, say_plan
from dkgi.paths import runs_dir
from dkgi.types import SafetyStop, SetupError

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext

_Count = Annotated[int, Field(gt=0, strict=True)]


def launch_workers(
    context: "HydraContext", config: DictConfig, jobs: Sequence[Sequence[str]], options: Mapping[str, Any]
) -> "Sequence[JobReturn]":
    """Run a grid on this machine. Ends the process with its exit code where that is not 0."""
    workers = checked(Workers, options)
    return _launch(context, config, jobs, lambda grid: run_grid(grid, workers))


def launch_cluster(
    context: "HydraContext",
    config: DictConfig,
    jobs: Sequence[Sequence[str]],
    submit: Callable[[Sequence[Path]], Sequence[Submitted]],
    *,
    jail: bool,
) -> "Sequence[JobReturn]":
    """Run a grid on other machines, which `submit` gives the files of their jobs."""
    return _launch(context, config, jobs, lambda grid: run_cluster(grid, submit, jail=jail))


def _launch(
    context: "HydraContext", config: DictConfig, jobs: Sequence[Sequence[str]], run: Callable[[Grid], int]
) -> "Sequence[JobReturn]":
    # A tenth of a second each, and more where they are checked.
    console.stderr().print(f"checking {len(jobs):,} {'cell' if len(jobs) == 1 else 'cells'}", soft_wrap=True)
    composed = [(_task_overrides(job), context.config_loader.load_sweep_config(config, list(job))) for job in jobs]
    choices, given = config.hydra.runtime.choices, list(config.hydra.overrides.task)
    name = grid_name(choices.get("experiment"), given, [overrides for overrides, _ in composed])
    if all(cell.dry_run is True for _, cell in composed):
        report_dry_run(make_grid(name, composed))
        return _returns(composed)
    _open_files()
    try:
        code = _run(name, composed, run)
    except SafetyStop as error:
        console.stderr().print(f"dkgi: {error}", soft_wrap=True)
        code = 3
    except OSError as error:
        raise as_setup_error(error, runs_dir()) from error
    if code:
        sys.exit(code)
    return _returns(composed)


def _run(name: str, composed: Sequence[tuple[Sequence[str], DictConfig]], run: Callable[[Grid], int]) -> int:
    check_writable(runs_dir())
    with held_folder(name) as folder:
        freeze(folder)
        try:
            grid = make_grid(name, composed)
        except SetupError:
            # What was never begun leaves nothing behind.
            if not (folder / "manifest.json").exists():
                shutil.rmtree(folder)
            raise
        say_plan(grid)
        return run(grid)


def _open_files() -> None:
    """As many as may be: each place has sockets and pipes, and a grid may have hundreds of places."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))


def _texts(options: dict[str, Any]) -> dict[str, Any]:
    if wrong := [name for name, value in options.items() if not isinstance(value, str | int | float)]:
        raise ValueError(f"{wrong[0]} must be a text or a number")
    return options


@dataclass(frozen=True, slots=True)
class SlurmOptions:
    """From conf/hydra/launcher/slurm.yaml, which says what they are."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    cluster: Literal["slurm", "local"]
    array_parallelism: _Count
    jail: bool
    timeout_min: _Count
    cpus_per_task: _Count
    mem_gb: _Count
    partition: str | None
    additional: Annotated[dict[str, Any], AfterValidator(_texts)]

    def of_submitit(self) -> dict[str, Any]:
        """The same by submitit's names."""
        options = {name: getattr(self, name) for name in ("timeout_min", "cpus_per_task", "mem_gb")}
        options |= {"slurm_array_parallelism": self.array_parallelism, "slurm_additional_parameters": self.additional}
        return options | ({"slurm_partition": self.partition} if self.partition else {})


@dataclass(frozen=True, slots=True)
class RayOptions:
    """From conf/hydra/launcher/ray.yaml, which says what they are."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    address: str
    cpus_per_task: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    jail: bool


_Options = TypeVar("_Options", Workers, SlurmOptions, RayOptions)


def checked(kind: type[_Options], options: Mapping[str, Any]) -> _Options:
    """A launcher's options. Raises SetupError with a line for each that is none."""
    try:
        return TypeAdapter(kind).validate_python(dict(options))
    except ValidationError as error:
        raise SetupError(
            "\n".join(f"hydra.launcher.{'.'.join(map(str, fault['loc']))}: {fault['msg']}" for fault in error.errors())
        ) from None


def _task_overrides(job: Sequence[str]) -> list[str]:
    """What a combination sets of the experiment; the rest is Hydra's own."""
    return [override for override in job if not override.lstrip("+~").startswith(("hydra.", "hydra/"))]


def _returns(composed: Sequence[tuple[Sequence[str], DictConfig]]) -> "Sequence[JobReturn]":
    """What Hydra's sweeper wants to hear of each combination."""
    from hydra.core.utils import JobReturn, JobStatus

    returns = [JobReturn(overrides=list(overrides), cfg=config, task_name="dkgi") for overrides, config in composed]
    for each in returns:
        each.status = JobStatus.COMPLETED
        each.return_value = 0
    return returns
