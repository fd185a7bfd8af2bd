"""A cell a SLURM job: `hydra/launcher=slurm hydra.launcher.partition=cpu`. Needs the extra dkgi[slurm].

    hydra/launcher=slurm hydra.launcher.cluster=local      # the same with processes of this machine

What a job is, see dkgi/grid/cluster.py.
Not covered: SLURM's own options beyond those of the YAML; `additional` takes any.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class SlurmLauncher(Launcher):
    """Takes what is in conf/hydra/launcher/slurm.yaml."""

    def __init__(
        self,
        cluster: str,
        array_parallelism: int,
        jail: bool,
        timeout_min: int,
        cpus_per_task: int,
        mem_gb: int,
        partition: str | None,
        additional: Mapping[str, Any],
    ) -> None:
        self._given = {
            "cluster": cluster,
            "array_parallelism": array_parallelism,
            "jail": jail,
            "timeout_min": timeout_min,
            "cpus_per_task": cpus_per_task,
            "mem_gb": mem_gb,
            "partition": partition,
            "additional": {**additional},
        }

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        self._context, self._config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> "Sequence[JobReturn]":
        # Here, since Hydra imports every launcher at each start.
        from dkgi.grid.launch import SlurmOptions, checked, launch_cluster

        options = self._options = checked(SlurmOptions, self._given)
        return launch_cluster(self._context, self._config, job_overrides, self._submit, jail=options.jail)

    def _submit(self, files: Sequence[Path]) -> "list[_Job]":
        from dkgi.types import SetupError

        try:
            import submitit
        except ImportError:
            raise SetupError("hydra/launcher=slurm: submitit is not installed; run pip install 'dkgi[slurm]'") from None
        from dkgi.grid.cluster import log_of, run_file

        try:
            executor = submitit.AutoExecutor(folder=files[0].parent / "log", cluster=self._options.cluster)
            executor.update_parameters(**self._options.of_submitit())
            with _errors_in(files[0].parent / "submitit.log"):
                jobs = executor.map_array(run_file, list(map(str, files)))
        except (RuntimeError, ValueError, NameError, submitit.core.utils.FailedJobError) as error:
            raise SetupError(
                f"hydra/launcher=slurm: {error}; hydra.launcher.cluster=local runs the jobs on this machine"
            ) from None
        return [_Job(job, log_of(file)) for job, file in zip(jobs, files, strict=True)]


@contextmanager
def _errors_in(path: Path) -> Iterator[None]:
    """A file instead of standard error for what is started meanwhile: submitit's local processes, which Ctrl-C ends with
    a traceback.
    """
    own = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


@dataclass(frozen=True, slots=True)
class _Job:
    """A dkgi.grid.cluster.Submitted."""

    job: Any
    log: Path

    def over(self) -> bool:
        return bool(self.job.done())

    def end(self) -> int | str:
        if (failed := self.job.exception()) is not None:
            return f"its job ended before its end: {(str(failed) or type(failed).__name__).splitlines()[-1]}; {self.job.paths.stderr}"
        return int(self.job.result())

    def cancel(self) -> None:
        self.job.cancel()
