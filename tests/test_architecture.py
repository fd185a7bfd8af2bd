"""Rules that keep the parts apart, read off the imports; and what users read, held against what there is."""

import ast
import os
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from dkgi.paths import data_dir

ROOT = Path(__file__).parent.parent
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "dkgi").rglob("*.py"))
}
AGENTS_SIDE = (
    "dkgi.runner",
    "dkgi.harness",
    "dkgi.tools",
    "dkgi.jail",
    "dkgi.models",
    "dkgi.context",
    "dkgi.process",
    "dkgi.kg",
    "dkgi.listener",
    "dkgi.gateway",
    "dkgi.session",
    "dkgi.toolserver",
    "dkgi.worker.run",
    "dkgi.worker.remote",
    "dkgi.worker.channel",
)
LABELS_SIDE = ("dkgi.gold", "dkgi.metrics", "dkgi.collect", "dkgi.tracking", "dkgi.analysis", "dkgi.questions")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def inside(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_types_import_the_standard_library_alone() -> None:
    assert {name.split(".")[0] for name in imports(MODULES["dkgi.types"])} <= set(sys.stdlib_module_names)


def test_only_tracking_imports_mlflow() -> None:
    users = {name for name, path in MODULES.items() if any(inside(used, ("mlflow",)) for used in imports(path))}
    assert users
    assert all(inside(name, ("dkgi.tracking",)) for name in users)


def test_only_the_wires_import_a_provider_sdk() -> None:
    users = {
        name: {used.split(".")[0] for used in imports(path)} & {"openai", "anthropic"} for name, path in MODULES.items()
    }
    assert {name: sdks for name, sdks in users.items() if sdks} == {
        "dkgi.models.anthropic_messages": {"anthropic"},
        "dkgi.models.openai_chat": {"openai"},
        "dkgi.models.openai_responses": {"openai"},
    }


@pytest.mark.parametrize("module", [name for name in MODULES if inside(name, AGENTS_SIDE)])
def test_the_agents_side_imports_nothing_that_knows_answers(module: str) -> None:
    assert [used for used in imports(MODULES[module]) if inside(used, LABELS_SIDE)] == []


def test_only_the_collecting_side_reads_gold() -> None:
    readers = {name for name, path in MODULES.items() if any(inside(used, ("dkgi.gold",)) for used in imports(path))}
    assert readers == {"dkgi.held"}


def test_no_code_is_imported_from_the_folders_of_data() -> None:
    folders = ("conf", "prompts", "sandbox", "launchers")
    assert [name for name, path in MODULES.items() if any(inside(used, folders) for used in imports(path))] == []


@pytest.mark.parametrize("module", [name for name in MODULES if not name.endswith("__main__")])
def test_importing_a_module_does_nothing_heavy(module: str) -> None:
    top = [
        node for node in ast.parse(MODULES[module].read_text()).body if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    names = {alias.name for node in top for alias in node.names} | {
        node.module for node in top if isinstance(node, ast.ImportFrom) and node.module
    }
    assert not {name.split(".")[0] for name in names} & {"mlflow", "pandas", "scipy", "openai", "anthropic", "bm25s"}


def test_the_gateways_server_is_not_loaded_before_an_external_program_needs_it() -> None:
    program = "import sys, dkgi.experiment, dkgi.harness.pi, dkgi.harness.codex; print({'uvicorn', 'starlette'} & {*sys.modules})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.parametrize("path", sorted((ROOT / "sandbox").glob("*.py")), ids=lambda path: path.name)
def test_what_runs_in_a_jail_needs_the_standard_library_alone(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(path)} <= set(sys.stdlib_module_names)


def test_the_readme_names_every_option_and_key() -> None:
    readme = (ROOT / "README.md").read_text()
    conf = data_dir("conf")
    options = [path for path in conf.glob("*/*.yaml") if path.parent.name != "hydra"]
    missing = [f"{path.parent.name}={path.stem}" for path in options if f"`{path.stem}`" not in readme]
    keys = [line.split(":")[0] for line in (conf / "config.yaml").read_text().splitlines() if line[:1].isalpha()]
    missing += [key for key in keys if key not in ("defaults", "hydra") and f"`{key}`" not in readme]
    assert missing == []


def test_a_wheel_carries_all_it_needs(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    subprocess.run(command, check=True, timeout=120, capture_output=True)
    (wheel,) = tmp_path.glob("dkgi-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import dkgi; print(dkgi.__file__); from dkgi.__main__ import main; main()",
            "dry_run=oops",
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "site"), "DKGI_RUNS": str(tmp_path / "runs")},
    )
    assert done.stdout.startswith(str(tmp_path / "site"))
    assert done.stderr.startswith("dkgi: dry_run: ")
    packed = {
        path.relative_to(tmp_path / "site" / "dkgi" / "_data")
        for path in (tmp_path / "site").rglob("_data/**/*")
        if path.is_file()
    }
    shipped = {
        path.relative_to(ROOT)
        for name in ("conf", "prompts", "sandbox")
        for path in (ROOT / name).rglob("*")
        if path.is_file()
    }
    assert packed == shipped
    assert (tmp_path / "site" / "hydra_plugins" / "dkgi_launchers" / "searchpath.py").is_file()
