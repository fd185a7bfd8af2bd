"""Bring cells of other runs folders into this one: `python -m dkgi.merge FOLDER [FOLDER ...]`.

    $ python -m dkgi.merge machine1 machine2
    5d1f0c9a7e42: 3,554 finished queries brought
    5d1f0c9a7e42: 3,554 queries logged

FOLDER is a runs folder (`mlruns`, or what DKGI_RUNS named), copied from another machine after its run ended or was
stopped. Cells of the same id become one: finished queries of all, each with its whole folder and its score. Queries that were only begun come along
where nothing is known of them here, so that what they cost stays in the sums. No labels and no model are needed. The
same command again brings only what is new, also after kill -9. Then the MLflow log is made anew, as `python -m
dkgi.relog` does (`--no-traces` and `--uri` are the same).
Not covered: the files of grids; the same `-m` command finds merged cells finished and writes its own.
"""

import argparse
import os
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from dkgi import console, signals
from dkgi.analysis.summary import read_scores, score_line, score_of, scores_path
from dkgi.files import cannot_write, sync_folder, write_atomically
from dkgi.foreign import ForeignQuery, ForeignRuns
from dkgi.grid.log import relog_grids
from dkgi.locks import Lock
from dkgi.paths import runs_dir
from dkgi.relog import relog
from dkgi.shards import WHOLE
from dkgi.store import Cell, open_cell
from dkgi.types import SetupError

SAME = ("axes", "digests")
"""What manifests of one cell must agree in."""
TOLD = ("dkgi_version", "git_commit", "python", "agent_programs")
"""What may differ between machines, but should not go unnoticed."""
_Key = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Found:
    runs: ForeignRuns
    query: ForeignQuery


def merge(cell: Cell, sources: Sequence[ForeignRuns]) -> None:
    """Bring what `sources`, which all have this cell, know of it. Raises SetupError before anything is changed, or
    where the disk refuses.
    """
    stage = Cell(cell.folder / "merging")
    try:
        with Lock(cell):
            wanted = _plan(cell, sources)
            _clear(stage)
            for key, found in wanted.items():
                found.runs.copy(found.query, stage.query_folder(*key))
                _check_copy(stage, key, found)
            # Scores first: one without its result counts for nothing, a result without its score would be left out.
            _write_scores(cell, sources)
            # Once for all files, where one by one would take minutes.
            os.sync()
            for key, found in wanted.items():
                _put(cell, stage, key, found)
            _clear(stage)
    except OSError as error:
        raise cannot_write(error, cell.folder) from error
    finished = sum(found.query.result is not None for found in wanted.values())
    begun = f", {len(wanted) - finished:,} begun ones" if finished < len(wanted) else ""
    console.stderr().print(f"{cell.id}: {finished:,} finished queries{begun} brought", soft_wrap=True)


def check(cell_id: str, runs: Path, sources: Sequence[ForeignRuns]) -> dict[str, Any]:
    """The cell's manifest. SetupError where what is here and what comes are not of one cell or contradict each other."""
    cell = Cell(runs / "cells" / cell_id)
    if (cell.folder / "unsafe.txt").exists():
        raise SetupError(f"{cell.folder / 'unsafe.txt'}: this cell was stopped for safety, nothing of it counts")
    manifests = [(source.folder / "cells" / cell_id, source.manifest(cell_id)) for source in sources]
    if (cell.folder / "manifest.json").exists():
        manifests.insert(0, (cell.folder, cell.manifest))
    (first_folder, first), *others = manifests
    for folder, manifest in others:
        for key in SAME:
            if manifest[key] != first[key]:
                raise SetupError(f"{folder}: not the cell of {first_folder}: `{key}` of their manifests differ")
        if differing := [key for key in TOLD if manifest.get(key) != first.get(key)]:
            line = f"{folder} was made with another {', '.join(differing)} than {first_folder}"
            console.stderr().print(line, soft_wrap=True)
    _plan(cell, sources)
    return first


def _plan(cell: Cell, sources: Sequence[ForeignRuns]) -> dict[_Key, _Found]:
    """What to bring: finished queries, and begun ones of which nothing is known. SetupError for two answers to one."""
    wanted: dict[_Key, _Found] = {}
    answered: dict[_Key, tuple[str, Path]] = {}
    for source in sources:
        for query in source.queries(cell.id):
            key, here = (query.number, query.repeat), cell.query_folder(query.number, query.repeat)
            if key not in answered and (digest := _digest(here)):
                answered[key] = digest, here
            if query.result is None:
                if not here.exists():
                    wanted.setdefault(key, _Found(source, query))
                continue
            if key not in answered:
                wanted[key] = _Found(source, query)
            digest, folder = answered.setdefault(key, (query.digest, source.folder / query.path))
            if digest != query.digest:
                raise SetupError(
                    f"query {query.number}, repeat {query.repeat} of cell {cell.id} is finished twice with different "
                    f"results: keep {folder} or {source.folder / query.path} and remove the other one"
                )
    return wanted


