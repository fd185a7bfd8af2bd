"""Views: variants of an export, made of hard links. They are what agents get to see.

>>> make_view(export, dest, graph=True, edges=False, tools_line=True)
>>> sorted(path.name for path in dest.iterdir())
['DATA_FORMAT.txt', 'candidate_ids.txt', 'nodes', 'schema.json']

The three switches are those of a `ToolPolicy`; only small text files are written anew.
Not covered: protection from writing, since a link shares its file with the export: the jail mounts views read-only.
"""

import errno
import os
import shutil
from pathlib import Path

import orjson

from dkgi.graph.export import data_format, write_schema
from dkgi.paths import data_dir
from dkgi.types import SetupError

EDGE_KEYS = ("relation_types", "notes")
"""What schema.json loses in a view without edges (paper, section 7)."""


def make_view(export: Path, dest: Path, *, graph: bool, edges: bool, tools_line: bool) -> None:
    """Make the new folder `dest` with what an agent may see of `export`.

    graph       False: one README, nothing of the graph
    edges       False: no edge files, and schema.json and DATA_FORMAT.txt do not speak of edges
    tools_line  False: DATA_FORMAT.txt lacks its last line, which says what programs suit

    The same bytes every time. SetupError if files cannot be hard-linked, and then `dest` is not left behind.
    """
    dest.mkdir()
    try:
        if graph:
            link_files(export, dest, edges=edges)
            write_texts(export, dest, edges=edges, tools_line=tools_line)
        else:
            (dest / "README").write_bytes((data_dir("prompts") / "readme_no_graph.txt").read_bytes())
        for path in [dest, *dest.rglob("*")]:
            if path.is_dir() or path.stat().st_nlink == 1:
                path.chmod(0o755 if path.is_dir() else 0o644)
    except BaseException:
        shutil.rmtree(dest, ignore_errors=True)
        raise


def link_files(export: Path, dest: Path, *, edges: bool) -> None:
    """Hard links to the big files: a copy for each view could be gigabytes."""
    names = ["candidate_ids.txt"]
    for folder in ("nodes", "edges") if edges else ("nodes",):
        (dest / folder).mkdir()
        names += [f"{folder}/{path.name}" for path in sorted((export / folder).iterdir())]
    try:
        for name in names:
            os.link(export / name, dest / name)
    except OSError as error:
        if error.errno == errno.EXDEV:
            raise SetupError(
                f"{dest} is on another file system than {export} and cannot share its files; "
                "set DKGI_DATA to a folder whose graphs/ and w/ are on one file system"
            ) from error
        if error.errno == errno.EPERM:
            raise SetupError(
                f"{export} belongs to another user, or its file system has no hard links; "
                "set DKGI_DATA to a folder of your own on a file system that has them"
            ) from error
        raise


def write_texts(export: Path, dest: Path, *, edges: bool, tools_line: bool) -> None:
    """DATA_FORMAT.txt and schema.json, cut to what the view holds."""
    (dest / "DATA_FORMAT.txt").write_text(data_format(edges=edges, tools_line=tools_line), encoding="utf-8")
    schema = orjson.loads((export / "schema.json").read_bytes())
    if not edges:
        schema = {key: value for key, value in schema.items() if key not in EDGE_KEYS}
    write_schema(schema, dest / "schema.json")
