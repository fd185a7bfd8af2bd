"""Grids that are killed again and again, and workers that race for the last dollar, end as if nothing had happened."""

import random
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from dkgi.analysis.comparison import compare
from dkgi.analysis.summary import scored_results
from dkgi.plan import spent
from dkgi.store import cells
from tests.grids import Grids, end, jails_of_commands, jails_of_workers, local, wait_for, workers
from tests.loopback import Loopback, Turn

KILLS = 30
QUERIES = 6
TINY = 1e-9
LOOK_COMMAND = "sleep 1; ls"
LOOK: dict[str, Any] = {"calls": [{"name": "bash", "arguments": {"command": LOOK_COMMAND}}], "usage": {"output": 10}}
ANSWER: dict[str, Any] = {"text": '{"node_ids": [1, 2]}', "usage": {"output": 1}}
VICTIMS: list[Callable[[int], list[psutil.Process]]] = [
    lambda parent: [psutil.Process(parent)],
    workers,
    jails_of_workers,
    jails_of_commands,
    lambda parent: [jail for jail in jails_of_commands(parent) if LOOK_COMMAND not in jail.cmdline()],
]
# One model says what is written, the other what its commands print: it answers otherwise where one is lost.
CELLS = ("tools=full_dkgi,graph_tools_code", "model=looks,heuristic", f"limit={QUERIES}", "threads=2")
# More attempts than jails are killed, so that no query can lose all of them.
SETTINGS = (*CELLS, f"limits.attempts={KILLS}", "limits.backoff_s=0.01")


def test_30_kills_of_anything_at_random_moments_lose_and_double_nothing(data: Path, tmp_path: Path) -> None:
    grids = Grids(data, tmp_path, "killed")
    grids.scripted("looks", [[LOOK, LOOK, ANSWER]])
    chance = random.Random(7)
    repeats = 1
    seen = grids.results()
    process = grids.start(*SETTINGS, f"repeats={repeats}")
    left = [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]
    chance.shuffle(left)
    while left:
        time.sleep(chance.uniform(0.0, 3.0))
        victim = _kill_one(process, left[-1], chance)
        left = left[:-1] if victim else left
        if victim == process.pid:
            process.wait(timeout=60)
            wait_for(lambda: grids.processes() == [], 30)
        if process.poll() is None:
            continue
        _, stderr = process.communicate(timeout=60)
        assert process.returncode in (-9, 0, 1), stderr
        assert "Traceback" not in stderr
        # A command that is lost is tried again by its own cell; only a worker's own end ends a cell.
        assert [line for line in stderr.splitlines() if " failed: " in line and "ended by SIGKILL" not in line] == []
        found = grids.results()
        assert {key: found.get(key) for key in seen} == seen
        seen = found
        repeats += process.returncode == 0  # all is done before all kills: more is asked for
        process = grids.start(*SETTINGS, f"repeats={repeats}")
    process.communicate(timeout=240)
    end(grids.start(*SETTINGS, f"repeats={repeats}"))

    found = grids.results()
    assert {key: found[key] for key in seen} == seen
    assert len(found) == 4 * QUERIES * repeats
    for cell in cells(grids.runs):
        assert len(scored_results(cell)) == QUERIES * repeats
        for result in cell.results():
            attempts = cell.attempts(result.number, result.repeat)
            steps = [step for attempt in attempts for step in attempt.steps if step.usage]
            assert result.usage.output == sum(step.usage.output for step in steps if step.usage)
    assert grids.left() == []
    assert grids.logged() == {
        ("query", "FINISHED"): len(found),
        ("cell", "FINISHED"): 4,
        ("grid", "FINISHED"): 1,
    }
    calm = Grids(data, tmp_path, "calm")
    end(calm.start(*SETTINGS, f"repeats={repeats}", "tracking=none"))
    assert _table(grids) == _table(calm)
    assert {key: (r.outcome, r.final_answer) for key, r in found.items()} == {
        key: (r.outcome, r.final_answer) for key, r in calm.results().items()
    }


def _wait_for_requests(server: Loopback, count: int) -> None:
    wait_for(lambda: len(server.requests) >= count)


def _kill_one(
    process: "subprocess.Popen[str]", of: Callable[[int], list[psutil.Process]], chance: random.Random
) -> int | None:
    """Kill one of them as soon as there is one; None where the grid ends first."""
    deadline = time.monotonic() + 120
    while process.poll() is None:
        assert time.monotonic() < deadline
        with suppress(psutil.NoSuchProcess):
            if found := of(process.pid):
                victim = chance.choice(found)
                victim.kill()
                return victim.pid
        time.sleep(0.01)
    return None


def _table(grids: Grids) -> list[dict[str, Any]]:
    """What the comparison says of scores and outcomes; tokens and seconds are others, or not known, where attempts were cut off."""
    names = ("cell", "queries", "outcomes", "against", "shared", "discordant")
    found = cells(grids.runs)
    comparison = compare([str(number) for number in range(len(found))], [scored_results(cell) for cell in found])
    metrics = ("hit_at_1", "recall_at_20", "mrr")
    return [
        {key: value for key, value in record.items() if key in names or key.startswith(metrics)}
        for record in comparison.records()
    ]


def test_8_workers_that_race_for_the_last_cents_pass_no_cap_and_what_kills_cut_off_stays_paid(
    data: Path, tmp_path: Path
) -> None:
    cap, each = 0.10, 0.001
    grids = Grids(data, tmp_path)
    chance = random.Random(8)
    counted, results = 0.0, grids.results()

    def count(server: Loopback) -> float:
        """What the store knows of: no less than the provider bills for all that came to it, and no more than the cap."""
        usd, _ = spent(cells(grids.runs))
        assert len(server.requests) * each <= usd + TINY
        assert counted <= usd <= cap + TINY
        return usd

    answer = Turn(text='{"node_ids": [1]}', input=900, output=100, delay_s=0.3)
    with Loopback([answer]) as server:
        arguments = [
            *("tools=closed_book", "limits.max_turns=1,2,3,4,5,6,7,8", "limit=20", "threads=1"),
            *("hydra.launcher.n_jobs=8", "tracking=none", *local(server)),
        ]
        for _ in range(3):
            target = len(server.requests) + chance.randrange(6, 16)
            process = grids.start(*arguments, f"limits.usd_grid={cap}")
            _wait_for_requests(server, target)
            time.sleep(chance.uniform(0.0, 0.3))
            process.kill()
            process.communicate(timeout=60)
            wait_for(lambda: grids.processes() == [], 30)
            counted = count(server)
            found = grids.results()
            assert {key: found[key] for key in results} == results
            results = found
        _, stderr = end(grids.start(*arguments, f"limits.usd_grid={cap}"), code=1)
        assert stderr.count(f"limits.usd_grid={cap}: ") == 8
        counted = count(server)
        assert counted > 0.9 * cap  # it was the cap that ended the race
        end(grids.start(*arguments, "limits.usd_grid=10"))
        found = grids.results()
        assert len(found) == 160
        usd, _ = spent(cells(grids.runs))
        assert usd == pytest.approx(sum(result.cost_usd or 0.0 for result in found.values()))
        cut_off = [result for result in found.values() if not result.usage.complete]
        # Of each request that a kill cut off, its bound is in the query's cost for ever.
        assert len(cut_off) >= 3
        assert usd > len(server.requests) * each
        # What was recorded and not yet sent counts as well.
        assert sum(result.usage.requests for result in found.values()) >= len(server.requests)
    assert grids.left() == []
