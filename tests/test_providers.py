"""The whole command with a provider on a loopback socket: money, keys, kills and stops, as a user sees them."""

import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest
import zstandard

from dkgi.store import Cell, cells
from dkgi.types import QueryResult, Usage
from tests.loopback import Loopback, Turn

KEY = "no-real-key-5d0c77a1e4"
LOOK = Turn(thinking="Look first.", calls=[("bash", '{"command": "ls"}')], input=1000, cached=400, output=50)
ANSWER = Turn(text='{"node_ids": [1, 2]}', input=2000, cached=1500, output=10)
LOOKED = (600 * 0.1 + 400 * 0.01 + 50 * 0.5) / 1_000_000
EACH = LOOKED + (500 * 0.1 + 1500 * 0.01 + 10 * 0.5) / 1_000_000
"""Dollars of LOOK, and of LOOK and ANSWER, at luna's prices."""
QUOTA = Turn(status=429, body={"error": {"message": "You exceeded your current quota.", "code": "insufficient_quota"}})
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def dkgi(data: Path, tmp_path: Path) -> Iterator[Start]:
    """Starts `python -m dkgi` with a model whose provider is `server`, one query after the other."""
    started: list[subprocess.Popen[str]] = []

    def start(server: Loopback, *arguments: str, model: str = "luna", **environment: str) -> subprocess.Popen[str]:
        url = server.root if model == "claude" else server.url
        command = [sys.executable, "-m", "dkgi", f"model={model}", f"model.base_url={url}", "threads=1", *arguments]
        folders = {"DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
        keys = {"OPENAI_API_KEY": KEY, "ANTHROPIC_API_KEY": KEY}
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **folders, **keys, **environment},
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def end(process: subprocess.Popen[str], *, code: int = 0) -> str:
    """All that it printed."""
    stdout, stderr = process.communicate(timeout=120)
    assert process.returncode == code, stdout + stderr
    return stdout + stderr


def the_cell(tmp_path: Path) -> Cell:
    (cell,) = cells(tmp_path / "runs")
    return cell


def results(tmp_path: Path) -> list[QueryResult]:
    return list(the_cell(tmp_path).results())


def test_a_run_is_priced_before_and_billed_to_the_token_after(dkgi: Start, tmp_path: Path) -> None:
    with Loopback([LOOK, ANSWER, LOOK, ANSWER]) as server:
        said = end(dkgi(server, "limit=2", "tracking=none"))
    assert "2 queries to answer, about $0.01 ($0.0050 a query); $0.0000 spent so far, limits.usd_run=5" in said
    assert [result.outcome for result in results(tmp_path)] == ["scored"] * 2
    assert [result.cost_usd for result in results(tmp_path)] == pytest.approx([EACH] * 2, abs=1e-9)
    assert results(tmp_path)[0].usage == Usage(1100, 1900, 0, 60, 0, 2)


def test_without_a_key_that_can_be_sent_one_line_says_so_before_anything_is_made(dkgi: Start, tmp_path: Path) -> None:
    with Loopback([ANSWER]) as server:
        assert end(dkgi(server, "limit=1", OPENAI_API_KEY=""), code=2).count("OPENAI_API_KEY") == 1
        broken = end(dkgi(server, "limit=1", OPENAI_API_KEY=f"{KEY}\n2"), code=2)
        assert broken.startswith("dkgi: OPENAI_API_KEY: ")
        assert KEY not in broken
        assert list((tmp_path / "runs").glob("*")) == []
        assert "1 query to answer" in end(dkgi(server, "limit=1", "dry_run=true", OPENAI_API_KEY=""))


def test_the_cap_of_a_run_puts_queries_off_and_a_higher_one_goes_on_with_the_bill(dkgi: Start, tmp_path: Path) -> None:
    cheap = ["limit=4", "tracking=none", "model.max_output_tokens=1000"]
    with Loopback([LOOK, ANSWER, LOOK, ANSWER, LOOK]) as server:
        said = end(dkgi(server, *cheap, f"limits.usd_run={2 * EACH + 0.0012}"), code=1)
        assert "2 queries wait for money (limits.usd_run=" in said
        assert re.search(r"may cost \$0\.\d{4}; raise it\), which have cost \$0\.\d+ so far: the same command", said)
        assert len(results(tmp_path)) == 2
        asked = len(server.requests)
        assert len(list((the_cell(tmp_path).folder / "queries").iterdir())) == 3

        end(dkgi(server, *cheap, f"limits.usd_run={2 * EACH + 0.0012}"), code=1)
        assert len(server.requests) == asked

        server.turns = [ANSWER]
        said = end(dkgi(server, *cheap, "limits.usd_run=1"))
    looks = asked - 4
    assert f"; ${2 * EACH + looks * LOOKED:.4f} spent so far, limits.usd_run=1" in said
    assert [result.stops for result in results(tmp_path)] == [("answered",)] * 4
    assert sum(result.usage.output for result in results(tmp_path)) == 2 * 60 + looks * 50 + 2 * 10
    assert all(result.usage.complete for result in results(tmp_path))


