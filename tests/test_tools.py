"""bash and read, in a real jail on real files."""

import json
from pathlib import Path

import pytest

from dkgi.runner import Seat
from dkgi.tools import READ_BYTES, make_tools, run_call
from dkgi.types import ToolCall, ToolOutput


def call(seat: Seat, name: str, arguments: object, timeout_s: float = 20) -> ToolOutput:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return run_call(ToolCall("1", name, text), make_tools(["bash", "read"], seat.commands, {}), timeout_s=timeout_s)


def test_bash_starts_in_the_graph_and_shows_both_streams_in_order(seat: Seat) -> None:
    output = call(seat, "bash", {"command": "pwd; echo two >&2; wc -l < candidate_ids.txt"})
    assert output == ToolOutput("/graph\ntwo\n3\n")


def test_bash_says_how_a_failing_command_ended(seat: Seat) -> None:
    assert call(seat, "bash", {"command": "echo x; exit 3"}) == ToolOutput("x\n[exit code 3]", is_error=True)


def test_bash_says_when_nothing_was_printed(seat: Seat) -> None:
    assert call(seat, "bash", {"command": "true"}) == ToolOutput("(no output)")
    assert call(seat, "bash", {"command": "false"}) == ToolOutput("[exit code 1]", is_error=True)


def test_bash_keeps_what_was_printed_before_the_timeout_of_the_call(seat: Seat) -> None:
    output = call(seat, "bash", {"command": "echo early; sleep 50", "timeout": 1})
    assert output.is_error
    assert output.text.startswith("early\n[ended after 1 seconds")


def test_a_timeout_of_the_call_cannot_outlast_the_attempt(seat: Seat) -> None:
    output = call(seat, "bash", {"command": "sleep 50", "timeout": 500}, timeout_s=1)
    assert output.text.startswith("[ended after 1 seconds")


def test_long_output_is_shown_as_head_and_tail_and_kept_whole_for_the_agent(seat: Seat) -> None:
    output = call(seat, "bash", {"command": "seq 100000"})
    assert "[... harness output limit:" in output.text
    assert len(output.text.encode()) < 18_000 + 1_000
    kept = call(seat, "bash", {"command": "tail -n 1 /scratch/full_outputs/*; wc -l < /scratch/full_outputs/0001.txt"})
    assert kept.text == "100000\n100000\n"


def test_files_in_scratch_stay_between_commands(seat: Seat) -> None:
    call(seat, "bash", {"command": "echo kept > /scratch/note"})
    assert call(seat, "read", {"path": "/scratch/note"}).text == "kept\n"


def test_read_shows_a_file_of_the_graph_by_relative_path(seat: Seat) -> None:
    assert call(seat, "read", {"path": "candidate_ids.txt"}) == ToolOutput("0\n1\n2\n")


def test_read_goes_on_where_it_is_told_to(seat: Seat) -> None:
    first = call(seat, "read", {"path": "candidate_ids.txt", "limit": 2}).text
    assert first == "0\n1\n[lines 1 to 2 of 3; continue with offset=3]"
    assert call(seat, "read", {"path": "candidate_ids.txt", "offset": 3}).text == "2\n"


def test_read_stops_at_2000_lines_and_at_50_kilobytes_on_a_whole_line(seat: Seat) -> None:
    call(
        seat,
        "bash",
        {"command": "seq 5000 > /scratch/lines; yes 0123456789abcdef0123456789abcdef | head -n 3000 > /scratch/wide"},
    )
    assert call(seat, "read", {"path": "/scratch/lines"}).text.endswith(
        "\n2000\n[lines 1 to 2000 of 5000; continue with offset=2001]"
    )
    wide = call(seat, "read", {"path": "/scratch/wide"}).text
    body, _, notice = wide.rpartition("\n")
    assert len(body) + 1 <= READ_BYTES
    assert set(body.splitlines()) == {"0123456789abcdef0123456789abcdef"}
    lines = READ_BYTES // 33
    assert notice == f"[lines 1 to {lines} of 3000; continue with offset={lines + 1}]"


def test_read_names_a_line_that_is_too_long(seat: Seat) -> None:
    call(seat, "bash", {"command": "head -c 200000 /dev/zero | tr '\\0' x > /scratch/one"})
    output = call(seat, "read", {"path": "/scratch/one"})
    assert output.is_error
    assert "line 1 alone is longer" in output.text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"path": "no_such_file"}, "no such file"),
        ({"path": "nodes"}, "not a regular file"),
        ({"path": ""}, "no such file"),
        ({"path": "candidate_ids.txt", "offset": 9}, "offset 9 is past the end: the file has 3 lines"),
    ],
)
def test_read_says_what_it_cannot_read(seat: Seat, arguments: dict[str, object], said: str) -> None:
    output = call(seat, "read", arguments)
    assert output.is_error
    assert said in output.text


def test_read_takes_a_path_as_a_name_and_not_as_shell_code(seat: Seat) -> None:
    for path in ("$(touch /scratch/a)", "x; touch /scratch/a", "-n", "`touch /scratch/a`"):
        assert call(seat, "read", {"path": path}).is_error
    assert call(seat, "bash", {"command": "ls /scratch"}).text == "full_outputs\n"


def test_a_file_of_odd_bytes_is_shown_and_crashes_nothing(seat: Seat) -> None:
    call(seat, "bash", {"command": r"printf '\xff\xfe\0ok\n' > /scratch/odd"})
    assert call(seat, "read", {"path": "/scratch/odd"}).text == "\ufffd\ufffd\0ok\n"


@pytest.mark.parametrize(
    ("name", "arguments", "said"),
    [
        ("bash", "ls", "not a JSON object"),
        ("bash", '{"command": "ls"', "not a JSON object"),
        ("bash", [], "must be an object"),
        ("bash", {}, "command is missing"),
        ("bash", {"command": 3}, "command must be of type string"),
        ("bash", {"command": "ls", "timeout": "long"}, "timeout must be of type number"),
        ("bash", {"command": "ls", "timeout": 0}, "timeout must be greater than 0"),
        ("bash", {"command": "ls", "timeout": True}, "timeout must be of type number"),
        ("bash", {"command": "ls", "cwd": "/"}, "there is no argument cwd"),
        ("bash", {"command": "a\0b"}, "NUL"),
        ("read", {"path": "x", "offset": -1}, "offset must be 1 or more"),
        ("read", {"path": "x", "limit": 1.5}, "limit must be of type integer"),
        ("python", {"code": "1"}, "there is no tool named python; the tools are: bash, read"),
    ],
)
def test_a_wrong_call_comes_back_as_an_error_that_teaches(seat: Seat, name: str, arguments: object, said: str) -> None:
    output = call(seat, name, arguments)
    assert output.is_error
    assert said in output.text


def test_arguments_are_taken_as_models_mean_them(seat: Seat) -> None:
    shown = call(seat, "read", {"path": "candidate_ids.txt", "limit": 2.0, "offset": None})
    assert shown.text == "0\n1\n[lines 1 to 2 of 3; continue with offset=3]"
    assert "command is missing" in call(seat, "bash", "").text
    assert "command must be of type string" in call(seat, "bash", {"command": None}).text


def test_commands_are_recorded_outside_the_jail(seat: Seat, tmp_path: Path) -> None:
    call(seat, "bash", {"command": "exit 5"})
    (line,) = (tmp_path / "commands.jsonl").read_text().splitlines()
    record = json.loads(line)
    assert record["argv"][-1] == "exit 5"
    assert record["exit_code"] == 5
