"""Who is asked whether a subscription is known, and when the answer comes."""

from typing import Any

import msgspec
import pytest

from sterna.core.assembly import make_broker
from sterna.core.confirming.echoes import Echoes
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.confirming.messages import CONFIRMING, ConfirmationAsked
from sterna.core.inputs import Confirm, Leave, LinkUp, Received
from sterna.core.link import Data, Resume
from sterna.core.location.options import PlacesOptions
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import LocalProtocolError, Peer
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions, Settings
from sterna.model.filters import Filter
from sterna.sim.script import Crash, Do, Drop, Pause, Reconfigure, Slow
from sterna.sim.topology import Topology, from_edges, line
from tests.sim.overlay import RELOCATION, Overlay

pytestmark = pytest.mark.spec("LV-2")

FAR_US = 100_000

STREET = PlacesOptions(edges=(("r0", "r1"), ("r1", "r2")))


def network(
    topology: Topology, clients: dict[str, str], *how: RoutingOptions | ClientOptions, **more: Any
) -> Overlay:
    return Overlay(topology, clients, *how, protocols=(CONFIRMING,), **more)  # type: ignore[arg-type]


def known(overlay: Overlay) -> list[tuple[str, tuple[str, ...]]]:
    """The subscriptions that were confirmed so far, each with who could not be asked."""
    found = [fact for fact in overlay.facts.all if isinstance(fact, SubscriptionKnown)]
    return [(f"{fact.at}/{fact.subscription}", fact.but_not) for fact in found]


def questions(overlay: Overlay, broker: str) -> int:
    part = overlay.broker(broker).part(CONFIRMING)
    assert isinstance(part, Echoes)
    return len(part._questions)


# ---- Who is asked


@pytest.mark.parametrize("strategy", Strategy)
def test_the_answer_comes_from_the_farthest_broker(strategy: Strategy) -> None:
    overlay = network(line(3), {"ann": "B1"}, routing=RoutingOptions(strategy=strategy))
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(FAR_US)
    assert known(overlay) == []
    overlay.wait(FAR_US + 10_000)
    assert known(overlay) == [("ann/1", ())]
    assert (overlay.sent("EchoAsked"), overlay.sent("Echo")) == (2, 2)


@pytest.mark.spec("RT-2")
@pytest.mark.parametrize("strategy", [Strategy.IDENTITY, Strategy.COVERING, Strategy.MERGING])
def test_a_filter_that_covers_it_may_be_on_its_way_itself(strategy: Strategy) -> None:
    """The last broker is told nothing of the covered one, and must know the other nevertheless."""
    overlay = network(
        line(3), {"ann": "B1", "bob": "B1", "pat": "B3"}, RoutingOptions(strategy=strategy)
    )
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US))
    overlay.subscribe("bob", "x > 0").wait(5_000)
    text = "x > 0" if strategy is Strategy.IDENTITY else "x > 5"
    overlay.subscribe("ann", text).confirm("ann").wait(FAR_US)
    assert known(overlay) == []
    overlay.wait(FAR_US + 10_000).publish("pat", x=7).settle()
    assert known(overlay) == [("ann/1", ())]
    assert overlay.received("ann") == ["pat#1"]
    assert overlay.sent("SubscriptionChange", "B2 → B3") == 1


