"""What the heuristic knows of English: tokens, stems, and the words that carry a question's logic.

>>> [token.word for token in tokenize("Which films, if any, weren't silent?")]
['which', 'films', ',', 'if', 'any', ',', 'were', "n't", 'silent', '?']
>>> stem("occasionally"), stem("occasional"), stem("children")
('occasion', 'occasion', 'child')

General words only: nothing here belongs to a graph or to a subject.
Not covered: what the words of a graph's schema mean (schema.py).
"""

import re
from dataclasses import dataclass


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


STOP = _set(
    """a about after all also always an and any are as at be because been before being between both but by can could did
    do does doing done each either else etc every few for from further given had has have having he her here him his how
    i if in into is it its itself just least let like made make many may me might more most much must my need no none nor
    not now of off on once one ones only or other others our out over own per please rather same shall she should since
    so some such than that the their them themselves then there these they this those through to together too until up
    upon us was we well were what when where whether which while who whom whose why will with within without would
    yes yet you your"""
)
AUXILIARIES = _set(
    "is are was were be been being has have had do does did can could may might must shall should will would"
)
SINGULAR_VERBS = _set("is has does was makes carries lacks omits includes exhibits features shows lists begins shares")
PLURAL_VERBS = _set("are have do were make carry lack omit include exhibit feature show list begin share")
PREPOSITIONS = _set("in for of with under on by from to at among within")

COPULAS = _set("is are as of being was recorded given stated documented listed noted follows : the")
PREDICATING = _set("as is are was")
INTRODUCING = _set("a an the our my this one some")
CONJUNCTIONS = _set("and or but while yet although though whereas")
RELATIVES = _set("that which who whose where whom")

INDEFINITE = _set("a an some any one certain every each single particular")
DEFINITE = _set("the that this these those such said its their his her")
OTHER = _set("other others another different further remaining rest else additional")
POSSESSIVE = _set("its their his her whose")
PLURAL_PRONOUNS = _set("them they those these ones themselves")
PRONOUNS = _set("one them they themselves those these it ones former latter any")
ANYTHING = _set("something anything everything whatever")
"""Nouns for a node of any type that was not mentioned before."""
GENERIC = _set("term ent node item thing entry entrie object element")
"""Stems of nouns that can stand for a node of any type."""

ABOUT_RECORDS = _set("definition description text record word phrase mention list hierarch number referenc count")
"""Stems of nouns that speak of what is written about nodes."""

ASKING = _set(
    """find list name give show identify return tell search need want looking interested get provide report determine
    retrieve seek wanted enumerate select pick state mention collect extract compile gather look supply output fetch"""
)
"""Verbs whose object is what the question is after."""

POLITE = _set("i we me to please am are would like also can you then ' m")
"""What may stand before such a verb."""

PERSONAL = _set("i we patient case child family")
"""What marks a remark about who asks."""

ANY = _set("any whatever regardless irrespective whichever every all")
REMAINING = _set("left remaining over")
"""Words of "what is left"."""
CHAINED = _set("find identify return report retrieve give extract list name collect get output enumerate determine")
"""Such verbs that go on with a request: "find the films, then return their makers"."""
RECORDS = _set("list profile entr entry annotation record picture set spectrum catalogue level side description row")
"""Nouns for what holds the facts about a node; the noun before one is no node: "its feature list"."""
CLASSES = _set("class categor label level grad rank rating")
"""Nouns for a degree: "in the class frequent"."""
DEGREES = _set("very extremely highly")
"""Words that make another word out of the adjective that follows."""

NEGATIONS = (
    ("in", "the", "absence", "of"), ("in", "absence", "of"), ("leaving", "aside"), ("leave", "aside"), ("setting", "aside"),
    ("exception", "of"),
    ("other", "than"), ("rather", "than"), ("apart", "from"), ("aside", "from"), ("instead", "of"), ("free", "of"),
    ("leave", "out"), ("leaving", "out"), ("left", "out"), ("silent",), ("not",), ("n't",), ("no",), ("without",),
    ("never",), ("nor",), ("neither",), ("cannot",), ("none",), ("except",), ("excepting",), ("excluding",),
    ("exclude",), ("excludes",), ("omit",), ("omitting",), ("skip",), ("skipping",), ("discard",), ("discarding",),
    ("lack",), ("lacks",), ("lacking",), ("besides",), ("unless",), ("nowhere",), ("minus",), ("fail",), ("fails",),
    ("ignore",), ("ignoring",), ("drop",), ("barring",), ("save", "for"), ("remove",), ("removing",), ("avoid",),
    ("avoids",), ("avoiding",), ("unmentioned",), ("unrecorded",), ("missing",), ("sans",), ("devoid",), ("omits",),
    ("omitted",), ("throw", "out"), ("throwing", "out"), ("filter", "out"), ("disregard",), ("disregarding",),
    ("passed", "over"), ("disqualify",), ("disqualifies",), ("aside",), ("subtract",), ("subtracting",), ("reject",),
    ("rejecting",), ("eliminate",), ("eliminating",), ("dismiss",), ("unlisted",), ("unaccompanied",), ("removed",),
    ("outside",), ("but", "for"), ("rule", "out"), ("rules", "out"), ("strike", "out"), ("cross", "out"), ("set", "aside"),
)  # fmt: skip
SEPARATING = _set("than from except excepting excluding besides skip skipping out of but not ignore ignoring discard")
"""What stands before a name that is only set apart: "other than X"."""
EXCEPTING = frozenset(SEPARATING - {"of", "than", "not", "from"}) | _set("minus disregard disregarding discard exclude")
"""What stands before a noun for those of the nodes asked for that do not count: "excluding any film"."""
CONDITIONS = _set("if whenever should once")
"""What opens the case in which something is refused."""
REFUSALS = (("no", "use"), ("no", "interest"), ("not", "want"), ("not", "wanted"), ("not", "count"), ("not", "qualify"),
            ("strike", "it", "out"), ("leave", "it", "out"), ("rule", "it", "out"), ("drop", "it"), ("discard", "it"),
            ("it", "is", "out"), ("it", "goes"), ("has", "to", "go"), ("must", "go"), ("does", "not", "interest"), ("remove", "it"), ("exclude", "it"),
            ("skip", "it"), ("is", "disqualified"), ("is", "excluded"), ("is", "out"), ("drops", "out"))  # fmt: skip
