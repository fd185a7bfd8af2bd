"""The baseline of dense retrieval: cosine similarity of sentence embeddings, whichever model its YAML names.

    python -m dkgi harness=dense limit=null
    python -m dkgi harness=dense harness.embedding.load=sentence_transformers:SentenceTransformer \\
        '+harness.embedding.arguments={model_name_or_path: all-MiniLM-L6-v2}' harness.embedding.encode=encode

Not covered: approximate search; every document is compared.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from operator import attrgetter
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np

from dkgi.harness.retrieval import Ranking, RetrievalHarness
from dkgi.types import SetupError

BATCH = 4096
"""Documents that are encoded at a time."""


@dataclass(frozen=True, slots=True)
class Embedding:
    """A model of sentence embeddings: any Python object that turns a list of texts into rows of numbers.

    load       `package.module:name.of.function` that returns the object
    arguments  what it is called with; the text `package:NAME` stands for the folder of an installed package
    encode     the object's method
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    load: str
    encode: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def model(self) -> Any:
        """Raises SetupError where there is no such module, function or method."""
        module, _, name = self.load.partition(":")
        try:
            arguments = {key: _folder(value) for key, value in self.arguments.items()}
            model = attrgetter(name)(import_module(module))(**arguments)
            return getattr(model, self.encode)
        except ImportError as error:
            raise SetupError(
                f"harness.embedding.load={self.load}: {error}; install the package that has it (wordllama: dkgi[dense])"
            ) from None
        except (AttributeError, TypeError, ValueError, OSError) as error:
            raise SetupError(f"harness.embedding: {self.load} and {self.encode} do not work: {error}") from None


def _folder(value: Any) -> Any:
    """Where a package lies, if that is meant: a path in the YAML would be another one on each machine."""
    kind, _, name = value.partition(":") if isinstance(value, str) else ("", "", "")
    spec = find_spec(name) if kind == "package" else None
    return Path(spec.origin).parent if spec and spec.origin else value


@dataclass(frozen=True, slots=True)
class DenseSpec:
    """From conf/harness/dense.yaml."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}
    asks_model: ClassVar[bool] = False
    external: ClassVar[bool] = False
    kind: Literal["dense"]
    name: str
    embedding: Embedding


def open_dense(spec: DenseSpec) -> RetrievalHarness:
    return RetrievalHarness(spec.name, partial(rank_by_meaning, spec.embedding))


def rank_by_meaning(embedding: Embedding, documents: Sequence[str]) -> Ranking:
    return _Meaning(embedding, documents)


class _Meaning:
    def __init__(self, embedding: Embedding, documents: Sequence[str]) -> None:
        self._encode = embedding.model()
        batches = [self._rows(documents[start : start + BATCH]) for start in range(0, len(documents), BATCH)]
        self._vectors = np.concatenate(batches)

    def best(self, query: str, k: int) -> list[int]:
        similar = self._vectors @ self._rows([query])[0]
        return [int(place) for place in np.argsort(-similar, kind="stable")[:k]]

    def _rows(self, texts: Sequence[str]) -> np.ndarray[Any, np.dtype[np.float32]]:
        """[texts, dimensions], each of length 1; a text without a known word is all 0."""
        try:
            rows = np.array(self._encode(list(texts)), dtype=np.float32)
        except (TypeError, ValueError) as error:
            raise SetupError(
                f"harness.embedding.encode: it does not turn texts into rows of numbers: {error}"
            ) from None
        if rows.ndim != 2 or len(rows) != len(texts):
            raise SetupError(f"harness.embedding.encode: it gave an array of shape {rows.shape} for {len(texts)} texts")
        lengths = np.linalg.norm(rows, axis=1, keepdims=True)
        rows /= np.where(lengths > 0, lengths, 1)
        return rows