@pytest.mark.spec("RT-3")
def test_with_advertisements_only_the_way_to_publishers_is_asked() -> None:
    """B1 is in the middle; pat advertises at B3, and nobody at B2 and B4 does."""
    overlay = network(
        from_edges([("B1", "B2"), ("B1", "B3"), ("B1", "B4")]),
        {"ann": "B2", "pat": "B3"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )
    overlay.advertise("pat", "x > 0").settle()
    overlay.subscribe("ann", "x > 5").confirm("ann").settle()
    overlay.subscribe("ann", "x < 0", "2").confirm("ann", "2").settle()
    assert known(overlay) == [("ann/1", ()), ("ann/2", ())]
    asked = {link for link, sent in overlay.outcome().by_link.items() if sent["EchoAsked"]}
    assert asked == {"B2 → B1", "B1 → B3"}
    assert overlay.sent("EchoAsked") == 2


@pytest.mark.spec("RT-3")
def test_an_advertisement_that_comes_before_the_answer_leads_the_question_there() -> None:
    overlay = network(
        from_edges([("B1", "B2"), ("B1", "B3")]),
        {"ann": "B1", "bob": "B2", "pat": "B3"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
    )
    overlay.advertise("bob", "x > 0").settle()
    overlay.fault(Slow(a="B1", b="B2", latency_us=FAR_US))
    overlay.subscribe("ann", "x > 5").confirm("ann").wait(5_000)
    overlay.advertise("pat", "x > 3").wait(5_000)
    assert overlay.sent("EchoAsked", "B1 → B3") == 1
    trace = [line for line in overlay.trace.lines if "B1 → B3" in line]
    assert "SubscriptionChange" in trace[-2]
    assert "EchoAsked" in trace[-1]
    assert known(overlay) == []
    overlay.settle()
    assert known(overlay) == [("ann/1", ())]


@pytest.mark.spec("QU-1")
def test_a_publisher_that_quenches_is_asked_while_it_is_connected() -> None:
    overlay = network(line(2), {"ann": "B1", "pat": "B2"}, client=ClientOptions(quenching=True))
    overlay.publish("pat", x=0).settle()  # It wants to know what is wanted.
    overlay.fault(Slow(a="B2", b="pat", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(FAR_US)
    assert known(overlay) == []
    overlay.wait(FAR_US + 10_000).publish("pat", x=1).settle()
    assert overlay.received("ann") == ["pat#2"]

    overlay.subscribe("ann", "x = 2", "2").confirm("ann", "2").wait(10_000).detach("pat")
    overlay.wait(10_000)
    assert known(overlay) == [("ann/1", ()), ("ann/2", ())]


# ---- What goes wrong


def test_a_broker_that_cannot_be_reached_is_waited_for() -> None:
    overlay = network(line(3), {"ann": "B1", "pat": "B3"})
    overlay.fault(Drop(a="B2", b="B3", us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(FAR_US - 1_000)
    assert known(overlay) == []
    overlay.wait(20_000)
    assert known(overlay) == [("ann/1", ())]
    trace = [line for line in overlay.trace.lines if "B2 → B3" in line]
    assert "SubscriptionChange" in trace[-2]
    assert "EchoAsked" in trace[-1]


@pytest.mark.spec("LM-5")
def test_where_a_client_is_goes_before_the_question() -> None:
    """Moving subscriptions wait for a link as others do, and are sent by another component."""
    overlay = network(line(2), {"ann": "B1"}, places=STREET, locations={"ann": "r0"})
    overlay.fault(Drop(a="B1", b="B2", us=FAR_US))
    overlay.subscribe("ann", "room IN myloc").confirm("ann").settle()
    assert known(overlay) == [("ann/1", ())]
    sent = [line.split("B2 ")[1].split()[0] for line in overlay.trace.lines if "B1 → B2" in line]
    assert [kind for kind in sent if kind in {"MovingChange", "EchoAsked"}][-2:] == [
        "MovingChange",
        "EchoAsked",
    ]
    assert sent.count("EchoAsked") == 1


@pytest.mark.spec("LM-7")
def test_a_subscription_that_means_something_else_by_then_is_asked_for_again() -> None:
    """The answer is about what it means when the answer comes."""
    overlay = network(line(3), {"ann": "B1", "pat": "B3"}, places=STREET, locations={"ann": "r0"})
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US)).set("ann", "limit", 2)
    overlay.subscribe("ann", "x < $limit").confirm("ann").wait(2 * FAR_US - 5_000)
    overlay.set("ann", "limit", 5).wait(20_000)
    assert known(overlay) == []
    overlay.wait(2 * FAR_US).publish("pat", x=4).settle()
    assert known(overlay) == [("ann/1", ())]
    assert overlay.received("ann") == ["pat#1"]


def test_a_link_that_is_gone_for_good_is_not_waited_for() -> None:
    overlay = network(line(3), {"ann": "B1", "bob": "B3"})
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann")
    overlay.subscribe("bob", "x = 2").confirm("bob").wait(10_000)
    assert [questions(overlay, broker) for broker in ("B1", "B2", "B3")] == [1, 1, 1]
    overlay.simulation.network.end("B2", "B3")
    overlay.wait(10_000)
    assert known(overlay) == [("bob/1", ()), ("ann/1", ())]
    assert [questions(overlay, broker) for broker in ("B1", "B2", "B3")] == [0, 0, 0]


@pytest.mark.parametrize("broker", ["B1", "B2", "B3"])
@pytest.mark.parametrize("forgets", [False, True], ids=["restarts", "forgets"])
def test_a_broker_that_stops_in_the_middle_answers_later(broker: str, forgets: bool) -> None:
    """From the log of its inputs, or because it is asked again when it has lost its memory."""
    overlay = network(line(3), {"ann": "B1", "pat": "B3"}, crashing=["B1", "B2", "B3"])
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(FAR_US + 5_000)
    overlay.fault(Crash(broker=broker, us=10_000, forgets=forgets)).settle()
    assert known(overlay) == [("ann/1", ())]
    overlay.publish("pat", x=1).settle()
    assert overlay.received("ann") == ["pat#1"]
    assert [questions(overlay, broker) for broker in ("B1", "B2", "B3")] == [0, 0, 0]


@pytest.mark.spec("PM-4")
def test_a_client_that_moves_on_asks_where_it_gets_to() -> None:
    overlay = network(line(3), {"ann": "B1"}, handover=RELOCATION)
    overlay.fault(Slow(a="B1", b="B2", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(10_000)
    overlay.attach("ann", "B3").settle()
    assert known(overlay) == [("ann/1", ())]
    assert overlay.sent("ConfirmationAsked", "ann → B3") == 1
    assert overlay.sent("Confirmation", "B1 → ann") == 0


def test_one_that_is_offline_asks_when_it_is_back() -> None:
    overlay = network(line(2), {"ann": "B1"}, handover=RELOCATION)
    overlay.detach("ann").settle().subscribe("ann", "x = 1").confirm("ann").settle()
    assert known(overlay) == []
    overlay.attach("ann", "B1").settle()
    assert known(overlay) == [("ann/1", ())]


@pytest.mark.spec("PM-4")
def test_an_answer_to_a_client_that_was_forgotten_since_does_not_count() -> None:
    """It subscribes again while it leaves: its farewell follows the question."""
    overlay = network(line(1), {"ann": "B1", "pat": "B1"}, handover=RELOCATION)
    overlay.detach("ann").settle()
    overlay.simulation.do(Do(client="ann", what=Leave()))
    overlay.subscribe("ann", "x = 1").confirm("ann").attach("ann", "B1")
    overlay.settle()
    assert overlay.sent("Confirmation", "B1 → ann") == 2
    assert known(overlay) == [("ann/1", ())]
    stated = [type(fact).__name__ for fact in overlay.facts.all]
    assert stated.index("ClientForgotten") < stated.index("SubscriptionKnown")


# ---- One question at a time


def test_who_asks_again_waits_for_the_same_answer() -> None:
    overlay = network(line(2), {"ann": "B1"})
    overlay.subscribe("ann", "x = 1").confirm("ann").confirm("ann").settle()
    assert known(overlay) == [("ann/1", ())]
    assert overlay.sent("EchoAsked") == 1
    overlay.confirm("ann").settle()
    assert known(overlay) == [("ann/1", ())] * 2


def test_a_question_ends_with_its_subscription() -> None:
    """And an answer that comes later is not for the next subscription of that name."""
    overlay = network(line(3), {"ann": "B1"})
    overlay.fault(Slow(a="B2", b="B3", latency_us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(10_000)
    overlay.unsubscribe("ann").subscribe("ann", "x = 2").confirm("ann").wait(10_000)
    assert overlay.sent("EchoDropped") == 2
    assert [questions(overlay, broker) for broker in ("B1", "B2")] == [1, 1]
    overlay.wait(2 * FAR_US - 15_000)
    assert known(overlay) == []
    overlay.settle()
    assert known(overlay) == [("ann/1", ())]


@pytest.mark.spec("LV-6")
def test_a_client_has_no_more_questions_than_subscriptions() -> None:
    """However often it asks, and whatever it asks for; nor do the brokers behind have more."""
    broker = make_broker("B1", Settings(protocols=(CONFIRMING,)))
    for link, peer in (("B2", Peer.BROKER), ("ann", Peer.CLIENT)):
        broker.handle(LinkUp(link=link, peer=peer), 0)
        broker.handle(Received(link=link, frames=(Resume(7, None, 0, True),)), 0)
    said: list[Message] = [SubscriptionChange(added=(Route("ann/1", Filter("x = 1")),))]
    said += [ConfirmationAsked(subscription="ann/1", number=n) for n in range(5)]
    said += [ConfirmationAsked(subscription="ann/2", number=9)]
    said += [SubscriptionChange(removed=("ann/1",), added=(Route("ann/3", Filter("x = 3")),))]
    said += [ConfirmationAsked(subscription="ann/3", number=10)]
    for seq, message in enumerate(said, 1):
        broker.handle(Received(link="ann", frames=(Data(seq, 0, message),)), 0)
    part = broker.part(CONFIRMING)
    assert isinstance(part, Echoes)
    assert [each.subscription for each in part._questions.values()] == ["ann/3"]
    sent = [type(message).__name__ for message in broker.unconfirmed("B2")]
    assert (sent.count("EchoAsked"), sent.count("EchoDropped")) == (6, 5)


# ---- Who does not take part


def test_the_answer_names_a_neighbour_that_does_not_take_part() -> None:
    """It gets no message that it does not know."""
    overlay = network(line(3), {"ann": "B1"})
    settings = msgspec.structs.replace(overlay.simulation.script.settings(), protocols=())
    overlay.fault(Reconfigure(broker="B3", settings=settings))  # type: ignore[arg-type]
    overlay.fault(Drop(a="B2", b="B3", us=5_000)).settle()
    overlay.subscribe("ann", "x = 1").confirm("ann").settle()
    assert known(overlay) == [("ann/1", ("B3",))]
    assert overlay.sent("EchoAsked", "B2 → B3") == 0


def test_so_does_a_broker_that_takes_part_no_more() -> None:
    overlay = network(line(3), {"ann": "B1"})
    settings = msgspec.structs.replace(overlay.simulation.script.settings(), protocols=())
    overlay.fault(Pause(broker="B3", us=FAR_US))
    overlay.subscribe("ann", "x = 1").confirm("ann").wait(10_000)
    overlay.fault(Reconfigure(broker="B2", settings=settings)).wait(5_000)  # type: ignore[arg-type]
    assert known(overlay) == [("ann/1", ("B2",))]


def test_nobody_waits_for_an_answer_when_a_client_takes_part_no_more() -> None:
    """Neither for one that was asked for, nor for one that could not be asked for yet."""
    overlay = network(line(2), {"ann": "B1", "bob": "B1"}, handover=RELOCATION)
    settings = msgspec.structs.replace(overlay.simulation.script.settings(), protocols=())
    overlay.detach("bob").settle().subscribe("bob", "x = 1").confirm("bob")
    overlay.fault(Pause(broker="B2", us=FAR_US)).subscribe("ann", "x = 1").confirm("ann")
    overlay.wait(10_000).fault(Slow(a="B1", b="ann", latency_us=FAR_US))
    overlay.fault(Reconfigure(broker="B1", settings=settings, tells=True))  # type: ignore[arg-type]
    assert known(overlay) == [("ann/1", ("B1",))]
    overlay.attach("bob", "B1").settle()
    assert known(overlay) == [("ann/1", ("B1",)), ("bob/1", ("B1",))]


def test_a_client_whose_broker_does_not_take_part_is_told_at_once() -> None:
    overlay = network(line(1), {"ann": "B1"})
    client = overlay.client("ann")
    client.handle(LinkUp(link="B1", peer=Peer.BROKER, features=()), 10**6)
    overlay.subscribe("ann", "x = 1")
    client.handle(Confirm(subscription="1"), 10**6)
    turn = client.handle(Received(link="B1", frames=(Resume(9, None, 0, True),)), 10**6)
    (fact,) = [fact for fact in turn.facts if isinstance(fact, SubscriptionKnown)]
    assert fact.but_not == ("B1",)
    assert not any(type(message) is ConfirmationAsked for message in client.unconfirmed("B1"))


def test_where_nobody_takes_part_nobody_can_ask() -> None:
    overlay = Overlay(line(1), {"ann": "B1"})
    overlay.subscribe("ann", "x = 1")
    with pytest.raises(LocalProtocolError, match="no protocol 'confirming'"):
        overlay.confirm("ann")
    with pytest.raises(LocalProtocolError, match="no subscription '2'"):
        overlay.confirm("ann", "2")


def test_nothing_is_sent_unless_somebody_asks() -> None:
    def trace(*protocols: str) -> str:
        overlay = Overlay(line(3), {"ann": "B1", "pat": "B3"}, protocols=protocols)
        overlay.subscribe("ann", "x = 1").settle().publish("pat", x=1).settle()
        return overlay.trace.text()

    assert trace(CONFIRMING) == trace()
    assert "Echo" not in trace(CONFIRMING)
