"""Places of attempts under the policies with graph tools, in real jails: what an agent can reach, and what is recorded."""

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from dkgi.jail.profile import find_host
from dkgi.kg.index import open_index
from dkgi.kg.remote import ask
from dkgi.kg.text import IndexSpec
from dkgi.kg.tools import graph_tools
from dkgi.runner import Seat
from dkgi.seats import Seats
from dkgi.types import CliBox, SandboxError, SetupError, Tool, ToolSocket
from tests.composed import composed
from tests.jail.conftest import marked
from tests.models.films import write_films

ENGINE = '{"engine": "csr"}'


@pytest.fixture(scope="session")
def export(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a folder whose path does not hold the name of a split, as that of a test would."""
    folder = tmp_path_factory.mktemp("data") / "graphs" / "films-1"
    folder.parent.mkdir()
    write_films(folder)
    return folder


@pytest.fixture(scope="session")
def tools(export: Path) -> dict[str, Tool]:
    return graph_tools(open_index(export, IndexSpec(names=("title", "name"), summary=("plot",)), export.parents[1]))


@contextmanager
def seats(policy: str, export: Path, tools: dict[str, Tool]) -> Iterator[Seats]:
    with Seats(composed(f"tools={policy}"), export, export.parents[1], tools, ENGINE) as found:
        yield found


DYING = """#!/bin/bash
{ flock 9; read -r starts < FOLDER/starts; echo $((starts + 1)) > FOLDER/starts; } 9> FOLDER/lock
case " DEATHS " in *" $starts "*) echo bash 5; kill -9 $$ ;; esac
exec REAL "$@"
"""


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Let those of the jails that are started next, told by their numbers, be killed at their start."""

    def die(deaths: str) -> None:
        program = tmp_path / "nsjail" / "bin" / "nsjail"
        program.parent.mkdir(parents=True)
        (tmp_path / "nsjail" / "__init__.py").touch()
        (tmp_path / "starts").write_text("1\n")
        words = {"FOLDER": str(tmp_path), "DEATHS": deaths, "REAL": str(find_host().nsjail)}
        script = DYING
        for name, word in words.items():
            script = script.replace(name, word)
        program.write_text(script)
        program.chmod(0o755)
        monkeypatch.syspath_prepend(tmp_path)

    return die


@pytest.mark.parametrize("death", "1234")
def test_places_are_proved_once_more_where_a_jail_is_killed_meanwhile(
    death: str, export: Path, tools: dict[str, Tool], tmp_path: Path, dying: Callable[[str], None]
) -> None:
    dying(death)
    with seats("graph_tools_code", export, tools) as places:
        assert places.programs["ripgrep"] == "15.2.0"
        assert int((tmp_path / "starts").read_text()) == 1 + int(death) + 4
        assert not places.example.scratch_dir.parent.exists()


@pytest.mark.parametrize("deaths", ["1 2", "2 4", "3 6", "4 8"])
def test_places_whose_jails_are_killed_twice_are_refused_in_a_line(
    deaths: str, export: Path, tools: dict[str, Tool], dying: Callable[[str], None]
) -> None:
    dying(deaths)
    with pytest.raises(SetupError, match=r"^sandbox: .*the jail was killed from outside$"):
        Seats(composed("tools=graph_tools_code"), export, export.parents[1], tools, ENGINE)
    assert list((export.parents[1] / "w").iterdir()) == []


def printed(seat: Seat, command: str) -> str:
    result = seat.commands.run(["/bin/bash", "-c", command], timeout_s=60)
    return result.output.read_text()


def calls(log: Path) -> Sequence[tuple[str, str]]:
    lines = (json.loads(line) for line in log.with_name("graph_calls.jsonl").read_text().splitlines())
    return [(line["tool"], line["engine"]) for line in lines]


@pytest.mark.parametrize(
    ("policy", "offered"),
    [
        ("graph_tools", ["get_schema", "search", "get_node", "neighbors"]),
        ("retrieval_only", ["get_schema", "search", "get_node"]),
        ("graph_tools_code", []),
        ("closed_book", []),
    ],
)
def test_without_graph_files_there_is_one_readme(
    policy: str, offered: list[str], export: Path, tools: dict[str, Tool], tmp_path: Path
) -> None:
    with seats(policy, export, tools) as places, places.open(tmp_path / "commands.jsonl") as seat:
        assert list(seat.graph_tools) == offered
        assert printed(seat, "ls -A /graph") == "README\n"
        assert "Lund" not in printed(seat, "grep -rs Lund /graph /scratch /tmp /run /etc /home /root")


