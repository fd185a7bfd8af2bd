r"""What programs.py does in Python, as bash programs: rg, sed, cut, sort, comm, head and what is built into bash.

>>> evaluate([("to(N(17), 'edges/03.tsv')", [])])
'...s0=$(named 17)\ns1=$(to "$s0" edges/03.tsv)\ns2=$(both "$s1" "$candidates")\nshow 0 "$s2"\n'

A set is a variable that holds IDs, one a line, in the order of sort, so that comm can join sets. There is no `<(...)`,
which needs /proc.
Which part of the question a name is, is worked out here from the lines that the linking program prints.
Not covered: what the sets are that are computed (reading.py).
"""

import ast
import json
import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from dkgi.models.heuristic.evidence import json_lines
from dkgi.models.heuristic.words import STOP

LONGEST = 25
"""Words of a name that is looked for."""

FEW = 20
"""Nodes of one name that are kept."""

_WORD = re.compile(r"[^\W_]+")
_GAP = r'(?-u:[^0-9A-Za-z"])'
_TYPE = r'"node_type":"[^"]*"'


def link(question: str, quoted: Sequence[tuple[int, int]], strange: Sequence[str]) -> str:
    """A command that prints the nodes which have a string made of words of the question, and by type of node:

    which attributes hold how much text in some nodes, and how often each of the `strange` words ends a short text.
    """
    patterns = "\n".join([_TYPE, *_patterns([plain(found[0]) for found in _words(question, quoted)])])
    # A name ends with its noun, if not with a number or what follows a comma.
    ending = rf'"node_type":("[^"]*").*?:"[^"]{{0,80}}?\b({"|".join(strange) or "-"})s?(?:"|,| \d)'
    return f"few={FEW}\nending={shlex.quote(ending)}\npatterns={shlex.quote(patterns)}\n{LINK}"


def names(question: str, quoted: Sequence[tuple[int, int]], printed: str) -> str:
    """What the linking program printed, with the names in the form in which programs.py prints them."""
    words = [(plain(found[0]), found.start(), found.end()) for found in _words(question, quoted)]
    spans: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for first in range(len(words)):
        for last in range(first, min(first + LONGEST, len(words))):
            name = " ".join(word for word, _, _ in words[first : last + 1])
            spans[name].append((words[first][1], words[last][2]))
    found: dict[tuple[int, int], dict[int, tuple[int, str, str]]] = defaultdict(dict)
    lines = json_lines([printed])
    for line in lines:
        node, type_, text = (line.get(key) for key in ("id", "type", "text"))
        if isinstance(node, int) and isinstance(type_, str) and isinstance(text, str):
            for start, end in spans.get(" ".join(plain(word) for word in _WORD.findall(text)), ()):
                # A symbol such as CAT is no cat.
                if not (text.isupper() and text.isalnum()) or text == question[start:end]:
                    found[start, end][node] = (node, type_, text)
    whole = [
        {"start": start, "end": end, "nodes": list(nodes.values())[:FEW]}
        for (start, end), nodes in sorted(found.items())
        if not any(s <= start and end <= e and (s, e) != (start, end) for s, e in found)
    ]
    return "\n".join(json.dumps(line) for line in [*(line for line in lines if "attributes" in line), *whole])


def evaluate(wholes: Iterable[tuple[str, Sequence[str]]]) -> str:
    """A command that prints the nodes of each expression, and how many there are under each of its looser forms."""
    variables: dict[str, str] = {}
    shown = []
    for place, (whole, looser) in enumerate(wholes):
        forms = [ast.parse(f"({form}) & candidates", mode="eval").body for form in (whole, *looser)]
        shown.append(f"show {place} {' '.join(_variable(form, variables) for form in forms)}\n")
    return SETS + "".join(f"{name}=$({command})\n" for command, name in variables.items()) + "".join(shown)


def search(question: str, named: Iterable[int], types: Sequence[str]) -> str:
    """A command that prints the candidates whose records have most of the question's words, or are next to `named`.

    Of the `types`, or of all where none are given.
    """
    words = dict.fromkeys(found[0].casefold() for found in _WORD.finditer(question))
    asked = " ".join(word for word in words if word not in STOP)
    kinds = "|".join(map(re.escape, types)) or '[^"]*'
    return f"asked=({asked})\nkinds={shlex.quote(kinds)}\nnamed='{'|'.join(map(str, sorted(named))) or '-'}'\n{SEARCH}"


