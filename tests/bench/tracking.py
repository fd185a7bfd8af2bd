"""What logging one query to MLflow costs, without and with a trace: `python tests/bench/tracking.py`.

    log                  ms CPU
    empty run              12.0
    query                  25.2
    query with trace       64.2

A query has 10 turns with outputs of 18 KB. The empty run is what any log of runs pays for: MLflow's client making and
ending one in the same database. By turns within one process, on a busy machine.
Not covered: waiting for the disk.
"""

import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi import tracking
from dkgi.types import QueryResult, Score, Step, Usage

QUERIES = 60
SPENT = Usage(input_fresh=12_000, cache_read=108_000, output=2_200, requests=10)
SCORE = Score(1.0, 1.0, 1.0, 1.0, 1.0, 1.0)


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = Path(folder)
        steps = trajectory(10)
        path = runs / "steps.jsonl"
        path.write_text("".join(json.dumps({"attempt": 1, "step": asdict(step)}) + "\n" for step in steps))
        began = time.process_time()
        client, experiment = tracking.connect(runs)
        print(f"importing MLflow and making the database: {time.process_time() - began:.1f} s CPU, once")

        def empty(number: int) -> None:
            client.set_terminated(client.create_run(experiment).info.run_id, "FINISHED")

        plain, traced = (logger(runs, path, steps, traces=traces) for traces in (False, True))
        measured = measure({"empty run": empty, "query": plain, "query with trace": traced})
        print(f"{'log':<18}{'ms CPU':>9}")
        for name, milliseconds in measured.items():
            print(f"{name:<18}{milliseconds:9.1f}")
        size = sum(file.stat().st_size for file in runs.glob("mlflow.db*"))
        print(f"database after {3 * QUERIES} runs, {QUERIES} traces: {size / 1e6:.1f} MB")


def measure(ways: dict[str, Callable[[int], None]]) -> dict[str, float]:
    """Milliseconds of CPU a query, by turns in one process, the first round left out."""
    spent = dict.fromkeys(ways, 0.0)
    for number in range(QUERIES + 1):
        for name, log in ways.items():
            began = time.process_time()
            log(number)
            spent[name] += (time.process_time() - began) * (number > 0)
    return {name: 1000 * seconds / QUERIES for name, seconds in spent.items()}


def logger(runs: Path, path: Path, steps: list[Step], *, traces: bool) -> Callable[[int], None]:
    prices = {"input": 0.1, "cached_input": 0.01, "cache_write": 0.1, "output": 0.5}
    axes = {axis: axis for axis in tracking.AXES}
    cell = tracking.CellInfo(f"cell{traces}", axes, {"model": {"prices": prices}})
    tracker = tracking.open(cell, runs, traces=traces)

    def log(number: int) -> None:
        result = QueryResult(
            cell.cell, number, 0, "hpo", "test", False, "Which?", "scored", ("answered",), 0, "{}", (), SPENT, SPENT,
            0.003, 273.0, 10, 9, 0, 1000.0,
        )  # fmt: skip
        tracker.log(result, SCORE, path, lambda: steps)

    return log


def trajectory(turns: int) -> list[Step]:
    steps = [Step("user", "Which genes?" * 300, time=1000.0)]
    for turn in range(turns - 1):
        call, now = f"call{turn}", 1000.0 + 2 * turn
        arguments = json.dumps({"command": "python3 - <<'E'\nprint(1)\nE"})
        steps.append(Step("tool_call", arguments, "bash", call, time=now + 1, usage=SPENT))
        steps.append(Step("tool_result", "node 17\tGene of some name\n" * 720, "bash", call, False, time=now + 2))
    return [*steps, Step("assistant", '{"node_ids": [17]}', time=1100.0, usage=SPENT)]


if __name__ == "__main__":
    main()