def test_programs_call_the_graph_and_their_calls_are_counted(
    export: Path, tools: dict[str, Tool], tmp_path: Path
) -> None:
    log = tmp_path / "commands.jsonl"
    program = "import graph_client as graph; [print(graph.search(w, k=1)) for w in ('lighthouse', 'goat', '')]"
    with seats("graph_tools_code", export, tools) as places, places.open(log) as seat:
        text = printed(seat, f'python3 -c "{program}"')
        assert "The Quiet Orchard" in text
        assert "holds no word" in text
        assert seat.graph_calls() == 3
        assert len(log.read_text().splitlines()) == 1
    assert calls(log) == [("search", ENGINE)] * 3


def test_an_attempt_cannot_speak_for_another(export: Path, tools: dict[str, Tool], tmp_path: Path) -> None:
    first, second = (tmp_path / name / "commands.jsonl" for name in ("first", "second"))
    for log in (first, second):
        log.parent.mkdir()
    call = "python3 -c 'import graph_client as graph; graph.get_node(0)'"
    with seats("graph_tools_code", export, tools) as places, places.open(first) as one, places.open(second) as other:
        tokens = {printed(seat, "cat /run/client/token") for seat in (one, other)}
        assert len(tokens) == 2
        printed(one, f"{call}; {call}")
        printed(other, call)
        assert (one.graph_calls(), other.graph_calls()) == (2, 1)
        refused = printed(one, "echo x > /run/client/token; rm -f /run/client/socket; ls /run/client")
        assert refused.endswith("graph_client.py\nsocket\ntoken\n")


def test_the_other_policies_have_no_client(export: Path, tools: dict[str, Tool], tmp_path: Path) -> None:
    with seats("full_dkgi", export, {}) as places, places.open(tmp_path / "commands.jsonl") as seat:
        assert printed(seat, "ls /run/client; python3 -c 'import graph_client'").count("No ") == 2
        assert seat.graph_tools == {}


def asked(calls: ToolSocket, tool: str, **arguments: object) -> object:
    return ask(calls.path, {"token": calls.token, "tool": tool, "arguments": arguments}, timeout_s=60).get("text")


def test_a_program_outside_of_the_attempts_jail_calls_the_policys_tools_until_the_seat_is_left(
    export: Path, tools: dict[str, Tool], tmp_path: Path
) -> None:
    with Seats(composed("tools=full_dkgi", "harness=pi"), export, export.parents[1], tools, ENGINE) as found:
        with found.open(tmp_path / "commands.jsonl") as seat:
            assert seat.calls is not None
            assert asked(seat.calls, "bash", command="pwd") == "/graph\n"
            refused = asked(seat.calls, "search", query="storm")
            assert isinstance(refused, str)
            assert "bash, read" in refused
            left = seat.calls
        with pytest.raises(SandboxError, match="cannot be reached"):
            asked(left, "bash", command="pwd")


def test_an_external_program_ends_with_its_seat_whoever_still_holds_it(
    export: Path, tools: dict[str, Tool], tmp_path: Path
) -> None:
    marker = f"seat-left-{os.getpid()}"
    box = CliBox((), "/run/home", "/run/home", (("PATH", "/usr/bin:/bin"),), 60, 400)
    words = ["/bin/bash", "-c", f"exec -a {marker} sleep 300"]
    with (
        Seats(composed("harness=pi", "tools=graph_tools"), export, export.parents[1], tools, ENGINE) as seats,
        ExitStack() as held,
    ):
        with seats.open(tmp_path / "commands.jsonl") as seat:
            assert seat.programs is not None
            held.enter_context(seat.programs.start(box, words))
            while not marked(f"{marker}\x00300"):
                time.sleep(0.05)
        assert marked(marker) == []
        assert not seat.workspace.scratch_dir.parent.exists()


def test_an_attempt_without_an_external_program_has_no_socket_for_its_tools(
    export: Path, tools: dict[str, Tool], tmp_path: Path
) -> None:
    with seats("full_dkgi", export, tools) as found, found.open(tmp_path / "commands.jsonl") as seat:
        assert seat.calls is None
        assert not (found.folder / "tools").exists()
