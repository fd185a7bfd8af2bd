"""The Python programs that the heuristic runs over the files of the graph.

>>> run(link("Which films did Ada Moore direct?"))
"python3 - <<'E'\\nimport glob, json, re..."

Standard library only; each prints JSON lines, which agent.py reads back.
Not covered: what is asked of them (agent.py).
"""


def run(program: str) -> str:
    """The command line for a program."""
    return f"python3 - <<'E'\n{program}E"


def link(question: str) -> str:
    """A program that prints the nodes whose names stand in the question."""
    return f"question = {question!r}\n" + LINK


def evaluate(expressions: list[tuple[str, list[str]]]) -> str:
    """A program that prints the nodes of each expression, and how many there are under each of its looser forms."""
    lines = [f"show({place}, {whole}, {', '.join(looser)})\n" for place, (whole, looser) in enumerate(expressions)]
    return SETS + "".join(lines)


LINK = r"""
import collections, glob, json, re

def words(text):
    for found in re.finditer(r"[^\W_]+", text):
        word = found[0].casefold()
        if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui":
            word = word[:-1]
        yield word, found.start(), found.end()

def strings(value, path=""):
    if isinstance(value, str):
        yield path, value
    elif isinstance(value, dict):
        for key, part in value.items():
            yield from strings(part, f"{path}.{key}" if path else key)
    elif isinstance(value, list):
        for part in value:
            yield from strings(part, path)

asked = list(words(question))
spans = collections.defaultdict(list)
for first in range(len(asked)):
    for last in range(first, min(first + 20, len(asked))):
        spans[" ".join(word for word, _, _ in asked[first:last + 1])].append((asked[first][1], asked[last][2]))

found = collections.defaultdict(dict)
for path in sorted(glob.glob("nodes/*.jsonl")):
    with open(path) as lines:
        for line in lines:
            node = json.loads(line)
            for key, text in strings(node["attributes"]):
                if len(text) < 160:
                    name = " ".join(word for word, _, _ in words(text))
                    for span in spans.get(name, ()):
                        if not (text.isupper() and " " not in text) or text == question[span[0]:span[1]]:
                            found[span].setdefault(node["node_id"], [node["node_id"], node["node_type"], key])

for start, end in sorted(found):
    if not any((s <= start and end <= e) and (s, e) != (start, end) for s, e in found):
        print(json.dumps({"start": start, "end": end, "nodes": list(found[start, end].values())[:20]}))
"""

SETS = r"""
import functools, glob, json

def N(*nodes):
    return frozenset(map(str, nodes))

@functools.cache
def rows(file, key):
    with open(file) as lines:
        ids = lines.read().split()[2:]
    found = {}
    for one, other in zip(ids[key::2], ids[1 - key::2]):
        found.setdefault(one, []).append(other)
    return found

@functools.cache
def to(sources, *files):
    return frozenset(node for file in files for source in sources for node in rows(file, 0).get(source, ()))

@functools.cache
def back(targets, *files):
    return frozenset(node for file in files for target in targets for node in rows(file, 1).get(target, ()))

@functools.cache
def records(*types):
    found = []
    for path in sorted(glob.glob("nodes/*.jsonl")):
        with open(path) as lines:
            found += [node for node in map(json.loads, lines) if node["node_type"] in types]
    return found

def all_of(*types):
    return frozenset(str(node["node_id"]) for node in records(*types))

def text_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    return " ".join(map(text_of, value)) if isinstance(value, list) else str(value or "")

@functools.cache
def says(words, types, keys):
    return frozenset(str(node["node_id"]) for node in records(*types)
                     if words in " ".join(text_of([node["attributes"].get(key) for key in keys]).lower().split()))

with open("candidate_ids.txt") as lines:
    candidates = frozenset(lines.read().split())

def show(place, found, *looser):
    found &= candidates
    ids = sorted(map(int, found))
    print(json.dumps({"reading": place, "size": len(found), "ids": ids[:30],
                      "looser": [len(other & candidates) for other in looser]}))

"""
