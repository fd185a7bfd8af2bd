"""A library of books as an export: small enough to know every answer by heart."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dkgi.graph.export import NodeType, RelationType, SourceGraph, write_export
from dkgi.kg.index import Index, open_index
from dkgi.kg.text import IndexSpec

SPEC = IndexSpec(names=("title", "name", "also.text"), summary=("plot",))

BOOKS: list[tuple[int, dict[str, Any]]] = [
    (0, {"title": "The Long Boat", "plot": "A boat crosses a lake of ice. The lake wins.", "year": -1}),
    (
        0,
        {"title": "Harbour Lights", "also": [{"text": "Lichter im Hafen"}], "plot": "Two keepers quarrel by the lake."},
    ),
    (0, {"title": "Winter in Bremen", "plot": -1}),
    (1, {"name": "Ada  Lund\n", "plot": "Wrote of boats, lakes and a long winter."}),
    (1, {"name": "Bo Ek"}),
    (0, {"title": -1, "plot": None}),
]


def library(**changes: Any) -> SourceGraph:
    fields: dict[str, Any] = {
        "name": "library",
        "version": "1",
        "node_types": (NodeType("book", "A book.", True), NodeType("person", "A human being.", False)),
        "relation_types": (
            RelationType("wrote", "The source wrote the target.", ["person"], ["book"]),
            RelationType("cites", "The source cites the target.", ["book"], ["book"]),
            RelationType("burnt", "The source burnt the target.", ["person"], ["book"]),
        ),
        "nodes": BOOKS,
        "edges": [
            np.array([[4, 1], [3, 0], [3, 2], [3, 0]]),
            np.array([[0, 1], [1, 0], [2, 0], [2, 2]]),
            np.empty((0, 2), dtype=np.int64),
        ],
        "notes": (),
        "terms_of_use": "Free.",
    }
    return SourceGraph(**fields | changes)


@pytest.fixture
def make_library() -> Callable[..., SourceGraph]:
    return library


@pytest.fixture
def export(tmp_path: Path) -> Path:
    write_export(library(), tmp_path / "graphs" / "library-1")
    return tmp_path / "graphs" / "library-1"


@pytest.fixture
def index(export: Path, tmp_path: Path) -> Index:
    return open_index(export, SPEC, tmp_path)


@pytest.fixture
def spec() -> IndexSpec:
    return SPEC


@pytest.fixture
def python() -> str:
    return sys.executable
