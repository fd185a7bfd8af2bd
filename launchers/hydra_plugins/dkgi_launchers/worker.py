"""Many cells on one machine: `python -m dkgi -m tools=full_dkgi,no_edges`, or an experiment that names a grid.

    hydra/launcher=worker hydra.launcher.n_jobs=4

Hydra makes the combinations; all else is the grid's (dkgi/grid/cells.py, dkgi/grid/parent.py).
Not covered: other machines.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


class WorkerLauncher(Launcher):
    """Takes what is in conf/hydra/launcher/worker.yaml."""

    def __init__(self, n_jobs: int, jail: bool, timeout_s: float | None) -> None:
        self._options = {"n_jobs": n_jobs, "jail": jail, "timeout_s": timeout_s}

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        self._context, self._config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> "Sequence[JobReturn]":
        # Here, since Hydra imports every launcher at each start.
        from dkgi.grid.launch import launch_workers

        return launch_workers(self._context, self._config, job_overrides, self._options)
