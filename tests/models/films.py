"""A small invented graph about films, and questions about it: nothing in it reminds of the graphs that we ship.

0 The Long Boat ... 5 A Clock for Anna | 6 Ada Lund ... 9 Dario Vint | 10 Drama ... 13 Comedy | 14, 15 festivals
"""

from pathlib import Path

import numpy as np

from dkgi.graph.export import NodeType, RelationType, SourceGraph, write_export

NODE_TYPES = (
    NodeType("film", "A film, movie or picture.", True),
    NodeType("person", "A person who works for films: an actor, director or writer.", True),
    NodeType("genre", "A genre, the style of a film.", True),
    NodeType("festival", "A festival where films are shown.", False),
)
RELATION_TYPES = (
    RelationType(
        "is_a",
        "The source is a kind of the target: child term -> parent term. The source is the more specific genre "
        "(subgenre), the target the broader genre directly above it.",
        ["genre"],
        ["genre"],
    ),
    RelationType("has_genre", "The film (source) belongs to the genre (target).", ["film"], ["genre"]),
    RelationType(
        "lead_role",
        "The person (source) plays a leading part in the film (target): stars in it, is its main actor.",
        ["person"],
        ["film"],
    ),
    RelationType("small_role", "The person (source) plays a small part in the film (target).", ["person"], ["film"]),
    RelationType(
        "no_role",
        "The person (source) is recorded as NOT playing in the film (target): absent, excluded from its cast.",
        ["person"],
        ["film"],
    ),
    RelationType(
        "made_by", "The filmmaker (source) directed the film (target), is its director.", ["person"], ["film"]
    ),
    RelationType("shown", "The film (source) was shown, screened at the festival (target).", ["film"], ["festival"]),
)
NODES = [
    *(
        (0, {"title": title, "plot": plot})
        for title, plot in (
            ("The Long Boat", "A crew of six leaves the lighthouse in a storm and rows home over eleven days."),
            ("Harbour Lights", "The keeper of a lighthouse falls in love with a singer who never leaves the harbour."),
            ("Winter in Bremen", "A young lawyer defends her own brother before a judge whom nobody has seen smile."),
            ("The Quiet Orchard", "Two sisters inherit an orchard and a very loud goat from an aunt they never met."),
            ("Salt and Iron", "A smith and a salt merchant build a railway through a storm of letters and debts."),
            ("A Clock for Anna", "Every clock in a small town stops on the day when Anna learns to tell the time."),
        )
    ),
    *((1, {"name": name}) for name in ("Ada Lund", "Bo Renner", "Cleo Marsh", "Dario Vint")),
    *((2, {"name": name}) for name in ("Drama", "Sea drama", "Courtroom drama", "Comedy")),
    *((3, {"name": name}) for name in ("Ulm Film Days", "Northern Reels")),
]
EDGES = [
    [[11, 10], [12, 10]],
    [[0, 11], [1, 11], [2, 12], [3, 13], [4, 10], [5, 13]],
    [[6, 0], [6, 2], [7, 1], [7, 4], [8, 3]],
    [[7, 0], [8, 0], [8, 1], [9, 2], [9, 5]],
    [[6, 1], [9, 0]],
    [[6, 5], [8, 4], [9, 0], [9, 3]],
    [[0, 14], [1, 14], [2, 15], [3, 15], [4, 14], [5, 14]],
]
QUESTIONS: dict[str, tuple[str, set[int]]] = {
    "one hop by a certain relation": ("Which films were directed by Dario Vint?", {0, 3}),
    "another relation of the same types": ("In which movies does Ada Lund play a leading part?", {0, 2}),
    "any relation of these types": ("List the pictures of Ada Lund.", {0, 2, 5}),
    "intersection": ("Which films of the genre Sea drama star Ada Lund?", {0}),
    "denial": ("Find all films shown at Ulm Film Days that were not directed by Dario Vint.", {1, 4, 5}),
    "recorded absence": ("Who is excluded? Name the persons recorded as absent from Harbour Lights.", {6}),
    "two hops": ("Which people star in a film that was directed by Dario Vint?", {6, 8}),
    "two hops, noun after the names": ("Take the films directed by Dario Vint. Which people star in them?", {6, 8}),
    "hierarchy": ("Which direct subgenres of Drama have a film that was shown at Northern Reels?", {12}),
    "parent": ("What is the parent genre of Courtroom drama? Give the genre.", {10}),
    "sibling": ("Name the siblings of Sea drama.", {12}),
    "text": ('Which films have "lighthouse" in their plot?', {0, 1}),
    "text and denial": ('Which films mention "storm" but not "lighthouse" in their plot?', {4}),
    "text one hop away": ('Which people directed a movie whose plot says "orchard"?', {9}),
    "text and names": ('Of the films shown at Ulm Film Days, which mention "storm" and have Bo Renner as a star?', {4}),
    "noun of a relation's end": ("Which filmmakers directed The Quiet Orchard?", {9}),
    "question about some of them": (
        "Consider the films that Dario Vint directed. Which of the main actors star in them?",
        {6, 8},
    ),
    "a request that follows a step": (
        "Take the films directed by Dario Vint, and list the people who star in them.",
        {6, 8},
    ),
    "refusal under a condition": (
        'I want the films shown at Ulm Film Days. If "storm" occurs in a plot, leave it out. Which films remain?',
        {1, 5},
    ),
    "another": ("Which other films have the same director as The Long Boat?", {3}),
}
"""What a question shows -> the question, and its right answers."""


def write_films(folder: Path) -> None:
    """Writes the export to a new folder."""
    edges = [np.array(rows, dtype=np.int64) for rows in EDGES]
    write_export(SourceGraph("films", "1", NODE_TYPES, RELATION_TYPES, iter(NODES), edges, (), "Free.", {}), folder)
