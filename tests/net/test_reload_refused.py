"""A reload that cannot be applied changes nothing, whatever is wrong, and the answer says what."""

import sys
from pathlib import Path

import pytest

from sterna.core import protocol as protocols
from sterna.errors import SternaError
from sterna.net.broker import BrokerServer
from sterna.net.config import MIB
from tests.net.live import connect
from tests.net.test_reload import Reloading
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-9")

PLUG_IN = """
from sterna.core.component import BrokerComponent
from sterna.core.messages import Message
from sterna.core.protocol import Protocol


class Noise(Message, frozen=True, kw_only=True):
    number: int


class Part(BrokerComponent):
    name = "plug-in"
"""

DEAF = "    handles = (Noise,)"
WITHOUT_MAKE = "    @classmethod\n    def make(cls, settings):\n        return 1 / 0"
WITHOUT_BEGINNING = "    def begin(self, now):\n        raise RuntimeError('not now')"

LISTED = '[network]\nprotocols = ["plug_in:PROTOCOL"]'


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with modules; the protocols in them are not known to other tests."""
    monkeypatch.setattr(protocols, "_protocols", dict(protocols._protocols))
    monkeypatch.delitem(sys.modules, "plug_in", raising=False)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def write_plug_in(directory: Path, part: str) -> None:
    text = f"{PLUG_IN}{part}\n\nPROTOCOL = Protocol(name='plug-in', broker=Part)\n"
    (directory / "plug_in.py").write_text(text, encoding="utf-8")


@pytest.mark.parametrize(
    ("part", "text", "said"),
    [
        ("    def", LISTED, "its module fails with SyntaxError"),
        (DEAF, LISTED, "TypeError (Part handles Noise but has no method on_noise)"),
        (WITHOUT_MAKE, LISTED, "ZeroDivisionError (division by zero)"),
        (WITHOUT_BEGINNING, LISTED, "cannot work with these settings: RuntimeError (not now)"),
        ("", f"{LISTED}\n[protocols.plug-in]\nmuch = {2**64}", "settings: OverflowError"),
    ],
    ids=["syntax", "no handler", "no component", "no beginning", "no form on the network"],
)
def test_a_protocol_that_fails(modules: Path, part: str, text: str, said: str) -> None:
    """Nothing of it reaches the log, so the broker starts again with its old configuration."""

    async def reload() -> None:
        broker = Reloading(modules)
        await broker.server.start()
        before, settings = broker.server.config, broker.server.node.settings
        write_plug_in(modules, part)

        report = await broker.reload(f"{text}\n[limits]\nkept_s = 5")

        assert said in report["error"]
        assert not report["applied"]
        assert broker.server.config is before
        assert broker.server.node.settings is settings
        async with connect(broker.server.address.url, client="c") as client:
            await client.publish(n=1)
        await broker.server.stop()
        again = Reloading(modules)
        await again.server.start()
        await again.server.stop()

    run(reload())


def test_settings_that_cannot_be_written_start_no_broker(modules: Path) -> None:
    """Clients would have to know them, and could not be told."""
    write_plug_in(modules, "")
    config = config_in(
        modules,
        network={"protocols": ["plug_in:PROTOCOL"]},
        protocols={"plug-in": {"much": 2**64}},
    )

    async def start() -> None:
        with pytest.raises(SternaError, match="cannot work with these settings: OverflowError"):
            await BrokerServer(config).start()

    run(start())


def test_an_error_of_whatever_kind_is_an_answer(tmp_path: Path) -> None:
    async def reload() -> None:
        broker = Reloading(tmp_path)

        def read() -> None:
            raise RuntimeError("nobody expects this")

        broker.server = BrokerServer(broker.read(), reread=read)  # type: ignore[arg-type]
        await broker.server.start()
        report = await broker.reload("[limits]\nkept_s = 5")
        assert report["error"] == "RuntimeError (nobody expects this)"
        assert not report["applied"]
        await broker.server.stop()

    run(reload())


def test_keys_that_contradict_what_a_broker_was_started_with(tmp_path: Path) -> None:
    """The file alone is right, but a log with files of 64 MiB does not fit into 3 MiB."""
    small = '[durability]\nsegment_bytes = "1 MiB"\nsnapshot_bytes = "1 MiB"\nbytes_max = "3 MiB"'

    async def reload() -> None:
        broker = Reloading(tmp_path)
        await broker.server.start()
        report = await broker.reload(small)
        assert report["error"].startswith("durability.bytes_max: is less than segment_bytes and")
        assert report["error"].endswith(": restart it")
        assert broker.server.config.durability.bytes_max > 3 * MIB
        await broker.server.stop()

    run(reload())


def test_a_limit_below_what_the_log_takes(tmp_path: Path) -> None:
    """The broker would stop at the next event. The limit that it has may be as close as it is."""
    start = '[durability]\nsegment_bytes = "64 KiB"\nsnapshot_bytes = "1 MiB"\nbytes_max = "2 MiB"'

    async def reload() -> None:
        broker = Reloading(tmp_path, start)
        await broker.server.start()
        async with connect(broker.server.address.url, client="c") as client:
            await client.publish_all(({"n": n}, bytes(10_000)) for n in range(50))
            report = await broker.reload(
                start.replace("1 MiB", "100 KiB").replace("2 MiB", "300 KiB")
            )
            assert "bytes now: needs at least" in report["error"]
            report = await broker.reload(start.replace("1 MiB", "1984 KiB"))
            assert report["applied"] == ["durability.snapshot_bytes"]
            await client.publish(n=1)
        assert broker.server.failure is None
        await broker.server.stop()

    run(reload())
