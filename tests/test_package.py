"""What `pip install sterna` gives: light to load, and clear about what it leaves out."""

import ast
import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from email import message_from_string
from email.message import Message
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import sterna
from sterna.extras import LIBRARIES
from sterna.sim.generate import Plan, generate
from sterna.sim.run import run
from sterna.sim.topology import tree
from tests.light import ROOT, SOURCE, LightPython, project, requirements
from tests.net.live import network_in

PACKAGE = SOURCE / "sterna"

BEHIND = (
    *("sterna.matching.", "sterna.model.filters.spark"),
    *("sterna.net.archive", "sterna.net.historian", "sterna.net.http", "sterna.net.metrics"),
    *("sterna.pipeline.compiled", "sterna.pipeline.schemas"),
)
"""Parts of something that asks for its extra before it loads them: an index, a broker, Spark."""

LIGHT = ("model", "core", "wire", "sim", "net.client", "net.blocking", "experiments", "cli")
"""What must work without any extra; of `cli`, all but what `sterna demo` shows."""

BROUGHT_ALONG = {"llvmlite": "numba", "py4j": "pyspark"}
"""Libraries that are imported and come with another one."""


def modules() -> list[str]:
    paths = [path for path in sorted(PACKAGE.rglob("*.py")) if path.stem != "__main__"]
    names = [".".join(path.relative_to(SOURCE).with_suffix("").parts) for path in paths]
    return [name.removesuffix(".__init__") for name in names]


def package_of(module: str) -> str:
    """The package that brings a module."""
    return canonicalize_name(_packages().get(module, [module])[0])


_packages = cache(packages_distributions)


def libraries(path: Path) -> set[str]:
    """The packages, other than Sterna, that a module imports, early or late, but not for types."""
    return {
        package_of(name)
        for name in _imported(ast.parse(path.read_text(encoding="utf-8")))
        if name not in sys.stdlib_module_names and name != "sterna"
    }