"""How the refusal then goes on: "if X is on record, leave it out"."""
REMARKS = (("some", "of", "these"), ("some", "of", "them"), ("some", "of", "those"), ("need", "not"), ("not", "need"),
           ("not", "have", "to"), ("not", "always"), ("not", "necessarily"), ("without", "every"))  # fmt: skip
"""What makes a statement one that asks for nothing."""
SHARING = (("in", "common"), ("common", "to"))
NOT_NEGATIONS = (("not", "only"), ("not", "just"), ("or", "not"), ("no", "matter"), ("not", "necessarily"))
ABSENCES = (("not", "to"), ("absent",), ("absence",), ("excluded",), ("ruled", "out"), ("negative",), ("exclusion",),
            ("negated",), ("negatively",), ("negation",),)  # fmt: skip
"""Words for a recorded absence, where a graph records any; plain negations elsewhere."""
DENIALS = (("not", "present"), ("not", "occurring"))
"""Phrases for the same whose words mean something else elsewhere."""
EXPLICIT = _set(
    """explicitly expressly specifically explicit express stated said documented noted marked flagged reported recorded
    known declared annotated labelled labeled described"""
)
"""What makes a recorded absence of the negation that follows: "recorded as lacking"."""
LINKING = _set("as to be being is that it they for which")
"""What may stand between the two."""

OPPOSITES = (("above", "below"), ("above", "under"), ("above", "beneath"), ("above", "underneath"), ("parent", "child"),
             ("broader", "narrower"), ("general", "specific"), ("broad", "narrow"), ("superclass", "subclass"),
             ("supertype", "subtype"), ("ancestor", "descendant"), ("upper", "lower"), ("higher", "lower"))  # fmt: skip
SYNONYMS = tuple(map(_set, (
    "disease disorder illness condition syndrome malady ailment sickness diagnosis",
    "feature sign finding symptom manifestation characteristic trait abnormality anomaly aberration phenotype",
    "gene locus",
    "film movie picture",
    "person human individual",
    "child descendant specialization specialisation offspring subtype subclass lower",
    "parent ancestor superclass generalization generalisation upper",
)))  # fmt: skip
"""Nouns that a question may use for each other; a graph knows some of them."""
SIBLINGS = _set("sibl sister brother")
"""Stems of nouns for nodes below the same parent."""
PLACES = _set("above below under beneath underneath")
COMPLETING = PLACES | _set("of as with to")
LOOSE_ROLES = _set("kind form type sort")
"""Nouns that name a place in a hierarchy only when "of" follows them."""

_TOKEN = re.compile(r"i\.e\.|n't\b|[^\W_]+?(?=n't\b)|[^\W_]+|[^\w\s]")
_IRREGULAR = {"children": "child", "criteria": "criterion", "loci": "locus", "diagnoses": "diagnosis", "people": "person", "men": "man", "women": "woman"}  # fmt: skip
_SUFFIXES = ("ing", "ed", "ity", "al", "ic")


@dataclass(frozen=True, slots=True)
class Token:
    """One word or mark; `start` and `end` are places in the text."""

    word: str
    start: int
    end: int


def tokenize(text: str) -> list[Token]:
    return [Token(found[0].casefold(), found.start(), found.end()) for found in _TOKEN.finditer(text)]


def stem(word: str) -> str:
    """`word` without its inflection; at least three letters stay."""
    word = _IRREGULAR.get(word, word)
    if len(word) > 3 and word.endswith("s") and word[-2] not in "sui":
        word = word[:-1]
    if len(word) > 5:
        word = f"{word[:-2]}y" if word.endswith("ie") else word.removesuffix("ly")
    suffix = next((suffix for suffix in _SUFFIXES if word.endswith(suffix) and len(word) - len(suffix) > 2), "")
    word = word.removesuffix(suffix)
    for ending in ("e", "i", "y"):
        if len(word) > 3:
            word = word.removesuffix(ending)
    return word


def noun_key(word: str) -> str:
    """The stem of a noun; words in -ing and -ed keep their end, so that "featuring" is no "feature"."""
    single = word[:-1] if is_plural(word) and word not in _IRREGULAR else word
    return single if single.endswith(("ing", "ed")) else stem(word)


def is_plural(word: str) -> bool:
    return word in _IRREGULAR or (word.endswith("s") and not word.endswith("ss"))


def starts_with(words: list[str], at: int, phrases: tuple[tuple[str, ...], ...]) -> tuple[str, ...] | None:
    """The first of `phrases` that stands in `words` at place `at`."""
    return next((phrase for phrase in phrases if tuple(words[at : at + len(phrase)]) == phrase), None)
