"""A client that has a location and variables."""

import pytest

from sterna.core.assembly import make_client
from sterna.core.client import Client
from sterna.core.facts import Adapted, Moved, Subscribed, VariableSet
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Configured, MoveTo, SetVariable, Subscribe
from sterna.core.location.options import PlacesOptions
from sterna.core.names import LocalProtocolError
from sterna.core.settings import ClientOptions, Settings
from sterna.model.event import Event, Scalar
from sterna.model.filters import Filter
from sterna.sim.script import Drop
from sterna.sim.topology import line
from sterna.wire.snapshots import encode_node, restore_node
from tests.sim.overlay import Overlay
from tests.sim.watching import moving_at

ROW = PlacesOptions(
    edges=(("a", "b"), ("b", "c"), ("c", "d"), ("d", "e"), ("e", "f")), dwell_us=10_000_000
)


def row(*, at: str | None = "a", handover: HandoverOptions | None = None) -> Overlay:
    return Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        places=ROW,
        locations={} if at is None else {"ann": at},
        handover=handover,
    )


# ---- What cannot be


@pytest.mark.spec("LM-1")
def test_who_is_nowhere_cannot_subscribe_to_where_he_is() -> None:
    overlay = row(at=None)
    with pytest.raises(LocalProtocolError, match=r"set it first, with move\(\) in Python, --at on"):
        overlay.subscribe("ann", "room IN myloc")

    assert overlay.client("ann").subscriptions == {}
    overlay.move("ann", "c").subscribe("ann", "room IN myloc").settle()


@pytest.mark.spec("LM-1")
def test_a_location_must_be_one_of_the_space() -> None:
    overlay = row().subscribe("ann", "room IN myloc")
    with pytest.raises(LocalProtocolError, match="no place 'kitchen': it is none of the"):
        overlay.move("ann", "kitchen")

    overlay.settle().publish("pat", room="a").settle()
    assert overlay.received("ann") == ["pat#1"]


@pytest.mark.spec("LM-7")
def test_a_variable_must_be_set_and_make_sense() -> None:
    overlay = row()
    with pytest.raises(
        LocalProtocolError, match=r"\$budget: set it first, with set\('budget', …\)"
    ):
        overlay.subscribe("ann", "price < $budget")
    with pytest.raises(LocalProtocolError, match="does not lie between 5 and 9"):
        overlay.set("ann", "budget", 10, low=5, high=9)
    with pytest.raises(LocalProtocolError, match="does not lie between 'a' and 10"):
        overlay.set("ann", "budget", 10, low="a")
    with pytest.raises(LocalProtocolError, match="does not lie between False and True"):
        overlay.set("ann", "budget", value=True, low=False)

    overlay.set("ann", "budget", 10).subscribe("ann", "price < $budget + 1").settle()
    with pytest.raises(LocalProtocolError, match="cannot be used here"):
        overlay.set("ann", "budget", "much")
    overlay.publish("pat", price=10).settle()
    assert overlay.received("ann") == ["pat#1"], "the value before holds"


@pytest.mark.spec("LM-1", "LV-9")
def test_places_change_to_more_than_a_filter_can_hold() -> None:
    """Then the client gets what it may want wherever it is, and goes on, also after a restart."""
    hub = PlacesOptions(edges=tuple(("a", f"x{number}") for number in range(10_000)))
    client = make_client("ann", Settings(places=ROW))
    client.handle(MoveTo(location="a"), 1)
    client.handle(SetVariable(name="budget", value=9), 2)
    filter_ = Filter("room IN myloc(1) AND price < $budget")
    client.handle(Subscribe(subscription="1", filter=filter_), 3)

    options = ClientOptions(buffer_events_max=7)
    client.handle(Configured(settings=Settings(places=hub, client=options)), 4)
    restored = restore_node(encode_node(client), make_client("ann", client.settings))

    for node in (client, restored):
        assert node.options == options
        assert [wants(node, "x1", 5), wants(node, "f", 5), wants(node, "f", 9)] == [1, 1, 0]
        assert [type(fact) for fact in node.in_force(5)] == [Subscribed, Adapted]
        node.handle(SetVariable(name="budget", value=10), 5)
        assert wants(node, "f", 9)
        node.handle(MoveTo(location="x2"), 6)
        assert [wants(node, "a", 9), wants(node, "x1", 9)] == [1, 0]
        with pytest.raises(LocalProtocolError, match="10,000 are the limit"):
            node.handle(MoveTo(location="a"), 7)


def wants(client: Client, room: str, price: int) -> bool:
    """Whether a client wants an event."""
    attributes: dict[str, Scalar] = {"room": room, "price": price}
    event = Event(publisher="pat", seq=1, time_us=1, attributes=attributes)
    return bool(client.wants.wanting(event))


# ---- What happens


@pytest.mark.spec("LM-1")
def test_facts_of_a_move() -> None:
    overlay = row().subscribe("ann", "room IN myloc").move("ann", "b").move("ann", "b")

    assert [fact.location for fact in overlay.facts.all if isinstance(fact, Moved)] == ["a", "b"]
    adapted = [str(fact.filter) for fact in overlay.facts.all if isinstance(fact, Adapted)]
    assert adapted == ["room IN ('a')", "room IN ('b')"]


