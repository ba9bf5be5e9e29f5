"""Attributes of any name: published from a mapping, and found by filters."""

import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import sterna
from sterna.net.local import LocalNetwork
from tests.net.live import SETTLE_S, connect, network_in

pytestmark = pytest.mark.spec("LV-2")

NAMES = (
    *("attributes", "payload", "self", "more", "from", "class", "and", "IN", "true", "myloc"),
    *("timeout", "a.b.c", "car-type", "two words", "Größe", "价格", 'a "quoted" one', "it's", "$x"),
    *("1st", " ", "\t", "--", "%", "a\nb"),
)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNetwork]:
    with network_in(tmp_path_factory.mktemp("attributes"), 1) as network:
        yield network


def quoted(name: str) -> str:
    """An attribute of any name, in the filter language."""
    return '"' + name.replace('"', '""') + '"'


def found(network: LocalNetwork, names: list[str]) -> list[dict[str, object]]:
    """The attributes of the event that a subscription to each name has brought."""

    async def run() -> list[dict[str, object]]:
        async with connect(network.url("B1"), client="names") as client:
            wanted = [
                client.subscribe(f"{quoted(name)} = {number} AND NOT {quoted(name)} <> {number}")
                for number, name in enumerate(names)
            ]
            await client.publish({name: number for number, name in enumerate(names)}, b"payload")
            events = [await each.get(timeout=SETTLE_S) for each in wanted]
            assert {event.payload for event in events} == {b"payload"}
            return [dict(event.attributes) for event in events]

    return asyncio.run(run())


def test_names_that_are_hard_to_say(network: LocalNetwork) -> None:
    expected = {name: number for number, name in enumerate(NAMES)}

    assert found(network, list(NAMES)) == [expected] * len(NAMES)


@settings(max_examples=25, deadline=None)
@given(names=st.lists(st.text(st.characters(codec="utf-8"), min_size=1), min_size=1, unique=True))
def test_names_of_all_kinds(network: LocalNetwork, names: list[str]) -> None:
    expected = {name: number for number, name in enumerate(names)}

    assert found(network, names) == [expected] * len(names)


def test_keywords_are_attributes_but_for_two(network: LocalNetwork) -> None:
    """Who mistakes `attributes` and `payload` for attributes is told what to write."""
    with sterna.blocking.connect(network.url("B1"), client="keywords") as client:
        wanted = client.subscribe("more = 1")
        client.publish({"from": "here", "more": 0}, self=2, more=1, timeout=3)
        event = wanted.get(SETTLE_S)
        assert event.attributes == {"from": "here", "self": 2, "more": 1, "timeout": 3}
        with pytest.raises(TypeError, match=r"publish\(\{'payload': …\}\)"):
            client.publish(payload="text")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"publish\(\{'attributes': …\}\)"):
            client.publish(attributes=3)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="attribute names are non-empty strings"):
            client.publish({"": 1})
        with pytest.raises(TypeError, match="attribute names are non-empty strings"):
            client.publish({1: 1})  # type: ignore[dict-item]
