"""Which noun the question is after.

>>> asked_noun(text, nouns, schema)          # "A film that Ada Lund made was shown by which festivals?"
Noun(at=9, types={'festival'}, ...)

Not covered: questions after a number or a yes.
"""

from collections.abc import Sequence

from dkgi.models.heuristic.nouns import Noun
from dkgi.models.heuristic.schema import Schema
from dkgi.models.heuristic.text import Text
from dkgi.models.heuristic.words import ASKING, AUXILIARIES, CHAINED, DEFINITE, INDEFINITE, POLITE, PREPOSITIONS

_MARKS = frozenset([".", ",", ":", ";", "?", "!", "("])
_ENDS = frozenset([".", ":", ";", "?", "!"])


def asked_noun(text: Text, nouns: Sequence[Noun], schema: Schema) -> Noun | None:
    """The noun after a question word or a request; else the first that can be an answer; None where there is none."""
    plain = [noun for noun in nouns if text.word(noun.at) != "what"]
    found = _interrogated(text, plain) or _requested(text, plain) or _questioned(text, plain)
    what = next((noun for noun in nouns if text.word(noun.at) == "what"), None)
    return found or what or _first(nouns, schema)


def _first(nouns: Sequence[Noun], schema: Schema) -> Noun | None:
    """The first noun that can be an answer."""
    fitting = (noun for noun in nouns if noun.types & schema.candidates)
    return next(fitting, None) or next((noun for noun in nouns if not noun.types), None)


def _interrogated(text: Text, nouns: Sequence[Noun]) -> Noun | None:
    """The noun after a question word that opens a clause: "which of the diseases", but not "a disease which".

    Where none follows, the one that the sentence opened with: "Among the diseases of X, which show ...".
    """
    topic = None
    for place, word in enumerate(text.words):
        opening = place - 1 if text.word(place - 1) in PREPOSITIONS else place
        if word not in ("which", "what", "who", "whose") or text.word(opening - 1) not in _MARKS:
            continue
        noun = next((noun for noun in nouns if place < noun.at < place + 8), None)
        if noun is not None and _belongs(text, place, noun, opens=text.word(opening - 1) in _ENDS):
            return noun
        if topic is None and word == "which":
            topic = _topic(text, place, nouns)
    return topic


def _belongs(text: Text, place: int, noun: Noun, *, opens: bool) -> bool:
    """Whether a noun goes with the question word at a place."""
    between = text.between(place, noun.at)
    strays = AUXILIARIES if between[:1] in (["of"], ["one"], ["ones"]) else AUXILIARIES | DEFINITE | INDEFINITE
    return not any(word in strays or not word.isalpha() for word in between) or (opens and between[:1] == ["are"])


def _topic(text: Text, place: int, nouns: Sequence[Noun]) -> Noun | None:
    """The first noun of a sentence that opens with a preposition, before a question word in it."""
    start = place
    while start and text.word(start - 1) not in (".", "?", "!", ";"):
        start -= 1
    if start == place or text.word(start) not in PREPOSITIONS:
        return None
    return next((noun for noun in nouns if start < noun.at < place), None)


def _requested(text: Text, nouns: Sequence[Noun]) -> Noun | None:
    """The object of a request: "find the diseases", "I am looking for genes"; of the last one where they go on."""
    asked = None
    for place, word in enumerate(text.words):
        start = place
        while text.word(start - 1) in POLITE:
            start -= 1
        going_on = word in CHAINED and text.word(start - 1) in ("and", ",", "then", ".", ";")
        opening = asked is None and word in ASKING and text.word(place + 1) != "at" and text.word(start - 1) in _MARKS
        if not (opening or going_on):
            continue
        noun = next((noun for noun in nouns if noun.at > place), None)
        if noun is not None and text.gap(place, noun.at) < 1.0 and (opening or noun.types):
            asked = noun
    return asked


def _questioned(text: Text, nouns: Sequence[Noun]) -> Noun | None:
    """The noun right after a question word anywhere: "... is frequent in which diseases?"."""
    return next((noun for noun in nouns if text.word(noun.at - 1) in ("which", "what")), None)
