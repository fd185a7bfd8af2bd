"""A cell a task on a Ray cluster that exists: `hydra/launcher=ray`. Needs the extra dkgi[ray].

    RAY_AUTH_MODE=token RAY_AUTH_TOKEN=... python -m dkgi experiment=quickstart_ablation hydra/launcher=ray

Nothing is tried again by Ray, since it would be paid twice. What a job is, see dkgi/grid/cluster.py.
Not covered: starting a cluster.
"""

import os
import socket
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra.plugins.launcher import Launcher

if TYPE_CHECKING:
    from hydra.core.utils import JobReturn
    from hydra.types import HydraContext, TaskFunction
    from omegaconf import DictConfig


_CONNECT_S = 10.0


class RayLauncher(Launcher):
    """Takes what is in conf/hydra/launcher/ray.yaml."""

    def __init__(self, address: str, cpus_per_task: float, jail: bool) -> None:
        self._given = {"address": address, "cpus_per_task": cpus_per_task, "jail": jail}

    def setup(self, *, hydra_context: "HydraContext", task_function: "TaskFunction", config: "DictConfig") -> None:
        self._context, self._config = hydra_context, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> "Sequence[JobReturn]":
        # Here, since Hydra imports every launcher at each start.
        from dkgi.grid.launch import RayOptions, checked, launch_cluster

        options = self._options = checked(RayOptions, self._given)
        return launch_cluster(self._context, self._config, job_overrides, self._submit, jail=options.jail)

    def _submit(self, files: Sequence[Path]) -> "list[_Task]":
        from dkgi.types import SetupError

        try:
            import ray
        except ImportError:
            raise SetupError("hydra/launcher=ray: ray is not installed; run pip install 'dkgi[ray]'") from None
        from dkgi.grid.cluster import log_of, run_file

        _check_address(self._options.address)
        try:
            ray.init(address=self._options.address, log_to_driver=False, configure_logging=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise SetupError(
                f"hydra.launcher.address={self._options.address}: no Ray cluster answers there: {error}"
            ) from None
        task = ray.remote(run_file).options(max_retries=0, retry_exceptions=False, num_cpus=self._options.cpus_per_task)
        return [_Task(ray, task.remote(str(file)), log_of(file)) for file in files]


def _check_address(address: str) -> None:
    """Raises SetupError where nobody listens. Ray itself would try for many minutes."""
    from dkgi.types import SetupError

    named = os.environ.get("RAY_ADDRESS", "auto") if address == "auto" else address
    if named == "auto":
        return
    host, _, port = named.removeprefix("ray://").rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
    except (OSError, ValueError, OverflowError) as error:
        raise SetupError(f"hydra.launcher.address={named}: no Ray cluster answers there: {error}") from None


@dataclass(frozen=True, slots=True)
class _Task:
    """A dkgi.grid.cluster.Submitted."""

    ray: Any
    reference: Any
    log: Path

    def over(self) -> bool:
        done, _ = self.ray.wait([self.reference], timeout=0)
        return bool(done)

    def end(self) -> int | str:
        try:
            return int(self.ray.get(self.reference))
        except Exception as error:  # Ray's errors have no base but this one
            return f"its task ended before its end: {(str(error) or type(error).__name__).splitlines()[0]}"

    def cancel(self) -> None:
        self.ray.cancel(self.reference, force=True)
