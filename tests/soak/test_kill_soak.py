"""A cell that is killed again and again, at instants that no one chose, ends as if nothing had happened."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from dkgi.store import cells
from dkgi.types import QueryResult

KILLS = 25
QUERIES = 60


def test_25_kills_at_random_instants_lose_and_double_nothing(data: Path, tmp_path: Path) -> None:
    look = {"calls": [{"name": "bash", "arguments": {"command": "sleep 0.1; ls"}}], "usage": {"output": 10}}
    answer = {"text": '{"node_ids": [1, 2]}', "usage": {"output": 1}}
    replies = tmp_path / "replies.json"
    replies.write_text(json.dumps({"*": [[look, look, answer]]}))
    command = [
        sys.executable,
        "-m",
        "dkgi",
        "model=scripted",
        f"model.replies={replies}",
        f"limit={QUERIES}",
        "threads=2",
    ]
    environment = {**os.environ, "DKGI_DATA": str(data), "DKGI_RUNS": str(tmp_path / "runs")}
    moments = random.Random(7)
    acknowledged: dict[int, QueryResult] = {}
    for _ in range(KILLS):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment)
        time.sleep(moments.uniform(0.5, 6.0))
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
        for cell in cells(tmp_path / "runs"):
            results = {result.number: result for result in cell.results()}
            assert {number: results.get(number) for number in acknowledged} == acknowledged
            acknowledged = results
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (cell,) = cells(tmp_path / "runs")
    results = {result.number: result for result in cell.results()}
    assert {number: results[number] for number in acknowledged} == acknowledged
    assert len(results) == QUERIES
    spent = sum(step.usage.output for n in results for a in cell.attempts(n, 0) for step in a.steps if step.usage)
    assert sum(result.usage.output for result in results.values()) == spent
    assert list((data / "w").iterdir()) == []
    assert logged(tmp_path / "runs") == {"FINISHED": QUERIES + 1}


def logged(runs: Path) -> dict[str, int]:
    """How many runs MLflow has, by status, deleted ones left out."""
    program = f"""
import collections, json
from mlflow.tracking import MlflowClient
client = MlflowClient("sqlite:///{runs}/mlflow.db")
experiment = client.get_experiment_by_name("dkgi").experiment_id
print(json.dumps(collections.Counter(r.info.status for r in client.search_runs([experiment], max_results=5000))))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts
