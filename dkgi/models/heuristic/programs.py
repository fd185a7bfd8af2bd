"""The Python programs that the heuristic runs over the files of the graph.

>>> link("Which films did Ada Moore direct?", [], [])
"python3 - <<'E'\\nquestion = 'Which films did Ada Moore direct?'..."

Standard library only; each prints JSON lines, which agent.py reads back.
Not covered: what is asked of them (agent.py).
"""

from collections.abc import Iterable, Sequence


def run(program: str) -> str:
    """The command line for a program."""
    return f"python3 - <<'E'\n{program}E"


def link(question: str, quoted: Sequence[tuple[int, int]], strange: Sequence[str]) -> str:
    """A command that prints the nodes whose names stand in the question, and by type of node:

    which attributes hold how much text, and how often each of the `strange` words ends a short text, as nouns do names.
    """
    return run(f"question = {question!r}\nquoted = {quoted!r}\nstrange = {strange!r}\n{LINK}")


def names(question: str, quoted: Sequence[tuple[int, int]], printed: str) -> str:
    """What the linking program printed: it says already which part of the question a name is."""
    return printed


def evaluate(wholes: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A command that prints the nodes of each expression, and how many there are under each of its looser forms."""
    shown = (f"show({place}, {', '.join((whole, *looser))})\n" for place, (whole, looser) in enumerate(wholes))
    return run(SETS + "".join(shown))


def search(question: str, named: Iterable[int], types: Sequence[str]) -> str:
    """A command that prints the candidates whose text has most of the question's words, or that are next to `named`.

    Of the `types`, or of all where none are given.
    """
    return run(f"question = {question!r}\nnamed = {sorted(map(str, named))!r}\ntypes = {list(types)!r}\n{SEARCH}")


def check(nodes: Sequence[int]) -> str:
    """A command that prints the beginning of each node's record."""
    return run(f"nodes = {list(nodes)!r}\n{CHECK}")


LINK = r"""
import collections, glob, json, re

WORD = re.compile(r"[^\W_]+")

def plain(word):
    word = word.casefold()
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word

def strings(value):
    if isinstance(value, str):
        yield value
    elif isinstance(value, (dict, list)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from strings(part)

# A name ends with its noun, if not with a number or what follows a comma.
STRANGE = re.compile(r"\b(" + "|".join(strange or ["$"]) + r")s?(?=$|,| \d)")
for start, end in quoted:
    question = question[:start] + " " * (end - start) + question[end:]
asked = [(plain(found[0]), found.start(), found.end()) for found in WORD.finditer(question)]
spans = collections.defaultdict(list)
for first in range(len(asked)):
    for last in range(first, min(first + 25, len(asked))):
        name = " ".join(word for word, _, _ in asked[first:last + 1])
        spans[name].append((asked[first][1], asked[last][2]))
starts = {word for word, _, _ in asked}

found = collections.defaultdict(dict)
seen = collections.defaultdict(collections.Counter)
lengths = collections.defaultdict(lambda: collections.defaultdict(lambda: [0, 0]))
for path in sorted(glob.glob("nodes/*.jsonl")):
    with open(path) as lines:
        for node in map(json.loads, lines):
            for key, value in node["attributes"].items():
                if isinstance(value, str):
                    length = lengths[node["node_type"]][key]
                    length[0] += 1
                    length[1] += value.count(" ") + 1
                    if len(value) < 100:
                        seen[node["node_type"]].update(set(STRANGE.findall(value.lower())))
                for text in strings(value):
                    first = WORD.search(text)
                    if first and len(text) < 200 and plain(first[0]) in starts:
                        for start, end in spans.get(" ".join(map(plain, WORD.findall(text))), ()):
                            # A symbol such as CAT is no cat.
                            if not (text.isupper() and text.isalnum()) or text == question[start:end]:
                                found[start, end][node["node_id"]] = [node["node_id"], node["node_type"], text]

for kind, keys in sorted(lengths.items()):
    print(json.dumps({"type": kind, "attributes": keys, "words": seen[kind]}, sort_keys=True))
for start, end in sorted(found):
    if not any(s <= start and end <= e and (s, e) != (start, end) for s, e in found):
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

SEARCH = r"""
import collections, glob, json, math, re

WORD = re.compile(r"[^\W_]+")
asked = set(WORD.findall(question.casefold()))
seen = collections.Counter()
texts = {}
for path in sorted(glob.glob("nodes/*.jsonl")):
    with open(path) as lines:
        for line in lines:
            words = asked.intersection(WORD.findall(line.casefold()))
            if words:
                seen.update(words)
                node = json.loads(line)
                if node["is_candidate"] and (not types or node["node_type"] in types):
                    texts[node["node_id"]] = words, len(line)

near = collections.Counter()
for path in sorted(glob.glob("edges/*.tsv")):
    with open(path) as lines:
        for line in lines:
            one, other = line.split()
            if one in named:
                near[other] += 1
            if other in named:
                near[one] += 1

scores = {}
for node, (words, length) in texts.items():
    rare = sum(math.log(1 + len(texts) / seen[word]) for word in sorted(words))
    scores[node] = rare / math.log(50 + length) + 2 * near[str(node)]
for node in sorted(scores, key=lambda node: (-scores[node], node))[:40]:
    print(json.dumps({"id": node, "score": round(scores[node], 3)}))
"""

CHECK = r"""
import glob, json

wanted = set(nodes)
for path in sorted(glob.glob("nodes/*.jsonl")):
    with open(path) as lines:
        for line in lines:
            if wanted and int(line[line.index(":") + 1:line.index(",")]) in wanted:
                node = json.loads(line)
                wanted.discard(node["node_id"])
                about = json.dumps(node["attributes"], ensure_ascii=False)[:200]
                print(json.dumps({"id": node["node_id"], "type": node["node_type"],
                                  "is_candidate": node["is_candidate"], "about": about}, ensure_ascii=False))
"""
