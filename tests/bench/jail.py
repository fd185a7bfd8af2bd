"""What a jail costs: one command against a bare one, our own share of it, 200 MB of output, 64 attempts at once.

    median ms of 100           child CPU        wall     own CPU
    bare bash -c true               1.58        1.90        0.26
    full_dkgi over bare            14.22       16.33               (must hold: 20)
    shell_only over bare           14.66       17.08               (must hold: 20)
    one_program over bare          47.67       61.08               (must hold: 150, with one start of Python)

`python tests/bench/jail.py [ROUNDS]`; the cases are interleaved, so only their differences count.
Not covered: what a command does in its jail.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.config import load
from dkgi.jail.client import CommandClient
from dkgi.jail.preflight import Hidden
from dkgi.jail.profile import SandboxSpec, find_host
from dkgi.jail.scratch import RunFolder
from dkgi.jail.server import CommandServer
from dkgi.truncate import head_tail

SPEC = SandboxSpec(
    "nsjail", wall_s=600, memory_mb=4096, output_mb=256, file_mb=1024, processes=256, commands_at_once=None
)


def children_ms() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1000


def bare() -> None:
    subprocess.run(["/bin/bash", "-c", "true"], env={}, stdin=subprocess.DEVNULL, check=True)


def measure(run: Callable[[], object]) -> tuple[float, float, float]:
    """Milliseconds: CPU of children, wall, own CPU."""
    child, wall, own = children_ms(), time.perf_counter(), time.process_time()
    run()
    return children_ms() - child, (time.perf_counter() - wall) * 1000, (time.process_time() - own) * 1000


def row(name: str, samples: Sequence[tuple[float, float, float]]) -> list[float]:
    medians = [statistics.median(column) for column in zip(*samples, strict=True)]
    print(f"{name:24}" + "".join(f"{median:12.2f}" for median in medians))
    return medians


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def commands_against_bare(commands: Mapping[str, CommandClient], python: Callable[[], object], rounds: int) -> None:
    """One command of each policy and a bare one in turn; `python` starts Python in an attempt with a start left."""

    def through(client: CommandClient, *argv: str) -> Callable[[], object]:
        return lambda: client.run(argv, timeout_s=60)

    cases: dict[str, Callable[[], object]] = {"bare bash -c true": bare}
    cases |= {f"{name} bash -c true": through(client, "/bin/bash", "-c", "true") for name, client in commands.items()}
    cases |= {
        "full_dkgi python3": through(commands["full_dkgi"], "/usr/bin/python3", "-c", "pass"),
        "one_program python3": python,
    }
    samples: dict[str, list[tuple[float, float, float]]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, run in cases.items():
            samples[name].append(measure(run))
    print(f"{'median ms of ' + str(rounds):24}{'child CPU':>12}{'wall':>12}{'own CPU':>12}")
    medians = {name: row(name, taken) for name, taken in samples.items()}
    for name, base, limit in (
        ("full_dkgi bash -c true", "bare bash -c true", 20),
        ("shell_only bash -c true", "bare bash -c true", 20),
        ("one_program python3", "bare bash -c true", 150),
    ):
        child, wall = (medians[name][column] - medians[base][column] for column in (0, 1))
        print(f"{name.split()[0] + ' over bare':24}{child:12.2f}{wall:12.2f}{'':12}   (must hold: {limit})")


def compare_policies(top: Path, graph: Path, full: CommandClient, rounds: int) -> None:
    """Interleaved medians over the policies."""
    with ExitStack() as stack:
        clients = {"full_dkgi": full}
        for name in ("shell_only", "one_program"):
            folder = stack.enter_context(RunFolder(top / name))
            # As many starts as there are rounds: what one start costs does not depend on how many are left.
            tools = load([f"tools={name}"]).tools
            policy = replace(tools, python_starts=tools.python_starts and rounds)
            server = stack.enter_context(CommandServer(folder.path, SPEC, find_host(policy), Hidden.default()))
            clients[name] = stack.enter_context(server.attempt(folder.new_attempt(graph), Path(os.devnull)))
        python = partial(clients["one_program"].run, ["/bin/bash", "-c", "python3 -c pass"], timeout_s=60)
        commands_against_bare(clients, python, rounds)


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 100
    with tempfile.TemporaryDirectory() as name:
        graph = Path(name, "graph")
        graph.mkdir(mode=0o755)
        (graph / "schema.json").write_text("{}\n")
        with (
            RunFolder(Path(name, "w")) as folder,
            CommandServer(folder.path, SPEC, find_host(), Hidden.default()) as server,
        ):
            with server.attempt(folder.new_attempt(graph), Path(os.devnull)) as commands:
                compare_policies(Path(name), graph, commands, rounds)
                before = peak_mb()
                start = time.perf_counter()
                result = commands.run(
                    ["/bin/bash", "-c", "head -c 209715200 /dev/zero | tr '\\0' 'x' | fold"], timeout_s=300
                )
                text = head_tail(result.output, "/scratch/full_outputs/0001.txt")
                print(
                    f"\n{result.output_bytes / 1e6:.0f} MB of output: {peak_mb() - before:.1f} MB more memory at peak, ",
                    end="",
                )
                print(f"{time.perf_counter() - start:.1f} s, {len(text)} characters shown")
            opened = [measure(lambda: _open(server, folder, graph)) for _ in range(20)]
            print(f"\n{'median ms':24}{'child CPU':>12}{'wall':>12}{'own CPU':>12}")
            row("attempt with self-check", opened)
            before = peak_mb()
            threads = [threading.Thread(target=_open, args=(server, folder, graph, "sleep 1")) for _ in range(64)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            print(f"\n64 attempts at once: {peak_mb() - before:.1f} MB more memory at peak, {peak_mb():.0f} MB in all")


def _open(server: CommandServer, folder: RunFolder, graph: Path, command: str = "") -> None:
    workspace = folder.new_attempt(graph)
    with server.attempt(workspace, Path(os.devnull)) as commands:
        if command:
            commands.run(["/bin/bash", "-c", command], timeout_s=120)
    folder.remove(workspace)


if __name__ == "__main__":
    main()