def _imported(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
        return
    if isinstance(node, ast.Import):
        yield from (alias.name.split(".")[0] for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module is not None:
        yield node.module.split(".")[0]
    for child in ast.iter_child_nodes(node):
        yield from _imported(child)


# ---- Without extras

IMPORT_ALL = """
import json, sys
from importlib import import_module

found = {}
for name in sys.argv[1:]:
    try:
        import_module(name)
        found[name] = None
    except ImportError as error:
        found[name] = [type(error).__name__, str(error)]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def loaded(light: LightPython) -> dict[str, list[str] | None]:
    """For each module None, or the error's class and message, if it is loaded without extras."""
    found: dict[str, list[str] | None] = json.loads(light.run(IMPORT_ALL, *modules()))
    return found


def test_a_module_loads_without_extras_or_says_what_to_install(
    loaded: dict[str, list[str] | None],
) -> None:
    raw = {
        name: problem
        for name, problem in loaded.items()
        if problem is not None and problem[0] != "MissingExtraError" and not name.startswith(BEHIND)
    }

    assert not raw
    missing = [text for name, text in filter(None, loaded.values()) if name == "MissingExtraError"]
    assert missing
    assert all(": pip install 'sterna[" in text for text in missing)


def test_clients_filters_simulator_and_commands_need_no_extra(
    loaded: dict[str, list[str] | None],
) -> None:
    light = tuple(f"sterna.{name}" for name in LIGHT)
    heavy = [name for name, problem in loaded.items() if name.startswith(light) and problem]

    assert sorted(heavy) == ["sterna.cli.performing", "sterna.model.filters.spark"]


def test_all_public_names_are_there_without_extras(light: LightPython) -> None:
    program = "import sterna; print(*[name for name in sterna.__all__ if getattr(sterna, name)])"

    assert light.run(program).split() == sterna.__all__


SIMULATION = """
from sterna.sim.generate import Plan, generate
from sterna.sim.run import run
from sterna.sim.topology import tree

outcome = run(generate(Plan(topology=tree(2, 1), clients=10, subscriptions=80, events=20), seed=7))
print(outcome.published, outcome.delivered, outcome.frames, len(outcome.findings))
"""


def test_a_simulation_is_the_same_without_extras(light: LightPython) -> None:
    """Its brokers have enough subscriptions for the compiled index, if there is one."""
    plan = Plan(topology=tree(2, 1), clients=10, subscriptions=80, events=20)
    outcome = run(generate(plan, seed=7))

    told = [int(word) for word in light.run(SIMULATION).split()]
    assert told == [outcome.published, outcome.delivered, outcome.frames, 0]
    assert outcome.delivered > 0


ROUND_TRIP = """
import asyncio, sys
import sterna

URL = sys.argv[1]

async def asynchronous():
    async with (
        sterna.connect(URL, client="car") as car, sterna.connect(URL, client="sensor") as sensor
    ):
        wanted = car.subscribe("service = 'parking' AND price < 3", past=10)
        for price in (2, 5, 1):
            await sensor.publish({"service": "parking", "price": price})
        return [(await anext(wanted)).attributes["price"] for _ in range(2)]

def blocking():
    with (
        sterna.blocking.connect(URL, client="car-2") as car,
        sterna.blocking.connect(URL, client="sensor-2") as sensor,
    ):
        wanted = car.subscribe("price > 30", past=10)
        sensor.publish({"price": 40})
        return next(iter(wanted)).attributes["price"]

print(asyncio.run(asynchronous()), blocking())
"""

COMMAND = "from sterna.cli.start import run; run()"


def test_clients_without_extras_speak_with_a_broker(light: LightPython, tmp_path: Path) -> None:
    with network_in(tmp_path, 1) as network:
        assert light.run(ROUND_TRIP, network.url("B1")).strip() == "[2, 1] 40"

        light.run(COMMAND, "pub", network.url("B1"), "street=Rebeca")
        answer = light.run(
            *(COMMAND, "sub", network.url("B1"), "street LIKE 'R%'"),
            *("--past", "1", "--count", "1"),
        )
    assert "street='Rebeca'" in answer


COMMANDS = """
import io, json, sys
from contextlib import redirect_stderr, redirect_stdout
from sterna.cli.main import run

answers = []
for line in sys.argv[1:]:
    sys.argv = ["sterna", *line.split()]
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with redirect_stdout(out), redirect_stderr(err):
        try:
            run()
        except SystemExit as end:
            status = end.code
    answers.append([status, out.getvalue(), err.getvalue()])
print(json.dumps(answers))
"""

LACKING = {
    "broker --name B1": "broker",
    "demo": "broker",
    "bench match": "broker",
    "bench sim": "broker",
    "bench match --plot x.svg": "plots",
    "sim run --journal kept": "broker",
    "pipeline run .": "pipeline",
    "pipeline audit .": "pipeline",
    "pipeline match --events . --subscriptions .": "pipeline",
    "pipeline mine --fixes .": "pipeline",
    "pipeline report .": "plots",
}
"""Commands, and the extra that each wants first."""


def test_a_command_says_in_one_line_which_extra_it_needs(light: LightPython) -> None:
    answers = json.loads(light.run(COMMANDS, *LACKING))

    for (command, extra), (status, out, error) in zip(LACKING.items(), answers, strict=True):
        assert (status, out) == (2, ""), (command, error)
        assert error.startswith("error: "), command
        assert error.endswith(f": pip install 'sterna[{extra}]'\n"), command
        assert error.count("\n") == 1, command


def test_it_says_so_to_programs_as_json(light: LightPython) -> None:
    answers = json.loads(light.run(COMMANDS, "up --json", "demo --json", "pipeline audit . --json"))

    for status, out, error in answers:
        assert (status, error) == (2, "")
        assert "pip install 'sterna[" in json.loads(out)["error"]


CALLS = """
import asyncio
from pathlib import Path
import sterna
from sterna.matching import MatchIndex
from sterna.net.local import LocalNetwork
from sterna.pipeline.session import spark_session

async def journalling():
    async with sterna.connect("sterna://127.0.0.1:1", client="car", journal=Path("kept")):
        pass

index = MatchIndex()
for call in (
    lambda: __import__("sterna.net.broker"),
    lambda: __import__("sterna.journal"),
    lambda: __import__("sterna.pipeline.source"),
    lambda: LocalNetwork(1, directory=Path("network")),
    lambda: asyncio.run(journalling()),
    lambda: index.match_batch({"a": [1]}),
    lambda: index.compiled(),
    lambda: sterna.Filter("a = 1").to_spark(None),
    lambda: spark_session(),
):
    try:
        call()
    except sterna.SternaError as error:
        print(type(error).__name__, getattr(error, "extra", ""), error, sep="|")
"""


CALLED = """
MissingExtraError|broker|a broker needs BROKER
MissingExtraError|broker|a journal needs numpy and pyarrow: pip install 'sterna[broker]'
MissingExtraError|pipeline|the Spark connector needs PIPELINE
MissingExtraError|broker|a network of brokers needs BROKER
MissingExtraError|broker|a journal needs numpy and pyarrow: pip install 'sterna[broker]'
MissingExtraError|broker|matching batches needs numba and numpy: pip install 'sterna[broker]'
MissingExtraError|broker|a compiled index needs numba and numpy: pip install 'sterna[broker]'
MissingExtraError|pipeline|a filter for Spark needs pyspark: pip install 'sterna[pipeline]'
SparkUnavailable||Spark needs PIPELINE
"""
BROKER = "numba, numpy, prometheus_client and pyarrow: pip install 'sterna[broker]'"
PIPELINE = "numpy, pandas, pyarrow and pyspark: pip install 'sterna[pipeline]'"


def test_a_call_says_which_extra_it_needs(light: LightPython) -> None:
    expected = CALLED.replace("BROKER", BROKER).replace("PIPELINE", PIPELINE)

    assert light.run(CALLS).strip() == expected.strip()


# ---- Dependencies


def test_the_base_dependencies_are_those_that_are_imported(
    loaded: dict[str, list[str] | None],
) -> None:
    """Of what loads without extras; what it imports late and can do without is in an extra."""
    light = [name for name, problem in loaded.items() if problem is None]
    imported: set[str] = set()
    for name in light:
        path = SOURCE.joinpath(*name.split("."))
        imported |= libraries(path / "__init__.py" if path.is_dir() else path.with_suffix(".py"))

    optional = requirements("all")
    assert imported - optional == requirements()
    assert not requirements() & optional


def test_whatever_is_imported_is_a_dependency() -> None:
    imported = {library for path in PACKAGE.rglob("*.py") for library in libraries(path)}

    assert {BROUGHT_ALONG.get(name, name) for name in imported} <= (
        requirements() | requirements("all")
    )


def test_an_extra_brings_what_the_code_asks_for() -> None:
    for extra, names in LIBRARIES.items():
        assert set(map(package_of, names)) <= requirements(extra), extra
    assert requirements("all") == set().union(*map(requirements, LIBRARIES))
    assert requirements("all") <= requirements("dev")
    assert requirements("spark") == requirements("pipeline")


def test_the_lock_file_pins_every_dependency() -> None:
    lines = (ROOT / "requirements.lock").read_text(encoding="utf-8").splitlines()
    pinned = {line.partition("==")[0] for line in lines if not line.startswith("#")}

    assert requirements() | requirements("dev") <= pinned


# ---- The wheel

BUILD = "import sys; from setuptools import build_meta; build_meta.build_wheel(sys.argv[1])"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[zipfile.ZipFile]:
    tree = tmp_path_factory.mktemp("tree")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tree)
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(SOURCE, tree / "src", ignore=ignored)
    built = tmp_path_factory.mktemp("wheel")
    subprocess.run(
        [sys.executable, "-c", BUILD, str(built)], cwd=tree, check=True, capture_output=True
    )
    (path,) = built.iterdir()
    with zipfile.ZipFile(path) as opened:
        yield opened


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    (name,) = [name for name in wheel.namelist() if name.endswith("/METADATA")]
    return message_from_string(wheel.read(name).decode())


def test_the_wheel_has_every_file_of_the_package(wheel: zipfile.ZipFile) -> None:
    ours = {
        path.relative_to(SOURCE).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }

    assert {name for name in wheel.namelist() if ".dist-info/" not in name} == ours
    assert "sterna/py.typed" in ours


def test_the_wheel_says_what_it_is(metadata: Message, wheel: zipfile.ZipFile) -> None:
    table = project()
    assert metadata["Summary"] == table["description"]
    assert metadata["Version"] == sterna.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    said = metadata.get_all("Classifier", [])
    assert {"Framework :: AsyncIO", "Typing :: Typed"} <= set(said)
    oldest = table["requires-python"].removeprefix(">=")
    assert f"Programming Language :: Python :: {oldest}" in said
    (entries,) = [name for name in wheel.namelist() if name.endswith("/entry_points.txt")]
    assert b"sterna = sterna.cli.start:run" in wheel.read(entries)


def test_the_wheel_installs_the_base_dependencies_and_names_its_extras(metadata: Message) -> None:
    needed = [Requirement(line) for line in metadata.get_all("Requires-Dist", [])]
    base = {each.name for each in needed if not each.marker or each.marker.evaluate({"extra": ""})}

    assert {canonicalize_name(name) for name in base} == requirements()
    assert {"broker", "pipeline", "plots", "all"} <= set(metadata.get_all("Provides-Extra", []))
