"""The journal of an application that several brokers watch for."""

import asyncio
from pathlib import Path

import pytest

from sterna.core.facts import Displayed, SessionWatches, WatchBegun, WatchEnded, Withheld
from sterna.journal import facts_in, read_journal
from sterna.model.event import EventId
from sterna.net.client.displays import Displays
from tests.net.live import SETTLE_S, connect, network_in

ONE, TWO = EventId("p", 1), EventId("p", 2)


@pytest.mark.spec("RE-1")
def test_the_journal_goes_on_where_the_last_program_ended(tmp_path: Path) -> None:
    async def program(events: list[EventId]) -> None:
        displays = Displays(tmp_path, "car")
        displays.open(lambda error: pytest.fail(str(error)))
        displays.began("1", "holding")
        displays.watches("car~1")
        displays.displayed("1", events)
        displays.displayed("1", [])
        displays.withheld("1", events[:1])
        displays.ended("1")
        await displays.close()

    asyncio.run(program([ONE, TWO]))
    asyncio.run(program([TWO]))

    batches = list(read_journal(tmp_path, "car~merged"))
    told = [fact for batch in batches for fact in facts_in(batch)]
    kinds = [WatchBegun, SessionWatches, Displayed, Withheld, WatchEnded]
    assert [type(fact) for fact in told] == 2 * kinds
    assert {fact.at for fact in told} == {"car~merged"}
    assert [fact.events for fact in told if isinstance(fact, Displayed)] == [(ONE, TWO), (TWO,)]
    assert [fact.events for fact in told if isinstance(fact, Withheld)] == [(ONE,), (TWO,)]
    positions = [position for batch in batches for position in batch["position"].to_pylist()]
    assert positions == sorted(set(positions))
    assert [fact.time for fact in told] == sorted(fact.time for fact in told)


@pytest.mark.spec("RE-1")
def test_what_is_held_back_at_the_end_is_stated_as_withheld(tmp_path: Path) -> None:
    """Of two brokers one is cut off. What comes after a gap waits for it, up to the end."""

    async def run(urls: dict[str, str]) -> list[EventId]:
        async with (
            connect(*urls.values(), client="car", watch=2, hold_s=60, journal=tmp_path) as car,
            connect(urls["B1"], client="p") as publisher,
        ):
            subscription = await car.subscribe("n > 0").ready(SETTLE_S)
            first = await publisher.publish(n=1)
            await subscription.get(SETTLE_S)
            await publisher.publish(n=0)
            (lost,) = [each for each in car.sessions if each.endswith("~2")]
            await car._sessions.open[lost].client.detach()
            last = await publisher.publish(n=2)
            while not subscription._merging.held:
                await asyncio.sleep(0.002)
            return [first, last]

    with network_in(tmp_path / "network", 2) as network:
        first, last = asyncio.run(run(network.urls))

    told = [fact for batch in read_journal(tmp_path, "car~merged") for fact in facts_in(batch)]
    assert [fact.events for fact in told if isinstance(fact, Displayed)] == [(first,)]
    assert [fact.events for fact in told if isinstance(fact, Withheld)] == [(last,)]
    assert isinstance(told[-1], WatchEnded)
