"""The host reads a file that an agent made only where it is a regular file in the agent's own folder."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from dkgi.jail.beneath import read_beneath

REFUSED = (
    r"not a regular file|not a name|No such file|Not a directory|Is a directory|Invalid cross-device link|"
    r"Too many levels|No such device or address|Permission denied|Operation not permitted"
)


@pytest.fixture
def scratch(tmp_path: Path) -> Path:
    (tmp_path / "labels").mkdir()
    (tmp_path / "labels" / "gold").write_text("gold")
    scratch = tmp_path / "scratch"
    (scratch / "d").mkdir(parents=True)
    (scratch / "d" / "file").write_bytes(b"0123456789")
    return scratch


def test_a_file_is_read_up_to_a_size(scratch: Path) -> None:
    assert read_beneath(scratch, "d/file", most=100) == b"0123456789"
    assert read_beneath(scratch, "d/../d/./file", most=4) == b"0123"


def test_a_file_that_seems_endless_is_cut(scratch: Path) -> None:
    with (scratch / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    assert read_beneath(scratch, "sparse", most=1000) == bytes(1000)


def link(target: str) -> Callable[[Path], None]:
    return lambda place: place.symlink_to(target)


def bound_socket(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(place))


@pytest.mark.parametrize(
    "make",
    [
        link("../labels/gold"),
        link("/etc/passwd"),
        link("/proc/self/root/etc/passwd"),
        link("/proc/self/fd/0"),
        link("d/file"),
        link("x"),
        os.mkfifo,
        Path.mkdir,
        bound_socket,
        lambda place: None,
    ],
    ids=["out", "absolute", "magic", "descriptor", "inside", "loop", "pipe", "folder", "socket", "nothing"],
)
def test_what_is_no_file_is_not_read(scratch: Path, make: Callable[[Path], None]) -> None:
    make(scratch / "x")
    with pytest.raises(OSError, match=REFUSED):
        read_beneath(scratch, "x", most=100)


@pytest.mark.parametrize("name", ["../labels/gold", "/etc/passwd", "d/../../labels/gold", "", "d", "d/file\0", "l/gold", "up/labels/gold"])  # fmt: skip
def test_no_name_leads_out(scratch: Path, name: str) -> None:
    (scratch / "l").symlink_to("../labels")
    (scratch / "up").symlink_to("..")
    with pytest.raises(OSError, match=REFUSED):
        read_beneath(scratch, name, most=100)


def test_a_folder_that_became_a_link_is_not_entered(scratch: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "labels")
    with pytest.raises(OSError, match=REFUSED):
        read_beneath(tmp_path / "link", "gold", most=100)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
def test_a_device_is_not_read(scratch: Path) -> None:
    try:
        os.mknod(scratch / "zero", 0o20666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this container makes no devices")
    with pytest.raises(OSError, match=REFUSED):
        read_beneath(scratch, "zero", most=100)
