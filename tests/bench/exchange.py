"""What the exchange adds to a call, and how well it fills a provider. `python tests/bench/exchange.py`

                      median ms, wall                  median ms, CPU of the client
    body KB      plain   exchange      added        plain   exchange      added
          4       1.17       1.59       0.42         0.79       1.22       0.43
         50       1.48       2.09       0.61         1.09       1.72       0.63
        500       4.31       7.27       2.95         3.15       5.43       2.28

    in flight   capacity   of ideal, whole   of ideal after 30 s   429 after 30 s   limit at end
           64         64           100.0%               100.0%            0.00%             65
          128         64            85.9%                96.3%            0.25%             60

On 2 cores with little else to do. Both parts speak to a loopback server in a process of its own. The first sends the same requests with and without the
exchange, in turns; the second answers after one second, and 429 beyond 64 at a time (must hold: 90 % and 2 %).
Not covered: real providers, TLS.
"""

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx2

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.exchange import Exchange, Provider
from dkgi.meter import Ledger
from dkgi.types import ModelError, Place, Prices
from tests.loopback import Loopback, Turn

PRICES = Prices(input=0.1, cached_input=0.01, cache_write=0.125, output=0.5)
CAPACITY, LATENCY_S, SETTLED_S = 64, 1.0, 30.0
TURN = Turn(text="hello", calls=[("bash", '{"command": "rg -n seizure nodes"}')], input=12_000, cached=11_000)


def serve(turns: Sequence[Turn], capacity: int | None, pipe: Connection) -> None:
    """A server in a process of its own; sends its address, and its log when asked."""
    with Loopback(turns, capacity=capacity, keep=False) as server:
        pipe.send(server.root)
        pipe.recv()
        pipe.send(server.log)


class Server:
    def __init__(self, turns: Sequence[Turn], capacity: int | None) -> None:
        self.pipe, other = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(turns, capacity, other), daemon=True)
        self.process.start()
        self.root: str = self.pipe.recv()

    def log(self) -> list[tuple[float, int]]:
        self.pipe.send(None)
        log: list[tuple[float, int]] = self.pipe.recv()
        self.process.join()
        return log


def place(folder: Path, query: int, ledger: Ledger, seconds: float) -> Place:
    (folder / str(query)).mkdir()
    return Place(query, 0, 1, time.monotonic() + seconds, folder / str(query), ledger.account(cap_usd=None))


def body(kilobytes: int) -> dict[str, Any]:
    items = [{"role": "user", "content": f"{n} " + "a line of a tool's output " * 40} for n in range(kilobytes)]
    return {"model": "m", "stream": True, "stream_options": {"include_usage": True}, "messages": items}


def added(folder: Path, calls: int) -> None:
    """Milliseconds that the exchange adds to a call, by the size of its body."""
    server = Server([TURN], None)
    exchange = Exchange(Provider("openai_chat", None, 4096))
    print("                  median ms, wall                  median ms, CPU of the client")
    print("body KB      plain   exchange      added        plain   exchange      added")
    for number, kilobytes in enumerate((4, 50, 500)):
        ledger = Ledger(cap_usd=1000.0, prices=PRICES)
        transport = exchange.transport(place(folder, number, ledger, 600))
        times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
        with httpx2.Client() as plain, httpx2.Client(transport=transport) as ours:
            for call in range(2 * calls):
                # Each body has one new item, as a conversation has.
                content = body(kilobytes)
                content["messages"].append({"role": "user", "content": str(call)})
                wall, cpu = time.perf_counter(), time.thread_time()
                (ours if call % 2 else plain).post(f"{server.root}/v1/chat/completions", json=content).read()
                times[bool(call % 2)].append((time.perf_counter() - wall, time.thread_time() - cpu))
        (wall, cpu), (our_wall, our_cpu) = (
            [1000 * statistics.median(column) for column in zip(*times[ours], strict=True)] for ours in (False, True)
        )
        figures = (wall, our_wall, our_wall - wall, cpu, our_cpu, our_cpu - cpu)
        print(f"{kilobytes:7}" + "".join(f"{figure:11.2f}" for figure in figures))
    server.log()


def filled(folder: Path, threads: int, seconds: float) -> None:
    """Requests a second and the share of 429 with more and fewer threads than the provider has places."""
    server = Server([Turn(text="hello", delay_s=LATENCY_S)], CAPACITY)
    exchange = Exchange(Provider("openai_chat", None, 4096))
    ledger = Ledger(cap_usd=1000.0, prices=PRICES)
    started = time.monotonic()

    def work(number: int) -> None:
        transport = exchange.transport(place(folder, 1000 * threads + number, ledger, seconds))
        try:
            with httpx2.Client(transport=transport) as client:
                while time.monotonic() < started + seconds - 2:
                    client.post(f"{server.root}/v1/chat/completions", json=body(4))
        except ModelError as error:
            print(f"  thread {number}: {error.kind}: {error}")

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    log = [(at - started, status) for at, status in server.log()]
    end = seconds - 2
    answered = sum(status == 200 for at, status in log if at <= end)
    late = [status for at, status in log if at > SETTLED_S]
    ideal = min(threads, CAPACITY) / LATENCY_S * (end - LATENCY_S)
    settled = sum(status == 200 for at, status in log if SETTLED_S < at <= end) / (end - SETTLED_S)
    refused = sum(status == 429 for status in late) / max(1, len(late))
    print(
        f"{threads:9}   {CAPACITY:8}   {answered / ideal:14.1%}   {settled / min(threads, CAPACITY):18.1%}   "
        f"{refused:14.2%}   {exchange.line.limiter.limit:5}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=62.0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        added(Path(folder), options.calls)
        print("\nin flight   capacity   of ideal, whole   of ideal after 30 s   429 after 30 s   limit at end")
        for threads in (64, 128):
            filled(Path(folder), threads, options.seconds)


if __name__ == "__main__":
    main()
