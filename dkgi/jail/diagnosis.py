"""Why a jail does not start on this machine, and what to change.

>>> cause("[E] ... Couldn't launch the child process", "", Surroundings(root=False, max_user_namespaces=0))
'user namespaces are switched off: run sudo sysctl user.max_user_namespaces=15000'

Not covered: a jail that starts and does not hold (preflight.py).
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path

_SYS_ADMIN = 1 << 21
_UNCONFINED = "--security-opt seccomp=unconfined --security-opt systempaths=unconfined"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the kernel and a container around us allow. Settings that this kernel does not have are None."""

    root: bool
    sys_admin: bool = True
    seccomp: bool = False
    max_user_namespaces: int | None = None
    unprivileged_userns_clone: int | None = None
    apparmor_restrict_unprivileged_userns: int | None = None

    @classmethod
    def read(cls) -> "Surroundings":
        status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines())
        return cls(
            root=os.geteuid() == 0,
            sys_admin=bool(int(status["CapEff"], 16) & _SYS_ADMIN),
            seccomp=status.get("Seccomp", "0") == "2",
            max_user_namespaces=_setting("user/max_user_namespaces"),
            unprivileged_userns_clone=_setting("kernel/unprivileged_userns_clone"),
            apparmor_restrict_unprivileged_userns=_setting("kernel/apparmor_restrict_unprivileged_userns"),
        )


def _setting(name: str) -> int | None:
    try:
        return int(Path("/proc/sys", name).read_text())
    except (OSError, ValueError):
        return None


def cause(log: str, output: str, around: Surroundings) -> str:
    """One line: the likely cause and its remedy. `log` is nsjail's, `output` what came out of the command's pipe."""
    if "GLIBC_" in output or "GLIBCXX_" in output:
        return (
            "the C library is too old for nsjail, which needs glibc 2.34: use Debian 12, Ubuntu 22.04, RHEL 9 or newer"
        )
    if missing := re.search(r"loading shared libraries: ([^:\s]+)", output):
        return f"nsjail needs {missing[1]}: install it (Debian, Ubuntu: apt-get install libstdc++6 zlib1g)"
    if not around.root:
        if around.max_user_namespaces == 0:
            return "user namespaces are switched off: run sudo sysctl user.max_user_namespaces=15000"
        if around.unprivileged_userns_clone == 0:
            return "user namespaces are for root only: run sudo sysctl kernel.unprivileged_userns_clone=1"
        if around.apparmor_restrict_unprivileged_userns == 1:
            return (
                "AppArmor takes the rights away from user namespaces (Ubuntu 24.04): "
                "run sudo sysctl kernel.apparmor_restrict_unprivileged_userns=0"
            )
    elif not around.sys_admin:
        return (
            "root without CAP_SYS_ADMIN cannot make a jail: run dkgi as an ordinary user, or start the container with "
            f"--cap-add SYS_ADMIN --security-opt apparmor=unconfined {_UNCONFINED}"
        )
    if "pidfd_getfd" in log:
        return (
            "the system forbids pidfd_getfd, by which starts of Python are counted: start the container with --cap-add "
            "SYS_PTRACE, or run sudo sysctl kernel.yama.ptrace_scope=1"
        )
    if "mandatory point: '/proc'" in log:
        return (
            "the container covers parts of /proc: start it with --security-opt systempaths=unconfined, "
            "or use sandbox=nsjail_no_proc"
        )
    if around.seccomp and "mandatory point" not in log:
        return f"a seccomp filter forbids new namespaces: start the container with {_UNCONFINED}"
    if failed := re.search(r"mount\('(.*?)' -> .*?\): (.*?)(?:;|$)", log):
        return f"{failed[1]} cannot be mounted: {failed[2]}"
    return (log or output).strip().splitlines()[-1] if (log or output).strip() else "nsjail printed nothing"
