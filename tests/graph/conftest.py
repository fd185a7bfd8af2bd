"""A tiny graph, the slice of hpo and the whole of it, each exported once where tests only read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkgi.graph.export import NodeType, RelationType, SourceGraph, write_export
from dkgi.graph.sources import hpo

NONE = np.empty((0, 2), dtype=np.int64)
"""A relation without rows."""
SLICE = Path(__file__).parents[1] / "data" / "hpo_slice"


def tiny_graph(**changes: Any) -> SourceGraph:
    """Three people and two towns; `changes` replace fields."""
    fields: dict[str, Any] = {
        "name": "tiny",
        "version": "1",
        "node_types": (NodeType("person", "A human being.", True), NodeType("town", "A place.", False)),
        "relation_types": (
            RelationType("knows", "The source knows the target.", ["person"], ["person"]),
            RelationType("lives_in", "The source has its home in the target.", ["person"], ["town"]),
        ),
        "nodes": [
            (0, {"name": "Ada", "height": 1.7, "tags": ("a", "b")}),
            (0, {"name": 'Bo\u00eb \u2028 "x"\n', "height": float("nan"), "tags": []}),
            (1, {"name": "Ulm", "size": {"people": 128928, "area": float("-inf")}}),
            (0, {"name": "Cy", "height": None, "tags": [1, [2.5, float("inf")]]}),
            (1, {"name": "Ys"}),
        ],
        "edges": [np.array([[3, 0], [0, 1], [3, 0]]), np.array([[1, 2]])],
        "notes": ("Nobody knows everybody.",),
        "terms_of_use": "Free.",
        "dropped": {"towns that drowned": 1},
    }
    return SourceGraph(**fields | changes)


@pytest.fixture
def make_graph() -> Callable[..., SourceGraph]:
    return tiny_graph


@pytest.fixture
def tiny_export(tmp_path: Path) -> Path:
    write_export(tiny_graph(), tmp_path / "graphs" / "tiny-1")
    return tmp_path / "graphs" / "tiny-1"


@pytest.fixture(scope="session")
def slice_folder() -> Path:
    return SLICE


@pytest.fixture(scope="session")
def slice_graph() -> SourceGraph:
    return hpo.from_files(SLICE)


@pytest.fixture(scope="session")
def slice_export(slice_graph: SourceGraph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("graphs") / "slice"
    write_export(slice_graph, folder)
    return folder


@pytest.fixture(scope="session")
def whole_export(data: Path) -> Path:
    return data / "graphs" / "hpo-4.0.0"