def test_the_cap_of_a_query_holds_up_no_other(dkgi: Start, tmp_path: Path) -> None:
    dear = Turn(calls=LOOK.calls, input=100_000, output=900)
    with Loopback([dear, ANSWER]) as server:
        said = end(
            dkgi(server, "limit=2", "tracking=none", "model.max_output_tokens=1000", "limits.usd_query=0.01"), code=1
        )
    assert "1 query waits for money (limits.usd_query=0.01: $" in said
    assert len(results(tmp_path)) == 1


def test_a_quota_that_is_used_up_stops_the_run_with_exit_3_and_keeps_what_is_done(dkgi: Start, tmp_path: Path) -> None:
    with Loopback([ANSWER, QUOTA]) as server:
        said = end(dkgi(server, "limit=3", "tracking=none"), code=3)
        assert len(server.requests) == 2
        assert "You exceeded your current quota." in said
        assert "1 scored" in said
        server.turns = [ANSWER]
        end(dkgi(server, "limit=3", "tracking=none"))
    assert len(results(tmp_path)) == 3


def test_a_provider_that_refuses_every_query_is_told_and_asked_no_more(dkgi: Start, tmp_path: Path) -> None:
    refused = Turn(status=400, body={"error": {"message": "Unsupported parameter: tools", "code": "unsupported"}})
    with Loopback([refused]) as server:
        said = end(dkgi(server, "limit=9", "tracking=none", "limits.attempts=1"), code=1)
        asked = len(server.requests)
    assert (
        "5 times model_error: bad_request: Unsupported parameter: tools; retry=infra tries such queries again" in said
    )
    assert "the first 5 queries all failed so, and no more were begun" in said
    assert asked <= 6
    assert said.count("openai_responses: bad_request: Unsupported parameter: tools") == 1


def test_a_key_that_is_refused_is_told_by_its_variable_and_never_shown(dkgi: Start, tmp_path: Path) -> None:
    refused = Turn(status=401, body={"error": {"message": f"Incorrect API key provided: {KEY}", "code": "invalid"}})
    with Loopback([refused]) as server:
        said = end(dkgi(server, "limit=2", "tracking=none"), code=2)
    assert said.splitlines()[-1].startswith("dkgi: ")
    assert "OPENAI_API_KEY" in said.splitlines()[-1]
    assert KEY not in said
    assert findings(tmp_path / "runs", KEY) == []


def test_a_request_that_a_kill_cut_off_counts_at_its_bound_and_its_query_goes_first(
    dkgi: Start, tmp_path: Path
) -> None:
    options = ["repeats=2", "tracking=none", "model.max_output_tokens=1000"]
    with Loopback([LOOK, ANSWER, LOOK, Turn(fault="silence")]) as server:
        process = dkgi(server, "limit=1", *options)
        wait_for(lambda: len(server.requests) == 4)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        server.turns = [ANSWER]
        said = end(dkgi(server, "limit=2", *options))
    assert "usage incomplete for 1, whose tokens and $ are estimates" in said
    _, killed, *rest = sorted(results(tmp_path), key=lambda result: result.started)
    assert (killed.repeat, killed.interrupted, killed.stops, killed.usage.complete) == (1, 1, ("answered",), False)
    assert (killed.usage.output, killed.usage.requests) == (50 + 1000 + 10, 3)
    assert [(result.interrupted, result.usage.complete) for result in rest] == [(0, True)] * 2


@pytest.mark.parametrize("harness", ["native", "pi"])
def test_after_ctrl_c_what_was_under_way_is_told_and_is_what_the_next_run_counts(
    dkgi: Start, data: Path, harness: str
) -> None:
    if harness == "pi" and not (data / "tools" / "pi-0.65.0").exists():
        pytest.skip("Pi 0.65.0 is not installed: python -m dkgi.nodetools")
    options = ["limit=1", "tracking=none", "model.max_output_tokens=1000", f"harness={harness}"]
    with Loopback([LOOK, Turn(fault="silence")]) as server:
        process = dkgi(server, *options)
        wait_for(lambda: len(server.requests) == 2)
        process.send_signal(signal.SIGINT)
        said = end(process, code=130)
        server.turns = [ANSWER]
        later = end(dkgi(server, *options))
    (told,) = re.findall(r"1 query is not finished, which has cost \$([\d.]+) so far", said)
    (counted,) = re.findall(r"\$([\d.]+) spent so far", later)
    assert float(told) == pytest.approx(float(counted), abs=1e-4)
    assert float(told) > EACH / 2


