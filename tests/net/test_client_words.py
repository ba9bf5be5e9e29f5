"""What the client library says: of mistakes with the right call in it, and of itself."""

import asyncio
import warnings
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import sterna
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in

pytestmark = pytest.mark.spec("LV-2")


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("words"), 1) as network:
        yield network


@pytest.fixture(scope="module")
def ann(network: LocalNetwork) -> Iterator[sterna.blocking.Client]:
    with sterna.blocking.connect(network.url("B1"), client="ann") as client:
        yield client


# ---- Filters


def test_a_string_in_double_quotes_is_warned_about_where_it_stands(
    network: LocalNetwork, ann: sterna.blocking.Client
) -> None:
    async def subscribe() -> None:
        async with connect(network.url("B1")) as client:
            client.subscribe('service = "parking"')
            client.subscribe(sterna.Filter('service = "hotel"'))

    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        asyncio.run(subscribe())
        ann.subscribe('service = "parking"').close()

    assert [(each.category, each.filename) for each in told] == [
        (sterna.FilterWarning, __file__)
    ] * 3
    assert str(told[0].message).endswith("service = 'parking'")
    assert str(told[1].message).endswith("service = 'hotel'")


# ---- The past


BOTH: list[Any] = [(10, "5m"), (1, timedelta(minutes=5)), "10,5m"]
"""Bounds by number and time: whichever ends first."""


def test_a_period_is_written_as_on_the_command_line(ann: sterna.blocking.Client) -> None:
    ann.publish(topic="period").wait(SETTLE_S)

    for past in (*("5m", timedelta(minutes=5), timedelta(days=300_000), 1), *BOTH):
        with ann.subscribe("topic = 'period'", past=past) as begun:
            assert begun.get(SETTLE_S).attributes == {"topic": "period"}


@pytest.mark.parametrize(
    "wrong",
    [
        *(-1, "10", "5 minutes", "-5m", timedelta(-1), 1.5, True, b"5m"),
        *((-1, "5m"), ("5m", 10), (10, 10), (10, "1,5m"), (True, "5m"), "5m,10", ",5m", ()),
    ],
)
def test_a_past_that_makes_no_sense_is_told_with_the_right_call(
    network: LocalNetwork, ann: sterna.blocking.Client, wrong: Any
) -> None:
    async def subscribe() -> None:
        async with connect(network.url("B1")) as client:
            client.subscribe("topic = 'wrong'", past=wrong)

    for call in (
        lambda: asyncio.run(subscribe()),
        lambda: ann.subscribe("topic = 'wrong'", past=wrong),
    ):
        with pytest.raises((TypeError, ValueError), match=r"write past=10 .* past='5m'"):
            call()
    ann.subscribe("topic = 'wrong'").close()  # Nothing is left of it.


# ---- Publishing


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("parking", "write publish(service='parking', price=2)"),
        ([("price", 2)], "write publish(service='parking', price=2)"),
        (b"payload", "a payload follows the attributes: publish({'service': 'parking'}, b'…')"),
        (
            sterna.Event(publisher="x", seq=1, time_us=0),
            "write publish(event.attributes, event.payload)",
        ),
    ],
)
def test_what_is_no_event_is_told_with_the_right_call(
    ann: sterna.blocking.Client, wrong: Any, right: str
) -> None:
    with pytest.raises(TypeError) as told:
        ann.publish(wrong)

    assert right in str(told.value)
    assert len(str(told.value)) < 300


@pytest.mark.parametrize("wrong", [{"price": 2}, "price", [({"price": 2}, b"", 3)], [3]])
def test_what_is_no_list_of_events_is_told_with_the_right_call(
    network: LocalNetwork, ann: sterna.blocking.Client, wrong: Any
) -> None:
    async def publish() -> None:
        async with connect(network.url("B1")) as client:
            await client.publish_all(wrong)

    for call in (lambda: asyncio.run(publish()), lambda: ann.publish_all(wrong)):
        with pytest.raises(TypeError, match=r"publish_all\(\[\{'price': 2\}"):
            call()


# ---- Who and where


def test_every_object_says_who_it_is_and_where(network: LocalNetwork) -> None:
    async def look() -> None:
        client = connect(network.url("B1"), client="car-7")
        assert repr(client) == "<Client 'car-7', not connected>"
        async with client:
            assert repr(client) == f"<Client 'car-7', connected to B1 at {network.url('B1')}>"
            cheap = client.subscribe("price < 3", name="cheap")
            assert repr(cheap) == "<Subscription 'cheap' of 'car-7': price < 3, 0 waiting>"
            offers = client.advertise("price > 0", name="offers")
            assert repr(offers) == "<Advertisement 'offers' of 'car-7': price > 0>"
            receipt = client.publish(price=1)
            assert repr(receipt) == f"<Receipt of car-7#{receipt.id.seq}: waits for a broker>"
            await receipt
            assert repr(receipt) == f"<Receipt of car-7#{receipt.id.seq}: accepted>"
            event = await cheap.get(SETTLE_S)
            assert repr(event) == (
                f"Event(publisher='car-7', seq={event.seq}, time_us={event.time_us}, "
                "attributes={'price': 1}, payload=b'')"
            )
            await client.detach()
            assert repr(client) == "<Client 'car-7', not connected, last at B1>"
        assert repr(client) == "<Client 'car-7', closed>"
        assert repr(cheap) == "<Subscription 'cheap' of 'car-7': price < 3, closed, 0 waiting>"

    asyncio.run(look())


def test_so_do_those_for_threads(network: LocalNetwork, ann: sterna.blocking.Client) -> None:
    assert repr(ann) == f"<Client 'ann', connected to B1 at {network.url('B1')}>"
    receipt = ann.publish(n=1)
    receipt.wait(SETTLE_S)
    assert repr(receipt).startswith("<Receipt of ann#")
    assert repr(receipt).endswith(": accepted>")
    with ann.subscribe("n = 1 OR " + " OR ".join(f"n = {n}" for n in range(100))) as long:
        assert len(repr(long)) < 250
        assert "of 'ann': n = 1 OR" in repr(long)
    assert repr(ann.advertise("n > 0")) == "<Advertisement 'n > 0' of 'ann': n > 0>"


def test_a_large_payload_is_shown_in_part() -> None:
    event = sterna.Event(publisher="x", seq=1, time_us=0, payload=bytes(5_000))

    assert len(repr(event)) < 250
    assert "5,000 bytes" in repr(event)
