from pathlib import Path

import pytest

from dkgi.jail.nsjail import Message, Word, arguments, bind, text, tmpfs, variable


def test_fields_are_written_as_protobuf_text() -> None:
    fields: Message = [
        ("mode", Word("ONCE")),
        ("time_limit", 5),
        ("keep_env", False),
        ("mount", [("dst", "/x"), ("rw", True)]),
    ]
    assert text(fields) == 'mode: ONCE\ntime_limit: 5\nkeep_env: false\nmount {\n  dst: "/x"\n  rw: true\n}'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain name:1", '"plain name:1"'),
        ('say "hi"\\n', r'"say \"hi\"\\n"'),
        ("new\nline\ttab", r'"new\012line\011tab"'),
        ("é", r'"\303\251"'),
        ("\udcff", r'"\377"'),
        ("\x7f", r'"\177"'),
    ],
    ids=["plain", "quotes", "control", "utf-8", "not utf-8", "delete"],
)
def test_strings_keep_every_byte(value: str, written: str) -> None:
    assert text([("src", value)]) == f"src: {written}"


def test_a_variable_without_a_value_of_ours_cannot_be_written() -> None:
    assert variable("LANG", "") == ("envar", "LANG=")
    for name in ("", "SECRET=x"):
        with pytest.raises(ValueError, match="environment variable"):
            variable(name, "value")


def test_mounts_are_read_only_and_without_programs_unless_asked() -> None:
    for mount in (dict(bind(Path("/a"), "/b")), dict(tmpfs("/b", "4k"))):
        assert mount["rw"] is False
        assert mount["nosuid"] is True
        assert mount["nodev"] is True
        assert mount["noexec"] is True


def test_a_command_that_looks_like_an_option_is_no_option() -> None:
    assert arguments(Path("/n"), Path("/c"), 5, ["--help"]) == ["/n", "--log_fd", "5", "--config", "/c", "--", "--help"]