def check(nodes: Sequence[int]) -> str:
    """A command that prints of each node whether it is a candidate."""
    return f"nodes='{'|'.join(map(str, nodes)) or '-'}'\n{CHECK}"


def plain(word: str) -> str:
    """A word in lower case, without the end of a plural."""
    word = word.casefold()
    return word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] not in "sui" else word


def _words(question: str, quoted: Sequence[tuple[int, int]]) -> Iterator[re.Match[str]]:
    """The words of a question that are not quoted."""
    for start, end in quoted:
        question = question[:start] + " " * (end - start) + question[end:]
    return _WORD.finditer(question)


def _patterns(words: list[str]) -> Iterator[str]:
    """For each word a pattern of a JSON string that consists of it, or of it and any number of the words after it."""
    forms = [f"{word}s?" if len(word) > 2 and word[-1] not in "sui" else word for word in words]
    for first in range(len(forms)):
        head, *rest = forms[first : first + LONGEST]
        tail = "".join(f"(?:{_GAP}+{form}" for form in rest) + ")?" * len(rest)
        yield rf'[:,\[]"{_GAP}*{head}{tail}{_GAP}*"[,}}\]]'


def _variable(node: ast.expr, variables: dict[str, str]) -> str:
    """The variable, quoted, of the set that a Python expression means; `variables` by the command that fills them."""
    match node:
        case ast.Name(id=name):
            return f'"${name}"'
        case ast.BinOp(left=left, op=op, right=right):
            verb = "both" if isinstance(op, ast.BitAnd) else "less"
            command = f"{verb} {_variable(left, variables)} {_variable(right, variables)}"
        case ast.Call(func=ast.Name(id="to" | "back" as verb), args=[start, *files]):
            paths = " ".join(shlex.quote(ast.literal_eval(file)) for file in files)
            command = f"{verb} {_variable(start, variables)} {paths}"
        case ast.Call(func=ast.Name(id="N"), args=nodes):
            command = " ".join(["named", *(str(ast.literal_eval(node)) for node in nodes)])
        case ast.Call(func=ast.Name(id="all_of"), args=types):
            command = f"records {shlex.quote(_kinds([ast.literal_eval(type_) for type_ in types]))}"
        case ast.Call(func=ast.Name(id="says"), args=args):
            words, types_, keys = (ast.literal_eval(arg) for arg in args)
            command = f"records {shlex.quote(_kinds(types_) + _text(words, keys))}"
        case _:
            raise ValueError(f"no set: {ast.unparse(node)}")
    return f'"${variables.setdefault(command, f"s{len(variables)}")}"'


def _kinds(types: Iterable[str]) -> str:
    """A pattern of the beginning of the records of these types."""
    return rf'"node_type":"(?:{"|".join(map(re.escape, types))})",'


def _text(words: str, keys: Iterable[str]) -> str:
    """A pattern of the rest of a record that has the words in the string, list or object under one of the keys."""
    said = r"(?: |\\n)+".join(re.escape(json.dumps(word, ensure_ascii=False)[1:-1]) for word in words.split())
    return rf'.*"(?:{"|".join(map(re.escape, keys))})":(?:"(?:[^"\\]|\\.)*|[\[{{][^\]}}]*){said}'


