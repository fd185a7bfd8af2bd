"""What the gateway adds to a request. `python tests/bench/gateway.py`

                  median ms, wall                     mean ms, CPU of this process
    body KB      exchange   gateway      added      exchange   gateway      added
          4          2.78      5.71       2.93          2.35      5.45       3.11
         50          2.33      4.66       2.32          1.98      4.40       2.41
        500          5.79     12.19       6.40          4.71     10.91       6.21

The same requests go to a loopback server in a process of its own, by the exchange alone and by a session of the gateway,
in turns; the program that asks the gateway is a thread of this process, and its share is counted. Must hold: under 3 ms
added.
Not covered: several sessions at a time.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

import orjson

sys.path.insert(0, str(Path(__file__).parents[2]))

from dkgi.gateway import ModelGateway
from dkgi.meter import Ledger
from tests.bench.exchange import PRICES, TURN, Server, body
from tests.gateways import asking, wired
from tests.models.providers import KEY


def measure(folder: Path, server: Server, kilobytes: int, calls: int) -> None:
    (folder / "a").mkdir(parents=True)
    (folder / "b").mkdir()
    ledger = Ledger(cap_usd=1000.0, prices=PRICES)
    direct, ours = (wired("openai_chat", server.root, folder / name, ledger, seconds=600) for name in "ab")
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    content = body(kilobytes)
    with ModelGateway(folder) as gateway, asking(gateway, ours) as asked:
        for call in range(2 * calls):
            # Each body has one new item, as a conversation has.
            content["messages"].append({"role": "user", "content": str(call)})
            raw, by_us = orjson.dumps(content), bool(call % 2)
            wall, cpu = time.perf_counter(), time.process_time()
            if by_us:
                assert asked.post(raw).status_code == 200
            else:
                direct.forward(raw, {})
            times[by_us].append((1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)))
    walls, cpus = (
        [middle(column) for column in (list(zip(*times[by_us], strict=True))[place] for by_us in (False, True))]
        for place, middle in ((0, statistics.median), (1, statistics.mean))
    )
    print(f"{kilobytes:7}" + "".join(f"{a:14.2f}{b:10.2f}{b - a:11.2f}" for a, b in (walls, cpus)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    print("              median ms, wall                     mean ms, CPU of this process")
    print("body KB      exchange   gateway      added      exchange   gateway      added")
    os.environ["DKGI_TEST_KEY"] = KEY
    with tempfile.TemporaryDirectory() as folder:
        server = Server([TURN], None)
        for kilobytes in (4, 50, 500):
            measure(Path(folder) / str(kilobytes), server, kilobytes, options.calls)
        server.log()


if __name__ == "__main__":
    main()
