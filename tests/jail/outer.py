"""An outer jail, as one around a whole worker: our tests run in it, and jails of their own inside of it.

>>> run_inside(tmp_path, ["tests/jail/test_broker.py", "-k", "second"]).returncode
0

Not covered: a launcher that works so.
"""

import os
import subprocess
import sys
from pathlib import Path

from dkgi.jail.nsjail import Message, Word, arguments, bind, symlink, text, tmpfs, variable
from dkgi.jail.profile import find_host
from dkgi.jail.scratch import spare_id

ROOT = Path(__file__).parents[2]


def run_inside(folder: Path, tests: list[str]) -> subprocess.CompletedProcess[str]:
    """Run pytest on `tests` in an outer jail whose /tmp is `folder`; what it printed is in `stdout`."""
    root = os.geteuid() == 0
    uid = spare_id() if root else os.geteuid()
    folder.chmod(0o755)
    work = folder / "work"
    work.mkdir(mode=0o700)
    if root:
        os.chown(work, uid, uid)
    fields: Message = [
        ("mode", Word("ONCE")),
        ("cwd", str(ROOT)),
        ("time_limit", 900),
        ("log_level", Word("WARNING")),
        ("mount_proc", False),
        ("clone_newuser", not root),
        ("clone_newnet", False),
        ("nice_level", 0),
        variable("PATH", "/usr/bin:/bin"),
        variable("HOME", "/tmp"),
        variable("LC_ALL", "C.UTF-8"),
        variable("PYTHONPATH", ":".join(path for path in sys.path if path)),
    ]
    for kind, outside in (("uidmap", uid), ("gidmap", uid if root else os.getegid())):
        fields.append((kind, [("inside_id", str(uid)), ("outside_id", str(outside)), ("count", 1)]))
    for name in ("as", "cpu", "fsize", "nofile", "nproc", "stack"):
        fields.append((f"rlimit_{name}_type", Word("HARD")))
    fields += [("mount", mount) for mount in _mounts(work)]
    config = folder / "outer.cfg"
    config.write_text(text(fields) + "\n")
    with (folder / "outer.log").open("w+") as log:
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests]
        return subprocess.run(
            arguments(find_host().nsjail, config, log.fileno(), command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=900,
            pass_fds=(log.fileno(),),
            env={},
        )


def _mounts(work: Path) -> list[Message]:
    mounts = [bind(Path("/usr"), "/usr", executable=True), bind(Path("/etc"), "/etc")]
    for top in ("/bin", "/sbin", "/lib", "/lib64"):
        path = Path(top)
        if path.is_symlink():
            mounts.append(symlink(top, str(path.readlink())))
        elif path.is_dir():
            mounts.append(bind(path, top, executable=True))
    mounts += [bind(Path("/dev", name), f"/dev/{name}", writable=True, device=True) for name in _DEVICES]
    mounts += [tmpfs("/dev/shm", "64m", writable=True), bind(work, "/tmp", writable=True, executable=True)]
    # A jail can be made inside only where /proc is whole and may be written.
    mounts.append([("dst", "/proc"), ("fstype", "proc"), ("rw", True)])
    places = {
        ROOT,
        Path(sys.prefix),
        Path(sys.base_prefix),
        find_host().ripgrep.parent,
        *(Path(path) for path in sys.path if path),
    }
    for place in sorted(place for place in places if place.is_dir() and not place.is_relative_to("/usr")):
        if not any(place.is_relative_to(other) for other in places - {place}):
            mounts.append(bind(place, str(place), executable=True))
    return mounts


_DEVICES = ("null", "zero", "full", "random", "urandom", "tty")
