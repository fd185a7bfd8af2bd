"""One Python program that does all: it links the names, weighs what is next to them, and prints the answer.

>>> single(question, schema_text)
"python3 - <<'E'\\nquestion = 'Which films of Ada Lund ...'\\nasked = ['film']\\n..."

For an agent that may start Python once. Nothing of the graph's nodes has been seen when the program is written, so what
the names mean cannot be thought over: the words around a name say which relations count for it, and whether it is
denied. A candidate is worth as many names as it, together with one neighbour of another type, is linked to.
Not covered: the readings that several programs allow (understanding.py).
"""

from dkgi.models.heuristic import programs
from dkgi.models.heuristic.asked import asked_noun
from dkgi.models.heuristic.nouns import Noun
from dkgi.models.heuristic.question import Modifier, mentions
from dkgi.models.heuristic.schema import Schema
from dkgi.models.heuristic.text import Quote, Text, quotes_in
from dkgi.models.heuristic.words import tokenize


def single(question: str, schema: Schema) -> str:
    """A command with the one start of Python: prints a line with `id` for each node of the answer, the best first."""
    quoted = [(start, end) for start, end, _ in quotes_in(question)]
    tokens = [token.start for token in tokenize(question)]
    # A text has one word for all that is quoted together.
    places = sorted(
        {*(start for start, _ in quoted), *(at for at in tokens if not any(s <= at < e for s, e in quoted))}
    )
    text = Text.of(question, [], schema)
    found = mentions(text, schema)
    asked = asked_noun(text, [mention for mention in found if isinstance(mention, Noun)], schema)
    denials, cues, roles, says = [], [], [], []
    for mention in found:
        at = places[min(mention.at, len(places) - 1)]
        if isinstance(mention, Quote):
            says.append((at, mention.text.lower()))
        elif isinstance(mention, Modifier) and mention.negative:
            denials.append(at)
        elif isinstance(mention, Modifier):
            cues.append((at, sorted(schema.relations[relation].file for relation in mention.relations)))
        elif isinstance(mention, Noun) and mention.role:
            roles.append((at, schema.relations[mention.role.relation].file, mention.role.side))
    relations = [
        (relation.file, sorted(relation.sources), sorted(relation.targets), relation.negative)
        for relation in schema.relations.values()
    ]
    known = {
        "question": question,
        "quoted": quoted,
        "strange": [],
        "wanted": sorted(asked.types if asked and asked.types else schema.candidates),
        "relations": relations,
        "denials": denials,
        "cues": cues,
        "roles": roles,
        "says_what": says,
    }
    lines = "".join(f"{name} = {value!r}\n" for name, value in known.items())
    return programs.run(lines + programs.FIND + programs.FUNCTIONS + WEIGH)


WEIGH = r"""
def nearest(at, spans):
    # The span that a word at a place is about: rather the one that follows it.
    return min(spans, key=lambda span: span[0] - at if at <= span[0] else at - span[1] + 15, default=None)

names = [span for span in sorted(found)
         if not any(s <= span[0] and span[1] <= e and (s, e) != span for s, e in found)]
texts = [(at, at + len(words), words) for at, words in says_what]
spans = names + [text[:2] for text in texts]
denied = {nearest(at, spans) for at in denials}
files_of, side_of = collections.defaultdict(set), {}
for at, files in cues:
    files_of[nearest(at, names)].update(files)
for at, file, side in roles:
    side_of.setdefault(nearest(at, names), (file, side))

def neighbours(nodes, types, cued=frozenset(), role=None):
    # What is next to nodes of one of the types, by the relations that were named or else by all that say what is so.
    near = set()
    for file, sources, targets, negative in relations:
        if file in cued or not (negative or cued & usable(types)):
            if types & set(sources) and (role is None or role[0] != file or role[1] == "target"):
                near |= to(nodes, file)
            if types & set(targets) and (role is None or role[0] != file or role[1] == "source"):
                near |= back(nodes, file)
    return near

def usable(types):
    return {file for file, sources, targets, _ in relations if types & {*sources, *targets}}

pool = all_of(*wanted) & candidates
good, bad = collections.defaultdict(set), collections.defaultdict(set)
for span in names:
    by_type = collections.defaultdict(set)
    for node, kind, _ in found[span].values():
        by_type[kind].add(str(node))
    for kind, nodes in by_type.items():
        near = neighbours(frozenset(nodes), {kind}, files_of[span], side_of.get(span))
        for node in near:
            (bad if span in denied else good)[node].add(span)
for start, end, words in texts:
    for path in sorted(glob.glob("nodes/*.jsonl")):
        with open(path) as lines:
            for node in map(json.loads, lines):
                if words in " ".join(text_of(node["attributes"]).lower().split()):
                    (bad if (start, end) in denied else good)[str(node["node_id"])].add((start, end))

worth = {node: len(good[node]) - len(bad[node]) for node in pool & {*good, *bad}}
kinds = {}
for path in sorted(glob.glob("nodes/*.jsonl")):
    with open(path) as lines:
        for node in map(json.loads, lines):
            if str(node["node_id"]) in good:
                kinds[str(node["node_id"])] = node["node_type"]
for middle in sorted(kinds):
    if kinds[middle] not in wanted:
        for node in neighbours(frozenset((middle,)), {kinds[middle]}) & pool:
            value = len(good[middle] | good[node]) - len(bad[middle] | bad[node]) - 0.1
            worth[node] = max(worth.get(node, value), value)
mentioned = {str(node) for nodes in found.values() for node in nodes}
for node in sorted(worth, key=lambda node: (node in mentioned, -worth[node], int(node)))[:20]:
    print(json.dumps({"id": int(node), "worth": worth[node]}))
"""
