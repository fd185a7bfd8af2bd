"""Which shard a query belongs to."""

import subprocess
import sys
from pathlib import Path

import pytest

from dkgi.config import cell_id, load
from dkgi.shards import WHOLE, Shard
from dkgi.types import SetupError


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_each_query_belongs_to_exactly_one_shard(count: int) -> None:
    shards = [Shard(count, index) for index in range(count)]
    for number in range(500):
        assert sum(shard.holds("hpo", number) for shard in shards) == 1


def test_the_shards_of_a_query_are_the_same_on_every_machine_and_in_every_process() -> None:
    expected = [0, 1, 0, 3, 2, 1, 0, 1, 3, 2]
    program = (
        "from dkgi.shards import Shard\n"
        "print([next(i for i in range(4) if Shard(4, i).holds('hpo', n)) for n in range(10)])"
    )
    for seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parent.parent)},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        assert done.stdout.strip() == str(expected)


def test_shards_are_of_about_the_same_size_and_not_the_same_in_another_data_set() -> None:
    for index in range(4):
        assert 1600 < sum(Shard(4, index).holds("mag", number) for number in range(7108)) < 1950
    assert [Shard(4, 0).holds("mag", n) for n in range(40)] != [Shard(4, 0).holds("hpo", n) for n in range(40)]


def test_only_different_shards_of_one_count_do_not_overlap() -> None:
    assert not Shard(4, 0).overlaps(Shard(4, 1))
    assert Shard(4, 0).overlaps(Shard(4, 0))
    assert Shard(4, 0).overlaps(Shard(3, 1))
    assert WHOLE.overlaps(Shard(4, 1))
    assert Shard(4, 1).overlaps(WHOLE)


@pytest.mark.parametrize("shard", ["{count: 4, index: 4}", "{count: 0, index: 0}", "{count: 4, index: -1}"])
def test_a_shard_that_does_not_exist_is_named_in_one_line(shard: str) -> None:
    with pytest.raises(SetupError, match=r"\Ashard: count=.*the index must be at least 0 and less than the count\Z"):
        load([f"shard={shard}"])


def test_a_shard_is_no_part_of_what_a_cell_is() -> None:
    assert cell_id(load(["shard.count=4", "shard.index=3"]), {}) == cell_id(load([]), {})
