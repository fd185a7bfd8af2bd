"""Folders of running attempts: neutral, owned rightly, swept after a kill, removed whatever an agent left in them."""

import os
import pwd
import re
import signal
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dkgi.jail.scratch import RunFolder, remove_tree, spare_id
from dkgi.types import SetupError
from tests.jail.conftest import Shell


def test_names_tell_nothing(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "w") as folder:
        workspace = folder.new_attempt(tmp_path)
        relative = workspace.scratch_dir.relative_to(tmp_path).as_posix()
    assert re.fullmatch(r"w/[0-9a-f]{8}/[0-9a-f]{8}/scratch", relative)


def test_an_attempts_folders_belong_to_the_user_that_runs_in_the_jail(tmp_path: Path) -> None:
    with RunFolder(tmp_path / "w") as folder:
        workspaces = [folder.new_attempt(tmp_path) for _ in range(5)]
        owners = {workspace.scratch_dir.stat().st_uid for workspace in workspaces}
        for workspace in workspaces:
            assert workspace.scratch_dir.stat().st_uid == workspace.tmp_dir.stat().st_uid
            assert workspace.outputs_dir.stat().st_uid == os.geteuid()
            for closed in (workspace.scratch_dir.parent, workspace.scratch_dir, workspace.tmp_dir):
                assert closed.stat().st_mode & 0o777 == 0o700
    assert owners == {os.geteuid()} if os.geteuid() else len(owners) == 5 and 0 not in owners


def test_folders_can_be_read_whatever_the_umask(tmp_path: Path) -> None:
    old = os.umask(0o077)
    try:
        with RunFolder(tmp_path / "w") as folder:
            workspace = folder.new_attempt(tmp_path)
            assert workspace.outputs_dir.stat().st_mode & 0o777 == 0o755
            assert (workspace.scratch_dir / "full_outputs").stat().st_mode & 0o777 == 0o755
    finally:
        os.umask(old)


def test_closing_removes_everything(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "w")
    (folder.new_attempt(tmp_path).scratch_dir / "file").touch()
    folder.close()
    folder.close()
    assert list((tmp_path / "w").iterdir()) == []


_OWNER = "import sys, time; from pathlib import Path; from dkgi.jail.scratch import RunFolder\nf = RunFolder(Path(sys.argv[1])); f.new_attempt(Path('/')); print(f.path.name, flush=True); time.sleep(60)"


def owner(parent: Path) -> tuple[subprocess.Popen[str], str]:
    process = subprocess.Popen(
        [sys.executable, "-c", _OWNER, str(parent)], cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process.stdout as printed:
        return process, printed.readline().strip()


def test_a_killed_processs_folder_is_removed_and_a_living_ones_is_kept(tmp_path: Path) -> None:
    killed, dead = owner(tmp_path / "w")
    alive, living = owner(tmp_path / "w")
    try:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        with RunFolder(tmp_path / "w") as folder:
            names = {path.name for path in (tmp_path / "w").iterdir()}
            assert names == {f"{name}{suffix}" for name in (living, folder.path.name) for suffix in ("", ".lock")}
            assert dead not in names
    finally:
        alive.kill()
        alive.wait()


def test_many_runs_that_start_and_end_at_once_do_not_hurt_each_other(tmp_path: Path) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            for _ in range(60):
                with RunFolder(tmp_path / "w") as folder:
                    assert folder.path.with_suffix(".lock").exists()
                    (folder.path / "x").write_text("x")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert list((tmp_path / "w").iterdir()) == []


def test_threads_that_remove_the_same_tree_do_not_hurt_each_other(tmp_path: Path) -> None:
    tree = tmp_path / "attempt"
    for number in range(300):
        (tree / f"{number}" / "a" / "b").mkdir(parents=True)
        (tree / f"{number}" / "a" / "file").write_text("x")
    together = threading.Barrier(4)

    def work() -> None:
        together.wait()
        remove_tree(tree)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert not tree.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(SetupError, match="Permission denied; set DKGI_DATA"):
        RunFolder(tmp_path / "w")
    tmp_path.chmod(0o700)


def test_a_file_in_the_folders_place_is_named(tmp_path: Path) -> None:
    (tmp_path / "w").touch()
    with pytest.raises(SetupError, match=r"w: .*set DKGI_DATA"):
        RunFolder(tmp_path / "w")


def test_links_are_removed_and_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").write_text("kept")
    outside.chmod(0o555)
    tree = tmp_path / "tree"
    (tree / "deep").mkdir(parents=True)
    for link in (tree / "link", tree / "deep" / "link"):
        link.symlink_to(outside)
    (tree / "file").symlink_to(outside / "file")
    (tree / "self").symlink_to(tree)
    remove_tree(tree)
    assert not tree.exists()
    assert (outside / "file").read_text() == "kept"
    assert outside.stat().st_mode & 0o777 == 0o555
    outside.chmod(0o755)


def test_a_link_in_the_trees_place_is_refused(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "file").touch()
    (tmp_path / "tree").symlink_to(outside)
    with pytest.raises(OSError, match="tree"):
        remove_tree(tmp_path / "tree")
    assert (outside / "file").exists()


def test_special_files_and_odd_names_are_removed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    tree.mkdir()
    os.mkfifo(tree / "fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tree / "socket"))
    for name in (b"\xff\xfe", b"new\nline", b" ", b"-rf", b"*", b"x" * 255):
        Path(os.fsdecode(os.path.join(os.fsencode(tree), name))).mkdir()  # noqa: PTH118
    remove_tree(tree)
    assert not tree.exists()


_HOSTILE = """
mkdir -p /scratch/locked/inner/more && touch /scratch/locked/inner/more/file
chmod 000 /scratch/locked/inner/more /scratch/locked/inner /scratch/locked
mkdir /scratch/read-only && touch /scratch/read-only/file && chmod 555 /scratch/read-only
ln -s / /scratch/root
python3 - <<'PROGRAM'
import os
for n in range(3000): open(f"/tmp/{n}", "w").close()
os.chdir("/scratch")
for n in range(1500): os.mkdir("d"); os.chdir("d")
PROGRAM
chmod 000 /scratch
echo done
"""


def test_whatever_an_agent_leaves_can_be_removed(fresh_shell: Shell) -> None:
    assert fresh_shell(_HOSTILE) == "done\n"
    attempt = fresh_shell.workspace.scratch_dir.parent
    remove_tree(attempt)
    assert not attempt.exists()
    attempt.mkdir()  # the fixture removes it


def test_spare_ids_are_nobodys(tmp_path: Path) -> None:
    taken = {entry.pw_uid for entry in pwd.getpwall()}
    if Path("/proc/self/uid_map").read_text().split()[2] == "1":
        pytest.skip("only one id is mapped here")
    ids = {spare_id() for _ in range(20)}
    assert len(ids) > 10
    assert not ids & taken
    assert min(ids) > 1000
