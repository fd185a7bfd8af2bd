"""The conversation that the heuristic leads where it gets graph tools instead of files.

    schema -> searches that link the names in the question -> readings -> neighbours that fit each -> checks -> answer

No list is longer than 20, so a requirement is checked from both ends: from what it names, and from each node that may be
an answer. Without `neighbors`, what searches find is all there is.
Not covered: what the question means (understanding.py); what a set of neighbours is (graph_sets.py).
"""

import json
import re
from collections import defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence

from dkgi.models.heuristic.agent import ANSWERS, Talk, answer_key, question_in
from dkgi.models.heuristic.graph_calls import (
    Batches,
    Call,
    Hit,
    Lead,
    as_functions,
    as_programs,
    parse_hits,
    parse_node,
)
from dkgi.models.heuristic.graph_sets import Sets, words_in
from dkgi.models.heuristic.shell import plain
from dkgi.models.heuristic.text import quotes_in
from dkgi.models.heuristic.understanding import Understanding, understand
from dkgi.models.heuristic.words import STOP

READINGS = 4
SEARCHES = 30
_WORD = re.compile(r"[^\W_]+")


def lead_graph(prompt: str, names: Iterable[str]) -> Talk | None:
    """The conversation for a prompt and the tools by name; None where there are files to read instead."""
    names = frozenset(names)
    module = re.search(r"^import (\w+) as \w+$", prompt, re.MULTILINE)
    if not names:
        return _nothing(prompt)
    if "search" in names:
        return _converse(prompt, as_functions, linked="neighbors" in names)
    return _converse(prompt, as_programs(module[1]), linked=True) if module else None


def _nothing(prompt: str) -> Talk:
    """Rules know nothing by heart."""
    yield from ()
    return json.dumps({answer_key(prompt): []})


def _converse(prompt: str, lead: Lead, *, linked: bool) -> Talk:
    talk = _answer(question_in(prompt), linked=linked)
    try:
        calls = next(talk)
        while True:
            # A turn without calls would be an answer.
            calls = talk.send((yield from lead(calls)) if calls else [])
    except StopIteration as end:
        return json.dumps({answer_key(prompt): end.value})


def _answer(question: str, *, linked: bool) -> Batches:
    """The IDs of the answer, best first."""
    (schema_text,) = yield [Call.of("get_schema")]
    queries = list(_queries(question))[:SEARCHES]
    outputs = yield [Call.of("search", query=query, k=30) for query in queries]
    lists = [parse_hits(output) for output in outputs]
    hits = {hit.node: hit for found in lists for hit in found}
    samples = yield from _samples(hits.values())
    printed = "\n".join(json.dumps(line) for line in [*samples, *_links(question, hits.values())])
    understood = understand(question, schema_text, printed)
    order: list[int] = []
    if linked and understood.schema is not None:
        sets = Sets(schema_text, {hit.node: hit.texts[0] for hit in hits.values()})
        order = yield from _by_readings(understood, sets)
    order += _by_searches(understood, lists)
    order = list(dict.fromkeys(order))
    order.sort(key=lambda node: node in understood.named)
    outputs = yield [Call.of("get_node", node_id=node) for node in order[: ANSWERS + 10]]
    records = {record.get("node_id"): record for record in map(parse_node, outputs)}
    refused = {node for node, record in records.items() if record.get("is_candidate") is False}
    return [node for node in order if node not in refused][:ANSWERS]


def _by_readings(understood: Understanding, sets: Sets) -> Generator[list[Call], list[str], list[int]]:
    """Nodes that fit the readings, those first that fit a likely one in all it says."""
    scores: dict[int, float] = defaultdict(float)
    for place, reading in enumerate(understood.readings[:READINGS]):
        whole, _ = understood.expressions(reading)
        fits = yield from sets.fitting(whole)
        few = [node for node, share in fits.items() if share == 1.0]
        for node, share in fits.items():
            weight = share**2 * (0.8**place) * (1.5 if share == 1.0 and len(few) <= ANSWERS else 1.0)
            scores[node] = max(scores[node], weight)
        if few and len(few) <= ANSWERS and place > 0:
            break
    return sorted(scores, key=lambda node: (-scores[node], node))


def _by_searches(understood: Understanding, lists: Sequence[Sequence[Hit]]) -> list[int]:
    """What searches found, of the types that are asked for, by reciprocal rank."""
    wanted = frozenset(understood.asked)
    if understood.readings:
        reading = understood.readings[0]
        wanted = reading.types[reading.answer]
    scores: dict[int, float] = defaultdict(float)
    for found in lists:
        for rank, hit in enumerate(found, start=1):
            if not wanted or hit.type in wanted:
                scores[hit.node] += 1 / (20 + rank)
    return sorted(scores, key=lambda node: (-scores[node], node))


def _samples(hits: Iterable[Hit]) -> Generator[list[Call], list[str], list[dict[str, object]]]:
    """By type, which attributes hold how much text in some of its nodes."""
    by_type: dict[str, list[int]] = defaultdict(list)
    for hit in hits:
        by_type[hit.type].append(hit.node)
    kinds = sorted(by_type)
    calls = [Call.of("get_node", node_id=node) for kind in kinds for node in by_type[kind][:4]]
    outputs = yield calls
    lengths: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(lambda: [0, 0]))
    for record in map(parse_node, outputs):
        for key, value in record.get("attributes", {}).items():
            if isinstance(value, str):
                pair = lengths[record["node_type"]][key]
                pair[0] += 1
                pair[1] += value.count(" ") + 1
    return [{"type": kind, "attributes": keys} for kind, keys in sorted(lengths.items())]


def _queries(question: str) -> Iterator[str]:
    """What to search for: the question, what it quotes, and what may be names in it, the longest first."""
    yield question
    quoted = quotes_in(question)
    yield from (text for _, _, text in quoted)
    for start, end, _ in quoted:
        question = question[:start] + "." * (end - start) + question[end:]
    words = list(_WORD.finditer(question))
    found: dict[str, None] = {}
    for place, word in enumerate(words):
        if word[0].lower() in STOP or not (word[0][0].isupper() or word[0][0].isdigit()):
            continue
        for length in (1, 2, 3, 4, 6, 9):
            if place + length <= len(words) and words[place + length - 1][0].lower() not in STOP:
                found[question[word.start() : words[place + length - 1].end()]] = None
    yield from sorted(found, key=lambda text: (-text.count(" "), text))


def _links(question: str, hits: Iterable[Hit]) -> list[dict[str, object]]:
    """The names of nodes that stand in the question, in the form in which programs.py prints them."""
    for start, end, _ in quotes_in(question):
        question = question[:start] + " " * (end - start) + question[end:]
    words = [(plain(word[0]), word.start(), word.end()) for word in _WORD.finditer(question)]
    spans: dict[tuple[str, ...], list[tuple[int, int]]] = defaultdict(list)
    for first in range(len(words)):
        for last in range(first, min(first + 25, len(words))):
            spans[tuple(word for word, _, _ in words[first : last + 1])].append((words[first][1], words[last][2]))
    found: dict[tuple[int, int], dict[int, list[object]]] = defaultdict(dict)
    for hit in hits:
        for text in hit.texts:
            for span in spans.get(tuple(plain(word) for word in words_in(text)), ()):
                found[span].setdefault(hit.node, [hit.node, hit.type, text])
    return [
        {"start": start, "end": end, "nodes": list(nodes.values())}
        for (start, end), nodes in sorted(found.items())
        if not any(s <= start and end <= e and (s, e) != (start, end) for s, e in found)
    ]