def _clear(stage: Cell) -> None:
    """Remove what a merge copied but did not move to its place, such as one that was killed."""
    if stage.folder.exists():
        shutil.rmtree(stage.folder)


def _digest(folder: Path) -> str:
    try:
        return sha256((folder / "result.json").read_bytes()).hexdigest()
    except FileNotFoundError:
        return ""


def _check_copy(stage: Cell, key: _Key, found: _Found) -> None:
    """Damaged steps are refused here: later they would stop the cell."""
    try:
        whole = bool(stage.attempts(*key)) or found.query.result is None
    except SetupError:
        whole = False
    if not whole:
        path = found.runs.folder / found.query.path / "steps.jsonl"
        raise SetupError(f"{path}: damaged; copy the folder again, or remove it and the query runs again")


def _write_scores(cell: Cell, sources: Sequence[ForeignRuns]) -> None:
    """One file with the scores of all results, here and there."""
    lines = {}
    known = read_scores(cell)
    for result in cell.results():
        if score := score_of(result, known):
            lines[result.number, result.repeat] = score_line(result, score)
    for source in sources:
        scores = source.scores(cell.id)
        for query in source.queries(cell.id):
            if query.result and (score := score_of(query.result, scores)):
                lines.setdefault((query.number, query.repeat), score_line(query.result, score))
    write_atomically(scores_path(cell, WHOLE), b"".join(lines[key] for key in sorted(lines)))


def _put(cell: Cell, stage: Cell, key: _Key, found: _Found) -> None:
    """Move a query's copied folder to its place; one that was begun here makes room for one that is finished there."""
    copied, place = stage.query_folder(*key), cell.query_folder(*key)
    if place.exists():
        _make_room(cell, place, copied, found)
    place.parent.mkdir(parents=True, exist_ok=True)
    copied.rename(place)
    sync_folder(place.parent)


def _make_room(cell: Cell, place: Path, copied: Path, found: _Found) -> None:
    steps, theirs = place / "steps.jsonl", copied / "steps.jsonl"
    # The beginning of what comes was copied from here, or to here: then nothing is lost.
    if not steps.exists() or theirs.read_bytes().startswith(steps.read_bytes()):
        shutil.rmtree(place)
        return
    number, repeat = found.query.number, found.query.repeat
    aside = cell.folder / "set_aside" / f"{number}-{repeat}-{sha256(steps.read_bytes()).hexdigest()[:8]}"
    aside.parent.mkdir(exist_ok=True)
    place.rename(aside)
    line = (
        f"query {number}, repeat {repeat} was begun here and is finished in {found.runs.folder}: what was begun here "
    )
    console.stderr().print(f"{line}is in {aside}, its cost counts no more", soft_wrap=True)


@signals.watched()
def main() -> None:
    """Run the command line of this process."""
    parser = argparse.ArgumentParser(prog="python -m dkgi.merge", description="Bring cells of other runs folders here.")
    parser.add_argument("folders", nargs="*", metavar="FOLDER", type=Path, help="a runs folder of another machine")
    parser.add_argument("--no-traces", action="store_true", help="leave the traces out of MLflow")
    parser.add_argument("--uri", help="an MLflow server to log to instead of the database in the runs folder")
    arguments = parser.parse_args()
    try:
        merged = _merge_all(arguments.folders, runs_dir())
        logged = [relog(cell, runs_dir(), traces=not arguments.no_traces, uri=arguments.uri) for cell in merged]
        relog_grids([cell.id for cell in merged], arguments.uri)
    except SetupError as error:
        console.fail(error)
    sys.exit(0 if all(logged) else 1)


def _merge_all(folders: Sequence[Path], runs: Path) -> list[Cell]:
    """Merge all cells of these folders."""
    if not folders:
        raise SetupError("FOLDER: nothing to merge; name the runs folders that were copied from other machines")
    with ExitStack() as stack:
        sources = []
        for folder in folders:
            if runs.exists() and folder.exists() and folder.samefile(runs):
                raise SetupError(f"{folder}: this is the runs folder that the others are merged into; leave it out")
            sources.append(stack.enter_context(ForeignRuns(folder)))
        cells: dict[str, list[ForeignRuns]] = {}
        for source in sources:
            for cell_id in source.cells():
                cells.setdefault(cell_id, []).append(source)
        if not cells:
            raise SetupError(f"{', '.join(map(str, folders))}: no cell is there")
        # All are looked at before the first is changed.
        manifests = {cell_id: check(cell_id, runs, having) for cell_id, having in sorted(cells.items())}
        merged = [open_cell(runs, cell_id, manifest) for cell_id, manifest in manifests.items()]
        for cell in merged:
            merge(cell, cells[cell.id])
    return merged


if __name__ == "__main__":
    main()
