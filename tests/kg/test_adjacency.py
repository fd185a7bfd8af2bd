from pathlib import Path

import numpy as np
import pytest

from dkgi.kg.adjacency import IN, OUT, Adjacency, write_adjacency

Links = list[tuple[int, int, int]]


def links(adjacency: Adjacency, node: int) -> Links:
    others, relations, ways = adjacency.of(node)
    return list(zip(others.tolist(), relations.tolist(), ways.tolist(), strict=True))


def test_links_go_both_ways_by_relation_and_then_by_neighbour(tmp_path: Path) -> None:
    rows = [np.array([[2, 1], [0, 2], [0, 1]]), np.array([[1, 0]])]
    write_adjacency(tmp_path, 4, rows)
    adjacency = Adjacency(tmp_path)
    assert links(adjacency, 0) == [(1, 0, OUT), (2, 0, OUT), (1, 1, IN)]
    assert links(adjacency, 1) == [(0, 0, IN), (2, 0, IN), (0, 1, OUT)]
    assert links(adjacency, 2) == [(0, 0, IN), (1, 0, OUT)]
    assert links(adjacency, 3) == []


def test_a_pair_stored_twice_or_in_both_directions_is_one_link(tmp_path: Path) -> None:
    write_adjacency(tmp_path, 3, [np.array([[0, 1], [1, 0], [0, 1], [2, 2]])])
    adjacency = Adjacency(tmp_path)
    assert links(adjacency, 0) == [(1, 0, OUT | IN)]
    assert links(adjacency, 1) == [(0, 0, OUT | IN)]
    assert links(adjacency, 2) == [(2, 0, OUT | IN)]


def test_relations_without_rows_and_graphs_without_relations_have_no_links(tmp_path: Path) -> None:
    none = np.empty((0, 2), dtype=np.int64)
    write_adjacency(tmp_path, 2, [none, np.array([[1, 0]])])
    assert links(Adjacency(tmp_path), 0) == [(1, 1, IN)]
    write_adjacency(tmp_path, 2, [])
    assert links(Adjacency(tmp_path), 1) == []


@pytest.mark.parametrize("seed", range(3))
def test_every_row_is_found_from_both_ends_and_nothing_else_is(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    relations = [rng.integers(0, 50, size=(200, 2)) for _ in range(4)]
    write_adjacency(tmp_path, 50, relations)
    adjacency = Adjacency(tmp_path)
    found = {
        (number, *((node, other) if way == OUT else (other, node)))
        for node in range(50)
        for other, number, ways in links(adjacency, node)
        for way in (OUT, IN)
        if ways & way
    }
    assert found == {(number, s, t) for number, rows in enumerate(relations) for s, t in rows.tolist()}
