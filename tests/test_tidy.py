"""The shape of the tree: imports point one way, the core is pure, nothing private is committed."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "sterna"

MAY_IMPORT = {
    "model": set(),
    "matching": {"model"},
    "core": {"model", "matching"},
    "wire": {"model", "matching", "core"},
    "journal": {"model", "matching", "core"},
    "sim": {"model", "matching", "core", "wire"},
    "mqtt": set(),
    "devices": {"model", "matching", "core", "wire", "mqtt"},
    "net": {"model", "matching", "core", "wire", "journal", "mqtt", "devices"},
    "pipeline": {"model", "matching", "core", "wire", "journal", "net"},
    "bench": {
        *("model", "matching", "core", "wire", "journal", "sim", "mqtt", "net", "pipeline"),
    },
    "experiments": {"model", "matching", "core", "wire", "sim", "pipeline"},
    "demo": {"model", "matching", "core", "wire", "journal", "sim", "net", "pipeline"},
    "console": {"model", "matching", "core", "wire", "sim", "net", "pipeline", "experiments"},
    "cli": {
        *("model", "matching", "core", "wire", "sim", "net", "pipeline", "bench", "experiments"),
        *("console", "demo", "journal", "mqtt"),
    },
}
"""For each package, the packages below it."""

IMPURE = {
    *("asyncio", "concurrent", "datetime", "logging", "multiprocessing", "os", "pathlib", "queue"),
    *("random", "secrets", "select", "selectors", "signal", "socket", "ssl", "subprocess", "sys"),
    *("tempfile", "threading", "time", "urllib", "uuid", "uvloop"),
}
"""Clocks, randomness, I/O and concurrency: the core takes them as inputs, never by itself."""

IMPURE_CALLS = {"open", "print", "input", "id", "hash"}
"""Built-ins whose result or effect differs from run to run."""


def imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    """Every imported module with its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield node.module or "", node.lineno
            if node.module == "sterna":
                yield from ((f"sterna.{alias.name}", node.lineno) for alias in node.names)


def wrong_direction(package: str, source: str) -> list[str]:
    """Imports of a package from one that it must not know."""
    problems = []
    for module, line in imports(ast.parse(source)):
        parts = module.split(".")
        if parts[0] != "sterna" or len(parts) < 2 or parts[1] not in MAY_IMPORT:
            continue
        if parts[1] != package and parts[1] not in MAY_IMPORT[package]:
            problems.append(f"line {line}: {package} imports {module}")
    return problems


def impurities(source: str) -> list[str]:
    """What the core must not do: I/O, clocks, randomness, async, and loops over unordered sets."""
    tree = ast.parse(source)
    problems = [f"line {n}: import of {m}" for m, n in imports(tree) if m.split(".")[0] in IMPURE]
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.AsyncFunctionDef | ast.Await | ast.AsyncFor | ast.AsyncWith):
            problems.append(f"line {line}: async")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in IMPURE_CALLS:
                problems.append(f"line {line}: call of {node.func.id}()")
        elif isinstance(node, ast.For | ast.comprehension) and _is_set(node.iter):
            problems.append(f"line {node.iter.lineno}: a loop over a set has no fixed order")
    return problems


def _is_set(node: ast.expr) -> bool:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"set", "frozenset"}
    return isinstance(node, ast.Set | ast.SetComp)


def modules() -> list[Path]:
    return sorted(SOURCE.rglob("*.py"))


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_point_one_way(path: Path) -> None:
    package = path.relative_to(SOURCE).parts[0]
    if package in MAY_IMPORT:
        assert not wrong_direction(package, path.read_text(encoding="utf-8"))


def test_the_kernels_depend_on_each_other_only() -> None:
    """What numba compiled before is loaded as long as no file in their folder has changed."""
    kernels = SOURCE / "matching" / "kernels"
    others = [
        f"{path.name} imports {module}"
        for path in kernels.rglob("*.py")
        for module, _ in imports(ast.parse(path.read_text(encoding="utf-8")))
        if module.split(".")[0] == "sterna" and not module.startswith("sterna.matching.kernels.")
    ]

    assert not others
    assert not [path for path in kernels.iterdir() if path.is_dir() and path.name != "__pycache__"]


def test_every_package_has_its_place() -> None:
    packages = {path.name for path in SOURCE.iterdir() if (path / "__init__.py").exists()}

    assert packages <= set(MAY_IMPORT)


def test_the_core_is_pure() -> None:
    problems = [
        f"{path.relative_to(ROOT)}, {problem}"
        for path in modules()
        if "core" in path.relative_to(SOURCE).parts
        for problem in impurities(path.read_text(encoding="utf-8"))
    ]

    assert not problems


@pytest.mark.parametrize(
    "source",
    [
        "import time",
        "from os import path",
        "import asyncio.queues",
        "async def f(): ...",
        "print('x')",
        "x = id(object())",
        "for x in {1, 2}: pass",
        "y = [x for x in set(z)]",
    ],
)
def test_an_impurity_is_found(source: str) -> None:
    assert impurities(source)


@pytest.mark.parametrize(
    ("package", "source"),
    [
        ("model", "from sterna.core.broker import Broker"),
        ("core", "import sterna.sim.kernel"),
        ("sim", "from sterna import net"),
        ("pipeline", "from sterna.sim import oracle"),
    ],
)
def test_a_wrong_import_is_found(package: str, source: str) -> None:
    assert wrong_direction(package, source)


def test_every_module_says_its_job_in_a_docstring() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in modules()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]

    assert not silent


def committed() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"],  # noqa: S607
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


INDEX_ADDRESS = re.compile(r"(--(extra-)?index-url|--find-links|https?://\S*/simple\b)")


def test_the_lock_file_names_packages_and_versions_only() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = re.compile(r"[a-z0-9_.-]+==[^\s;]+( ; .+)?")

    assert all(line.startswith("#") or pinned.fullmatch(line) for line in lines)


def test_no_committed_file_names_a_package_index() -> None:
    own = Path(__file__).name
    leaks = [
        str(path.relative_to(ROOT))
        for path in committed()
        if path.name != own
        and INDEX_ADDRESS.search(path.read_text(encoding="utf-8", errors="replace"))
    ]

    assert not leaks
