"""Nobody can fill the log of a broker: of each kind of line there are a few, and then a number."""

import asyncio
import io
import logging
import re
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from sterna.net.config import LogConfig, LogFormat
from sterna.net.limited_log import HOST_LINES_MAX, LINES_MAX, LimitedHandler
from sterna.net.local import LocalNetwork
from sterna.net.logs import MESSAGE_CHARACTERS_MAX, set_up_logging
from sterna.wire.frames import VERSION, Hello, Refusal, Role, control
from tests.net.live import network_in, until
from tests.net.test_hostile import Attacker, attacker
from tests.net.test_logs import _as_before, logged

pytestmark = pytest.mark.spec("LV-6")

__all__ = ["_as_before"]  # A fixture for all tests here.


class Lines:
    """A logger whose handler goes by a clock that the test sets."""

    def __init__(self, period_s: float = 10.0) -> None:
        self.now = 0.0
        self._stream = io.StringIO()
        self.handler = LimitedHandler(self._stream, period_s=period_s, clock=lambda: self.now)
        self._log = logging.Logger("sterna.test")
        self._log.addHandler(self.handler)

    def refuse(self, who: str, host: str | None = None) -> None:
        self._log.warning("refused %s", who, extra={"host": host} if host else None)

    def fail(self, who: str) -> None:
        self._log.error("failed at %s", who)

    def taken(self) -> list[str]:
        return self._stream.getvalue().splitlines()


def test_of_each_kind_there_are_a_few_lines_in_a_while() -> None:
    """The next ones come when the time is over, after the number of what was left out."""
    lines = Lines()
    for number in range(1_000):
        lines.refuse(str(number))
        lines.fail(str(number))
    first = lines.taken()
    assert len(first) == 2 * LINES_MAX
    assert first[:2] == ["refused 0", "failed at 0"]

    lines.now = 10.0
    lines.refuse("again")

    left_out = 1_000 - LINES_MAX
    assert lines.taken()[len(first) :] == [
        f"{left_out} more like this were left out within 10 s: refused 0",
        "refused again",
    ]


def test_one_host_does_not_hide_the_others() -> None:
    lines = Lines()
    for number in range(100):
        lines.refuse(str(number), "10.0.0.1")
    lines.refuse("another", "10.0.0.2")

    assert lines.taken() == [f"refused {n}" for n in range(HOST_LINES_MAX)] + ["refused another"]


def test_the_number_is_told_although_nothing_else_is_logged() -> None:
    lines = Lines(period_s=0.05)
    for number in range(100):
        lines.refuse(str(number))

    asyncio.run(until(lambda: len(lines.taken()) > LINES_MAX))

    assert lines.taken()[-1] == "90 more like this were left out within 0.05 s: refused 0"


def test_the_number_is_told_at_the_end() -> None:
    lines = Lines()
    for number in range(12):
        lines.refuse(str(number))

    lines.handler.close()
    lines.handler.close()

    assert lines.taken()[LINES_MAX:] == ["2 more like this were left out within 10 s: refused 0"]


@pytest.mark.parametrize("format_", LogFormat)
def test_a_long_message_is_cut(format_: LogFormat) -> None:
    stream = logged(format_)

    logging.getLogger("sterna.test").warning("%s refuses", "x" * 100_000)

    assert MESSAGE_CHARACTERS_MAX < len(stream.getvalue()) < MESSAGE_CHARACTERS_MAX + 200
    assert "100,008 characters" in stream.getvalue()


def test_what_the_event_loop_logs_is_limited_as_well() -> None:
    stream = io.StringIO()
    set_up_logging(LogConfig(), stream)

    async def fail() -> None:
        loop = asyncio.get_running_loop()
        for number in range(100):
            loop.call_exception_handler({"message": f"trouble {number}"})

    asyncio.run(fail())

    assert len(stream.getvalue().splitlines()) == LINES_MAX


# ---- A broker process


def hello(name: str, version: int = VERSION) -> bytes:
    return control(Hello(versions=(version, version), role=Role.CLIENT, node=name))


async def refuse(peer: Attacker, _: int) -> None:
    """Say what only makes sense from a broker that has been asked for something."""
    await peer.send(control(Refusal(reason="no " * 20_000)))


async def say_nonsense(peer: Attacker, number: int) -> None:
    await peer.send(number.to_bytes(4, "big") * 100)


async def greet_wrongly(peer: Attacker, number: int) -> None:
    await peer.send(hello(f"{number:0200}", version=77))


async def break_the_rules(peer: Attacker, number: int) -> None:
    """Come in under another name each time, and only then say nonsense."""
    await peer.send(hello(f"guest-{number}") + (2**31).to_bytes(4, "big"))


@pytest.mark.parametrize("attack", [refuse, say_nonsense, greet_wrongly, break_the_rules])
def test_a_stranger_cannot_fill_the_log(
    tmp_path: Path, attack: Callable[[Attacker, int], Awaitable[None]]
) -> None:
    """Hundreds of connections leave some lines and their number; another refusal is still seen."""
    connections = 300

    async def run(network: LocalNetwork) -> None:
        for number in range(connections):
            async with attacker(network) as peer:
                await attack(peer, number)
                await peer.hung_up()

    with network_in(tmp_path, 1) as network:
        asyncio.run(run(network))
        assert network.end("B1") == 0
    said = network.messages("B1").read_text(encoding="utf-8")
    assert len(said) < 10_000, "also if a slow machine takes more than one period"
    left_out = sum(map(int, re.findall(r"(\d+) more like this were left out", said)))
    lines = len(re.findall(r"host=127\.0\.0\.1$", said, re.MULTILINE))
    assert left_out + lines == connections
    assert lines % HOST_LINES_MAX == 0
