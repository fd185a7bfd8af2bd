"""Limits that the kernel itself keeps, in a cgroup v2 folder that was delegated to us: `sandbox.cgroup=/sys/fs/cgroup/dkgi`.

>>> group = open_cgroup("/sys/fs/cgroup/dkgi")
>>> group.controllers
('memory', 'pids')

nsjail makes a folder there for each command and takes it away again. What the host samples ten times a second
(process.py) is then bounded in between, too.
Not covered: CPU, which stays the host's to count.
"""

from dataclasses import dataclass
from pathlib import Path

from dkgi.jail.nsjail import Field
from dkgi.types import SetupError

_CONTROLLERS = ("memory", "pids")


@dataclass(frozen=True, slots=True)
class Cgroup:
    """A delegated folder, and those controllers of it that bound commands."""

    path: Path
    controllers: tuple[str, ...]

    def fields(self, *, memory_mb: int, processes: int) -> list[Field]:
        """The part of nsjail's configuration that bounds one command: MiB, processes and threads."""
        limits: dict[str, Field] = {
            "memory": ("cgroup_mem_max", memory_mb * 2**20),
            "pids": ("cgroup_pids_max", processes),
        }
        where: list[Field] = [("use_cgroupv2", True), ("cgroupv2_mount", str(self.path))]
        return where + [limits[name] for name in self.controllers]

    def kills(self) -> int:
        """How many processes of commands the kernel has killed here for memory."""
        if "memory" not in self.controllers:
            return 0
        events = dict(line.split() for line in (self.path / "memory.events").read_text().splitlines())
        return int(events["oom_kill"])


def open_cgroup(path: str) -> Cgroup:
    """Raises SetupError where the folder is not there, has no controller of use, or has processes in it."""
    folder = Path(path)
    try:
        offered = (folder / "cgroup.controllers").read_text().split()
        occupied = bool((folder / "cgroup.procs").read_text())
    except OSError as error:
        raise SetupError(
            f"sandbox.cgroup={path}: {error.strerror}; name a folder of cgroup v2 that was delegated to you, or null"
        ) from None
    controllers = tuple(name for name in _CONTROLLERS if name in offered)
    if not controllers:
        raise SetupError(
            f"sandbox.cgroup={path}: it has no controller of memory or pids (it has: {' '.join(offered) or 'none'}); "
            "enable them in cgroup.subtree_control of the folder above, or use sandbox.cgroup=null"
        )
    if occupied:
        raise SetupError(f"sandbox.cgroup={path}: processes run in it; make an empty folder for commands")
    return Cgroup(folder, controllers)
