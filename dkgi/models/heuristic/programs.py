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


def near(nodes: list[int]) -> str:
    """A program that prints the candidates with the most neighbours among `nodes`."""
    return f"nodes = {[str(node) for node in nodes]!r}\n" + NEAR


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

NEAR = r"""
import collections, glob, json
score = collections.Counter()
for path in sorted(glob.glob("edges/*.tsv")):
    with open(path) as lines:
        next(lines)
        for line in lines:
            a, b = line.split()
            if a in nodes: score[b] += 1
            if b in nodes: score[a] += 1
with open("candidate_ids.txt") as lines:
    candidates = set(lines.read().split())
ranked = sorted((-count, int(node)) for node, count in score.items() if node in candidates and node not in nodes)
for count, node in ranked[:40]:
    print(json.dumps({"id": node, "score": -count}))
"""
