"""A sentence embedding of our own, for the harness that takes any: how often each letter occurs."""

from collections.abc import Sequence


class Letters:
    def __init__(self, *, alphabet: str) -> None:
        self._alphabet = alphabet

    def vectors(self, texts: Sequence[str]) -> list[list[int]]:
        return [[text.lower().count(letter) for letter in self._alphabet] for text in texts]
