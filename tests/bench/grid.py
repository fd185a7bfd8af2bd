"""How well a grid fills a provider, and what it weighs. `python tests/bench/grid.py`

    256 queries of 10 requests, 64 in flight over 2 workers, 1 s a request
    policy      delays    of ideal, whole   of ideal after 15 s   memory MB (parent, workers)
    graph_tools even               89.3%                 92.9%         659 (468, 94, 97)
    graph_tools uneven             95.4%                 93.5%         641 (454, 93, 94)
    full_dkgi   even               84.9%                 87.4%         456 (303, 77, 76)
    full_dkgi   uneven             92.5%                 90.0%         453 (302, 76, 75)

On 2 cores with little else to do; from run to run the figures move by a point or two. The loopback server is a process of
its own; each reply but the last asks for the schema of the graph, or for a command (`full_dkgi`), which takes a jail.
The whole is what `ideal_s` says over the time from the first request to the last reply. With even delays all queries
end at the same moments, when 64 places are opened at once: about a second of two cores, three times. After 15 s, as
long as all are in flight, requests a second over those in flight. Memory is the most of proportional shares (PSS).
Not covered: real providers, TLS.
"""

import argparse
import heapq
import itertools
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.bench.exchange import Server
from tests.loopback import Turn

QUERIES, REQUESTS, IN_FLIGHT, SETTLED_S = 256, 10, 64, 15.0
CALLS = {"graph_tools": ("get_schema", "{}"), "full_dkgi": ("bash", '{"command": "head -c 300 schema.json"}')}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tools", default=",".join(CALLS))
    arguments = parser.parse_args()
    print(f"{QUERIES} queries of {REQUESTS} requests, {IN_FLIGHT} in flight over 2 workers, 1 s a request")
    print("policy      delays    of ideal, whole   of ideal after 15 s   memory MB (parent, workers)")
    for tools in arguments.tools.split(","):
        for name, delays in (("even", [1.0]), ("uneven", uneven())):
            measure(tools, delays, name)


def measure(tools: str, delays: Sequence[float], name: str) -> None:
    server = Server([Turn(calls=[CALLS[tools]], delay_s=delay) for delay in delays], capacity=None)
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "dkgi", "-m", "model=local", f"model.base_url={server.root}/v1"]
        # Two cells: two settings of what no model sees. A cell's queries end by the turns that they may take.
        command += [f"tools={tools}", "prompt=final,earlier", f"limit={QUERIES // 2}", f"threads={IN_FLIGHT // 2}"]
        command += [f"limits.max_turns={REQUESTS}", "limits.attempts=1", "hydra.launcher.n_jobs=2"]
        process = subprocess.Popen(
            command, env={**os.environ, "DKGI_RUNS": folder}, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
        )
        memory = weigh(process)
        stderr = process.communicate()[1].decode()
    times = sorted(at for at, _ in server.log())
    if len(times) != QUERIES * REQUESTS:
        raise SystemExit(f"{len(times)} requests instead of {QUERIES * REQUESTS}\n{stderr}")
    first = times[0] - delays[0]
    whole = ideal_s(delays) / (times[-1] - first)
    # What is in flight at the end is less than all, whoever runs it.
    settled = [at for at in times if first + SETTLED_S <= at <= times[-IN_FLIGHT]]
    rate = len(settled) / (settled[-1] - settled[0]) / IN_FLIGHT
    parent, *others = memory
    print(
        f"{tools:<12}{name:<7}{whole:>17.1%}{rate:>22.1%}{sum(memory):>12.0f} ({parent:.0f}, {', '.join(f'{m:.0f}' for m in others)})"
    )
    server.process.terminate()


def ideal_s(delays: Sequence[float]) -> float:
    """Seconds from the first request to the last reply if nothing but the provider took time: whoever gets a reply sends
    the next request at once, and a request takes the next delay. With uneven ones not all end together even so."""
    delay = itertools.cycle(delays)
    replies = [(next(delay), 1, slot % 2) for slot in range(IN_FLIGHT)]  # when, how many of its query, of which cell
    waiting = [(QUERIES - IN_FLIGHT) // 2] * 2
    heapq.heapify(replies)
    now = 0.0
    while replies:
        now, done, cell = heapq.heappop(replies)
        if done == REQUESTS:
            if not waiting[cell]:
                continue
            waiting[cell] -= 1
            done = 0
        heapq.heappush(replies, (now + next(delay), done + 1, cell))
    return now


def uneven() -> list[float]:
    """Seconds of each request, from half a second to one and a half, one second in the mean."""
    drawn = random.Random(1)
    return [drawn.uniform(0.5, 1.5) for _ in range(QUERIES * REQUESTS)]


def weigh(process: "subprocess.Popen[bytes]") -> list[float]:
    """The most that parent and workers took together, MB each, until the process ends."""
    most = [0.0]
    while process.poll() is None:
        time.sleep(1.0)
        try:
            parent = psutil.Process(process.pid)
            ours = [
                parent,
                *(child for child in parent.children(recursive=True) if "dkgi.worker.run" in child.cmdline()),
            ]
            taken = [one.memory_full_info().pss / 1e6 for one in ours if one.name() != "nsjail"]
        except psutil.Error:
            continue
        if sum(taken) > sum(most):
            most = taken
    return most


if __name__ == "__main__":
    main()
