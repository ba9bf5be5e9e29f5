"""What a broker does again and again goes on, whatever happens in between."""

from pathlib import Path
from unittest.mock import patch

import pytest

from sterna.core.facts import Accepted, Fact
from sterna.journal import facts_in, read_journal
from sterna.net.broker import BrokerServer, server
from sterna.net.broker.limits import Limits
from tests.net.live import connect, until
from tests.net.test_server import config_in, run

pytestmark = pytest.mark.spec("LV-6")


class Odd(Fact, frozen=True, kw_only=True):
    """Has a field of which no journal has a form."""

    seen: object


@pytest.fixture(autouse=True)
def _often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HOUSEKEEPING_S", 0.01)


def test_a_fact_that_no_journal_can_hold_is_lost_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The facts after it are written, and by and by, not only when the broker stops."""

    def accepted() -> int:
        batches = read_journal(tmp_path / "data" / "journal", "B1")
        return sum(isinstance(fact, Accepted) for batch in batches for fact in facts_in(batch))

    async def state() -> None:
        broker = BrokerServer(config_in(tmp_path, journal={"flush_s": 0.01}))
        await broker.start()
        async with connect(broker.address.url, client="c") as client:
            odd = Odd(at="B1", time=0, seen=complex(1, 2))
            broker.driver.stated(broker.engine.inputs, [odd], 0)
            await until(lambda: "facts that the journal cannot hold are lost: 1" in caplog.text)
            await client.publish(n=1)
            await until(lambda: accepted() == 1)
        await broker.stop()

    run(state())


@pytest.mark.parametrize("name", ["check_queues", "_look_for_the_silent"])
def test_an_unexpected_error_is_logged_and_the_next_turn_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    async def fail() -> None:
        broker = BrokerServer(config_in(tmp_path, heartbeat={"every_s": 0.01}))
        with patch.object(Limits, name, side_effect=RuntimeError("nobody expects this")) as failing:
            await broker.start()
            await until(lambda: failing.call_count > 2)
            failing.side_effect = None
            calls = failing.call_count
            await until(lambda: failing.call_count > calls)
        await broker.stop()

    run(fail())
    assert "has failed, and is tried again" in caplog.text
    assert "nobody expects this" in caplog.text