LINK = r"""
shopt -s lastpipe
rg -oIN '"node_type":"[^"]*"' nodes | sort -u | mapfile -t kinds
for kind in "${kinds[@]}"; do
  declare -A held=() length=() ends=()
  rg --sort path -FIN "$kind" nodes | head -n 200 | rg -oN '"[^"]+":"(?:[^"\\]|\\.)*"' | while IFS= read -r pair; do
    key=${pair%%:*} spaces=${pair//[! ]/}
    held[$key]=$((${held[$key]:-0} + 1)) length[$key]=$((${length[$key]:-0} + ${#spaces} + 1))
  done
  rg -FIN "$kind" nodes | rg -oiN -r '$2' "$ending" | while IFS= read -r word; do
    ends[$word]=$((${ends[$word]:-0} + 1))
  done
  list=() words=()
  for key in "${!held[@]}"; do list+=("$key: [${held[$key]}, ${length[$key]}]"); done
  for word in "${!ends[@]}"; do words+=("\"${word,,}\": ${ends[$word]}"); done
  IFS=,
  echo "{\"type\": ${kind#*:}, \"attributes\": {${list[*]}}, \"words\": {${words[*]}}}"
  unset IFS
done

declare -A seen=() type=()
ids=() texts=()
rg --sort path -ion -f - nodes <<<"$patterns" | rg -v '"node_type":"[^"]*"$' | while IFS=: read -r file line text; do
  text=${text:1:-1} file=${file//[!0-9]/}
  count=$((${seen[$text]:-0} + 1))
  seen[$text]=$count
  ((count > few)) || { ids+=($((10#$file * 10000 + line - 1))); texts+=("$text"); }
done
IFS='|'
rg -oIN -r '$1 $2' "^\{\"node_id\":(${ids[*]}),\"node_type\":(\"[^\"]*\")" nodes | while IFS=' ' read -r id kind; do
  type[$id]=$kind
done
for place in "${!ids[@]}"; do
  echo "{\"id\": ${ids[place]}, \"type\": ${type[${ids[place]}]}, \"text\": ${texts[place]}}"
done
"""

SETS = r"""
shopt -s lastpipe
named() { printf '%s\n' "$@" | sort -u; }
to() { sed 's/.*/&\\t[0-9]+/' <<<"$1" | rg -xIN -f - "${@:2}" | cut -f 2 | sort -u; }
back() { sed 's/.*/[0-9]+\\t&/' <<<"$1" | rg -xIN -f - "${@:2}" | cut -f 1 | sort -u; }
records() { rg -oiIN -r '$1' "^\{\"node_id\":([0-9]+),$1" nodes | sort; }
other=${TMPDIR:-/tmp}/set.$$
both() { echo "$2" >"$other" && comm -12 - "$other" <<<"$1"; }
less() { echo "$2" >"$other" && comm -23 - "$other" <<<"$1"; }
show() {
  local ids=() sizes=() set place=$1
  rg . <<<"$2" | sort -n | mapfile -t ids
  for set in "${@:3}"; do sizes+=("$(rg -c --include-zero . <<<"$set")"); done
  local IFS=,
  echo "{\"reading\": $place, \"size\": ${#ids[@]}, \"ids\": [${ids[*]:0:30}], \"looser\": [${sizes[*]}]}"
}
candidates=$(sort candidate_ids.txt)

"""

SEARCH = r"""
shopt -s lastpipe
total=$(wc -l <candidate_ids.txt)
declare -A score=()
for word in "${asked[@]}"; do
  found=()
  rg -oiIN -r '$1' "^\{\"node_id\":([0-9]+),\"node_type\":\"(?:$kinds)\",\"is_candidate\":true.*\b$word\b" nodes | mapfile -t found
  # What a word is worth: how often the number of candidates can be halved before it is the number of those with the word.
  worth=0
  for ((left = total; left > ${#found[@]}; left /= 2)); do worth=$((worth + 1)); done
  ((worth > 2)) || continue
  for id in "${found[@]}"; do score[$id]=$((${score[$id]:-0} + worth)); done
done
{ rg -oIN -r '$1' "^(?:$named)\t([0-9]+)$" edges; rg -oIN -r '$1' "^([0-9]+)\t(?:$named)$" edges; } | while read -r id; do
  [[ ${score[$id]} ]] && score[$id]=$((score[$id] + 5))
done
for id in "${!score[@]}"; do echo "${score[$id]} $id"; done | sort -k 1,1nr -k 2,2n | head -n 40 |
  sed -E 's/(.*) (.*)/{"id": \2, "score": \1}/'
"""

CHECK = r"""
rg -oIN -r '{"id": $1, "type": $2, "is_candidate": $3}' \
  "^\{\"node_id\":($nodes),\"node_type\":(\"[^\"]*\"),\"is_candidate\":(true|false)" nodes
"""