def test_a_replayed_cell_has_equal_answers_and_figures_at_no_cost_and_without_a_key(
    dkgi: Start, tmp_path: Path, data: Path
) -> None:
    wrong = Turn(text="It is 4.", output=7)
    with Loopback([LOOK, wrong, LOOK, ANSWER, ANSWER]) as server:
        end(dkgi(server, "limit=3", "tracking=none", "limits.backoff_s=0"))
        asked = len(server.requests)
        recorded = the_cell(tmp_path)
        options = ["limit=3", "tracking=none", "limits.backoff_s=0"]
        command = [sys.executable, "-m", "dkgi", "model=replay", f"model.cell={recorded.id[:8]!r}", *options]
        environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
        environment |= {"DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment)
        assert done.returncode == 0, done.stderr
        assert len(server.requests) == asked
    (replayed,) = [cell for cell in cells(tmp_path / "runs") if cell.id != recorded.id]
    assert replayed.manifest["config"]["model"]["cell"] == recorded.id
    assert [figures(result) for result in replayed.results()] == [figures(result) for result in recorded.results()]
    assert [result.cost_usd for result in replayed.results()] == [0.0] * 3
    assert scores(replayed) == scores(recorded)


@pytest.mark.usefixtures("runs")
@pytest.mark.parametrize("model", ["luna", "claude", "local"])
def test_no_key_in_anything_that_a_run_writes_or_starts(model: str, dkgi: Start, tmp_path: Path, data: Path) -> None:
    spy = '{"command": "env; tr \\"\\\\0\\" \\"\\\\n\\" < /proc/self/environ; cat /proc/*/cmdline; sleep 1; echo x > /scratch/x"}'
    echo = {"error": {"message": f"bad request with {KEY}", "type": "invalid_request_error"}}
    turns = [Turn(calls=[("bash", spy)]), Turn(status=400, body=echo), ANSWER]
    extra = ["model.key_variable=OPENAI_API_KEY"] if model == "local" else []
    with Loopback(turns) as server:
        process = dkgi(server, "limit=2", "keep_scratch=true", "limits.backoff_s=0", *extra, model=model)
        jails = watch(process)
        said = end(process)
        sent = [
            request.headers.get("authorization", request.headers.get("x-api-key", "")) for request in server.requests
        ]
    assert all(KEY in value for value in sent)
    assert any("sleep" in " ".join(arguments) for arguments, _ in jails)
    assert [words for words, environment in jails if KEY in " ".join((*words, *environment))] == []
    assert KEY not in said
    assert [result.stops for result in results(tmp_path)] == [("model_error", "answered"), ("answered",)]
    assert findings(tmp_path / "runs", KEY) == findings(data / "kept", KEY) == []
    assert findings(tmp_path / "runs", "bad request with [key]")


def figures(result: QueryResult) -> tuple[Any, ...]:
    """What a replay must not change."""
    return (
        result.number,
        result.outcome,
        result.stops,
        result.node_ids,
        result.usage,
        result.turns,
        result.tool_calls,
        result.tool_errors,
    )


def scores(cell: Cell) -> list[Any]:
    """The scores of a cell, without when their results began."""
    lines = (cell.folder / "scores.jsonl").read_text().splitlines()
    return sorted(
        ({key: value for key, value in json.loads(line).items() if key != "started"} for line in lines),
        key=lambda row: int(row["number"]),
    )


def wait_for(happened: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def watch(process: subprocess.Popen[str]) -> set[tuple[tuple[str, ...], tuple[str, ...]]]:
    """Arguments and environment of everything that the process starts, until its first command has slept."""
    seen: set[tuple[tuple[str, ...], tuple[str, ...]]] = set()
    parent = psutil.Process(process.pid)
    own = process.args  # what the system says is empty for a moment
    while process.poll() is None and not any(arguments[:1] == ("sleep",) for arguments, _ in seen):
        for child in parent.children(recursive=True):
            with suppress(psutil.Error):
                arguments = child.cmdline()
                environment = tuple(f"{name}={value}" for name, value in child.environ().items())
                # Until it starts its program, a new process still is a copy of its parent.
                if own != arguments == child.cmdline():
                    seen.add((tuple(arguments), environment))
        time.sleep(0.01)
    return seen


def findings(folder: Path, text: str) -> list[str]:
    """The files that hold `text`: as they are, unpacked, and as rows of a database."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        content = path.read_bytes()
        if path.suffix == ".zst":
            with path.open("rb") as file:
                content += zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True).read()
        if path.suffix == ".db":
            content += "\n".join(sqlite3.connect(path).iterdump()).encode()
        if text.encode() in content:
            found.append(str(path))
    return found
