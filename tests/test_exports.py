"""What a user imports: documented, typed, and light to load."""

import ast
import pickle
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from copy import copy, deepcopy
from importlib import import_module
from pathlib import Path

import pytest

import sterna
from sterna.mqtt.packets import Pingreq, ReasonCode

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src"

COMMANDS = {"bench", "cli", "demo", "experiments"}
"""Packages behind commands: their errors end there, as messages."""


def error_classes() -> Iterator[tuple[str, str]]:
    """The module and the name of each error that is defined."""
    for path in sorted((SOURCE / "sterna").rglob("*.py")):
        module = ".".join(path.relative_to(SOURCE).with_suffix("").parts)
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and node.name.endswith("Error"):
                yield module, node.name


def test_every_public_name_is_there_and_documented() -> None:
    for name in sterna.__all__:
        if name != "__version__":
            assert getattr(sterna, name).__doc__, name
    assert set(sterna.__all__) <= set(dir(sterna))


def test_all_errors_have_one_root_and_are_exported() -> None:
    found = list(error_classes())
    for module, name in found:
        error = getattr(import_module(module), name)
        assert issubclass(error, sterna.SternaError), (module, name)
        if module.split(".")[1] not in COMMANDS:
            assert getattr(sterna, name) is error, (module, name)
            assert name in sterna.__all__, (module, name)
    assert len(found) > 25


@pytest.mark.parametrize(
    ("name", "also"),
    [
        ("FilterError", ValueError),
        ("UnboundError", ValueError),
        ("LocationError", ValueError),
        ("ConfigError", ValueError),
        ("AddressError", ValueError),
        ("SegmentDamagedError", ValueError),
        ("TopologyError", ValueError),
        ("EventTooLargeError", ValueError),
        ("SubscriptionTooLargeError", ValueError),
        ("TimedOutError", TimeoutError),
    ],
)
def test_errors_are_also_what_python_calls_them(name: str, also: type[Exception]) -> None:
    assert issubclass(getattr(sterna, name), also)


WITH_FIELDS = [
    sterna.TooLargeError("too large", size=7, limit=5),
    sterna.EventTooLargeError("too large", size=7, limit=5),
    sterna.SubscriptionTooLargeError("too large", size=7, limit=5),
    sterna.NotConnectedError("nobody", brokers=("sterna://a:1", "sterna://b:2"), instead="B1"),
    sterna.NetworkRunsError("already", pid=7),
    sterna.ClosedError("refused", broker="B1"),
    sterna.DiscardedError("given up", limit=3),
    sterna.TimedOutError("late", timeout=0.5),
    sterna.FilterError("what is this", "a >", 3),
    sterna.UnknownProtocolError("round-trips"),
    sterna.UnconfirmedError("too old", nodes=("B1", "B2")),
    sterna.FactsMissingError("gone", 7),
    sterna.ConfigError(["a: is not a key", "b: is no number"]),
    sterna.MissingExtraError("not installed", extra="plots"),
    sterna.MqttError(ReasonCode.MALFORMED_PACKET, "no UTF-8", before=[Pingreq()]),
]


def errors() -> Iterator[sterna.SternaError]:
    """An example of each error that is exported."""
    yield from WITH_FIELDS
    for name in sterna.__all__:
        kind = getattr(sterna, name)
        if name.endswith("Error") and kind not in map(type, WITH_FIELDS):
            yield kind("why")


@pytest.mark.parametrize("error", [*errors()], ids=lambda error: type(error).__name__)
def test_errors_are_the_same_in_other_processes_and_as_copies(error: sterna.SternaError) -> None:
    """A client raises a copy of its failure at each call."""
    sent = pickle.loads(pickle.dumps(error))  # noqa: S301 - just made.
    for again in (sent, copy(error), deepcopy(error)):
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.args == error.args
        assert vars(again) == vars(error)
        assert getattr(again, "msg", None) == getattr(error, "msg", None)
    assert bool(vars(error)) == (error in WITH_FIELDS)


def test_the_first_address_of_an_error_is_its_broker() -> None:
    assert sterna.NotConnectedError("", brokers=("sterna://a:1", "b")).broker == "sterna://a:1"
    assert sterna.NotConnectedError("").broker is None


def test_what_is_not_there_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = sterna.nothing


def test_the_version_is_the_packages() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    assert sterna.__version__ == project["version"]


def test_importing_sterna_loads_nothing_else() -> None:
    """No library, and no module of its own before somebody uses it."""
    program = (
        "import sys; before = set(sys.modules); import sterna\n"
        "new = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(new - sys.stdlib_module_names))\n"
        "print([name for name in sys.modules if name.startswith('sterna.')])"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout.splitlines() == ["['sterna']", "[]"]


def test_the_client_loads_no_optional_library() -> None:
    program = (
        "import sys, sterna; sterna.connect, sterna.blocking, sterna.Filter\n"
        "print({'numpy', 'numba', 'pyarrow', 'pyspark', 'typer', 'uvloop'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert answer.stdout.strip() == "set()"