@pytest.mark.spec("LM-1")
def test_the_client_filters_exactly() -> None:
    """All brokers ask for a and b; ann takes what is about where she is when it arrives."""
    overlay = row().subscribe("ann", "room IN myloc").settle()
    overlay.publish("pat", room="a").publish("pat", room="b").publish("pat", room="c").settle()

    assert overlay.received("ann") == ["pat#1"]
    assert overlay.outcome().messages["Events"] == 3 + 2 * 3


@pytest.mark.spec("LM-1")
def test_moves_while_the_link_is_down_are_told_as_one() -> None:
    overlay = row().subscribe("ann", "room IN myloc").settle()
    before = overlay.sent("MovingChange", "ann → B1")

    overlay.fault(Drop(a="ann", b="B1", us=500_000)).wait(1_000)
    for place in "bcde":
        overlay.move("ann", place)
    overlay.subscribe("ann", "hall IN myloc", "2").unsubscribe("ann", "2").settle()

    assert overlay.sent("MovingChange", "ann → B1") == before + 1
    assert moving_at(overlay.broker("B1")).table["ann"]["ann/1"].at == "e"
    overlay.publish("pat", room="e").settle()
    assert overlay.received("ann") == ["pat#1"]


# ---- Variables


@pytest.mark.spec("LM-7")
def test_a_change_within_the_range_tells_nobody() -> None:
    overlay = row().set("ann", "budget", 10, low=5, high=20)
    overlay.subscribe("ann", "price < $budget").settle()
    before = overlay.outcome().control_messages

    overlay.publish("pat", price=15).set("ann", "budget", 18).settle()
    overlay.set("ann", "budget", 6).publish("pat", price=8).settle()

    assert overlay.received("ann") == ["pat#1"], "it arrives when she has 18; then she has 6"
    assert overlay.outcome().control_messages == before
    assert overlay.table("B3") == {"B2": ["price < 20"]}
    set_ = [fact.value for fact in overlay.facts.all if isinstance(fact, VariableSet)]
    assert set_ == [10, 18, 6]


@pytest.mark.spec("LM-7")
def test_a_change_out_of_the_range_moves_it() -> None:
    overlay = row().set("ann", "budget", 10, low=5, high=20)
    overlay.subscribe("ann", "price < $budget").settle()

    overlay.set("ann", "budget", 30, low=25, high=40).settle()
    assert overlay.table("B3") == {"B2": ["price < 40"]}
    overlay.set("ann", "budget", 50).settle()
    assert overlay.table("B3") == {"B2": ["price < 50"]}
    overlay.publish("pat", price=49).publish("pat", price=50).settle()
    assert overlay.received("ann") == ["pat#1"]

    overlay.unsubscribe("ann").settle()
    assert overlay.table("B3") == {}


@pytest.mark.spec("LM-7")
def test_locations_and_variables_in_one_filter() -> None:
    overlay = row().set("ann", "budget", 10, low=5, high=20)
    overlay.subscribe("ann", "price < $budget AND room IN myloc").settle()
    assert [str(f) for f in overlay.broker("B3").router.subscriptions.entered().values()] == [
        "price < 20 AND room IN ('a', 'b')"
    ]

    overlay.move("ann", "b").set("ann", "budget", 15).settle()
    told = overlay.sent("MovingChange", "B1 → B2")
    overlay.publish("pat", price=14, room="b").publish("pat", price=14, room="a").settle()
    assert overlay.received("ann") == ["pat#1"]
    overlay.set("ann", "budget", 21).settle()
    assert overlay.sent("MovingChange", "B1 → B2") == told + 1
    assert [str(f) for f in overlay.broker("B3").router.subscriptions.entered().values()] == [
        "price < 21 AND room IN ('a', 'b', 'c')"
    ]


# ---- A client that roams as well


@pytest.mark.spec("LM-5")
def test_what_a_border_broker_keeps_for_a_client_is_for_where_it_was() -> None:
    overlay = row().subscribe("ann", "room IN myloc").settle().move("ann", "c").settle()

    kept = moving_at(overlay.broker("B1")).exact("ann")

    assert [(id_, str(filter_)) for id_, filter_ in kept] == [("ann/1", "room IN ('c')")]
    assert moving_at(overlay.broker("B1")).exact("bob") == []


@pytest.mark.spec("LM-5")
def test_a_client_that_roams_and_moves() -> None:
    overlay = row(handover=HandoverOptions(protocol=Handover.RELOCATION))
    overlay.subscribe("ann", "room IN myloc").settle().publish("pat", room="a").settle()
    overlay.detach("ann").settle()
    overlay.publish("pat", room="a").publish("pat", room="b").settle()  # Kept; not where she was.
    overlay.move("ann", "b").attach("ann", "B2").settle()
    overlay.publish("pat", room="b").publish("pat", room="a").settle()

    assert overlay.received("ann") == ["pat#1", "pat#2", "pat#4"]
    assert overlay.outcome().findings == []
    for broker, links in (("B1", ["B2"]), ("B2", ["ann"]), ("B3", ["B2"])):
        table = moving_at(overlay.broker(broker)).table
        assert [link for link, routes in table.items() if routes] == links


@pytest.mark.spec("LM-5")
def test_what_ended_while_a_client_was_away_is_forgotten() -> None:
    overlay = row(handover=HandoverOptions(protocol=Handover.RELOCATION))
    overlay.subscribe("ann", "room IN myloc").settle().detach("ann").settle()

    overlay.unsubscribe("ann").attach("ann", "B1").settle()

    for broker in ("B1", "B2", "B3"):
        assert not overlay.broker(broker).router.subscriptions.entered()
