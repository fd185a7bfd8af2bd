"""The same ranking by tantivy, a search library in Rust: `engine: tantivy` in conf/dataset; needs dkgi[tantivy].

>>> TantivyBm25(folder).best(["ataxia", "gait"], 2)                        # doctest: +SKIP
[(11, 18.93), (1402, 17.2)]

It gets the words of our own tokenizer and has the same formula, k1, b and idf. Scores differ where a text is longer than 40
words, since tantivy keeps its length in one byte, and nodes of equal score at the end of a list may be others.
Not covered: which nodes have a word; bm25.py tells that.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dkgi.types import SetupError

WRITER_BYTES = 256_000_000
"""Memory of the writer."""


class TantivyWriter:
    """Takes the words of node 0, 1, 2, ... and writes the index into `folder`."""

    def __init__(self, folder: Path) -> None:
        tantivy = import_tantivy()
        folder.mkdir()
        self._document = tantivy.Document
        index = tantivy.Index(_schema(tantivy), str(folder))
        # One thread writes, so that nodes of equal score keep their order within a segment.
        self._writer = index.writer(heap_size=WRITER_BYTES, num_threads=1)
        self._node = 0

    def add(self, words: Sequence[str]) -> None:
        document = self._document()
        document.add_unsigned("node", self._node)
        document.add_text("words", " ".join(words))
        self._writer.add_document(document)
        self._node += 1

    def write(self) -> None:
        self._writer.commit()
        self._writer.wait_merging_threads()


class TantivyBm25:
    """The index in `folder`. Thread-safe."""

    def __init__(self, folder: Path) -> None:
        self._tantivy = import_tantivy()
        self._schema = _schema(self._tantivy)
        self._searcher = self._tantivy.Index.open(str(folder)).searcher()

    def best(self, words: Sequence[str], k: int) -> list[tuple[int, float]]:
        """At most k nodes with their scores, best first."""
        query, occur = self._tantivy.Query, self._tantivy.Occur.Should
        # A repeated word is a repeated clause: a boosted one would cost the engine its way of skipping long lists.
        terms = [(occur, query.term_query(self._schema, "words", word, "freq")) for word in words]
        hits = self._searcher.search(query.boolean_query(terms), k, count=False).hits
        nodes = self._searcher.fast_field_values("node", [address for _, address in hits])
        return sorted(zip(nodes, (score for score, _ in hits), strict=True), key=lambda hit: (-hit[1], hit[0]))


def import_tantivy() -> Any:
    """The module. SetupError where it is not installed."""
    try:
        import tantivy
    except ImportError:
        raise SetupError(
            "dataset.index.engine=tantivy: the package tantivy is not installed; pip install 'dkgi[tantivy]', "
            "or set dataset.index.engine=csr"
        ) from None
    return tantivy


def _schema(tantivy: Any) -> Any:
    builder = tantivy.SchemaBuilder()
    builder.add_unsigned_field("node", fast=True)
    # Words are cut apart already; positions are of no use to a ranking by words.
    builder.add_text_field("words", tokenizer_name="whitespace", index_option="freq")
    return builder.build()
