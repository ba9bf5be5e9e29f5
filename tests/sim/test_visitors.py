"""Visitors: clients whose subscriptions stay at their home broker. (Burcea et al., 3.2.3)

Whatever a client can do at home it can do elsewhere, and it finds a home again when its home
broker, or the broker where it is, has lost its memory.
"""

from itertools import permutations

import pytest

from sterna.core import facts
from sterna.core.assembly import make_broker
from sterna.core.confirming.facts import SubscriptionKnown
from sterna.core.confirming.messages import CONFIRMING
from sterna.core.handover.home import Visiting
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.transfer_messages import Registration
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.routing.options import RoutingOptions
from sterna.core.settings import ClientOptions, Settings
from sterna.sim.script import Crash, Drop, LiveAgain, Reconfigure
from sterna.sim.topology import line
from sterna.wire.snapshots import encode_node, restore_node
from tests.sim.overlay import Overlay

HOME = HandoverOptions(protocol=Handover.HOME)
HOUSE = PlacesOptions(
    edges=(("attic", "hall"), ("hall", "yard")), dwell=Dwell.FIXED, dwell_us=1_000_000
)


def visiting(**more: object) -> Overlay:
    """Ann has her home at B1, and is at B3, where pat publishes."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B3"}, handover=HOME, **more)  # type: ignore[arg-type]
    run.subscribe("ann", "price > 10").settle()
    return run.detach("ann").settle().attach("ann", "B3").settle()


def numbers(first: int, last: int) -> list[str]:
    return [f"pat#{number}" for number in range(first, last + 1)]


@pytest.mark.spec("DO-4", "LM-5", "RT-5", "PM-4")
def test_what_a_visitor_wants_where_it_is_overtakes_nothing() -> None:
    """All events of a publisher come over its home, those for its location as well."""
    run = visiting(places=HOUSE, locations={"ann": "attic"})
    run.subscribe("ann", "room IN myloc", "2").settle()
    for _ in range(5):
        run.publish("pat", price=20).publish("pat", room="attic").publish("pat", room="yard")
        run.settle()
    run.move("ann", "yard").settle().publish("pat", room="attic").publish("pat", room="yard")

    run.settle()

    expected = [number for number in range(1, 16) if number % 3]
    assert run.received("ann") == [f"pat#{number}" for number in (*expected, 17)]
    assert run.facts_of(facts.Repeated) == []
    assert run.outcome().findings == []


@pytest.mark.spec("DO-4", "PM-4")
def test_who_goes_back_and_forth_may_subscribe_before_it_is_welcome_at_home() -> None:
    """Her home has her released twice, and still has to hear what she wants since."""
    run = visiting(latencies=[("B2", "B3", 50_000)])
    for broker in ("B1", "B3", "B1"):
        run.detach("ann").attach("ann", broker).wait(3_000)
    run.subscribe("ann", "y > 0", "2").settle()

    run.publish("pat", y=1).publish("pat", price=20).settle()

    assert run.received("ann") == numbers(1, 2)
    assert run.outcome().findings == []


@pytest.mark.spec("DO-4", "PM-4")
def test_what_a_visitor_stops_to_offer_before_it_is_welcome_ends_where_it_is() -> None:
    """Its home has never heard of it, so it finds that all is as it should be."""
    run = Overlay(
        line(2),
        {"ann": "B1"},
        RoutingOptions(advertisements=True),
        ClientOptions(advertisements=True),
        handover=HOME,
        latencies=[("B1", "B2", 50_000)],
    )
    run.detach("ann").settle().attach("ann", "B2").advertise("ann", "x > 0").wait(5_000)
    assert "ann" in run.broker("B2").router.advertisements

    run.unadvertise("ann").settle()

    assert "ann" not in run.broker("B2").router.advertisements


@pytest.mark.spec("DO-4", "LM-5")
def test_who_is_at_home_again_is_routed_for_as_it_moves() -> None:
    """A visitor may be anywhere, as far as its home broker knows; at home that is known better."""
    run = visiting(places=HOUSE, locations={"ann": "attic"})
    run.subscribe("ann", "room IN myloc", "2").settle()
    at_home, elsewhere = (run.broker(name).part("moving") for name in ("B1", "B3"))
    assert isinstance(at_home, Moving)
    assert isinstance(elsewhere, Moving)
    assert at_home.steps(at_home.table["ann"]["ann/2"]) is None
    assert "ann" not in elsewhere.table

    run.detach("ann").settle().attach("ann", "B1").settle()

    assert at_home.steps(at_home.table["ann"]["ann/2"]) is not None
    assert "ann" not in elsewhere.table
    run.publish("pat", room="attic").settle()
    assert run.received("ann") == ["pat#1"]


@pytest.mark.spec("DO-4", "LV-2")
def test_a_visitors_subscription_is_confirmed() -> None:
    """What is published after the confirmation arrives."""
    run = visiting(protocols=(CONFIRMING,))
    run.subscribe("ann", "y > 0", "2").confirm("ann", "2").settle()

    (known,) = run.facts_of(SubscriptionKnown)
    assert isinstance(known, SubscriptionKnown)
    assert known.subscription == "2"
    assert not known.but_not


@pytest.mark.spec("DO-4", "LV-2", "LV-6")
@pytest.mark.parametrize("begins_anew", [False, True], ids=["goes on", "begins anew"])
def test_who_goes_elsewhere_before_it_is_confirmed_breaks_nothing(begins_anew: bool) -> None:
    """Its home broker has a question open of a client that has no link any more."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=HOME,
        protocols=(CONFIRMING,),
        latencies=[("B2", "B3", 500_000)],
    )
    run.subscribe("ann", "y > 0").confirm("ann").wait(10_000)
    run.detach("ann").wait(5_000).attach("ann", "B2").wait(50_000)
    if begins_anew:  # Another program of this name, which has subscribed to nothing.
        run.simulation.do(LiveAgain(client="ann", broker="B2"))
    run.settle()

    assert len(run.facts_of(SubscriptionKnown)) == (0 if begins_anew else 1)
    run.publish("pat", y=1).settle()
    assert run.received("ann") == ([] if begins_anew else ["pat#1"])


@pytest.mark.spec("DO-4", "PM-4", "LV-1")
def test_what_is_kept_at_home_survives_that_the_visited_broker_forgets() -> None:
    """It counts its registrations from 1 again, and home must not take that for a repeated one."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B2"}, handover=HOME, crashing=["B3"])
    run.subscribe("ann", "price > 10").settle()
    run.detach("ann").settle().attach("ann", "B3").settle().detach("ann").settle()
    run.fault(Crash(broker="B3", us=100_000, forgets=True)).wait(3_000_000).settle()
    run.publish("pat", price=20).settle()

    run.attach("ann", "B3").settle().publish("pat", price=30).settle()

    assert run.received("ann") == numbers(1, 2)


@pytest.mark.spec("DO-4", "PM-4", "LV-1")
def test_a_home_that_has_an_old_memory_is_told_what_its_visitor_wants() -> None:
    """It had no subscription then, as when she was registered."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B3"}, handover=HOME, crashing=["B1"])
    run.settle().detach("ann").settle().attach("ann", "B3").settle()
    before = run.now
    run.subscribe("ann", "price > 10").settle()

    run.fault(Crash(broker="B1", us=1_000, back_us=run.now - before)).wait(30_000_000).settle()

    run.publish("pat", price=20).settle()
    assert run.received("ann") == ["pat#1"]


@pytest.mark.spec("DO-4", "LV-1")
@pytest.mark.parametrize("is_connected", [True, False])
def test_a_registration_counts_as_repeated_while_events_go_there(is_connected: bool) -> None:
    """A broker with an old memory uses numbers twice; home must not take that for a question that
    was repeated if it has heard since that the client is not connected.
    """
    visiting = Visiting("B3", visit=2, number=1, is_connected=is_connected)
    asked = Registration(to="B1", sender="B3", client="ann", number=1, visit=2, stay=1, received=0)

    assert visiting.is_answered(asked) is is_connected


@pytest.mark.spec("DO-4", "LV-1")
@pytest.mark.parametrize("forgetful", [("B1",), ("B3",), ("B1", "B2"), ("B2",)])
def test_visitors_go_on_when_brokers_have_lost_their_memory(forgetful: tuple[str, ...]) -> None:
    """Even if the brokers between a visitor and its home have lost theirs, too."""
    run = visiting(crashing=["B1", "B2", "B3"]).publish("pat", price=20).settle()
    for broker in forgetful:
        run.fault(Crash(broker=broker, us=100_000, forgets=True))

    run.wait(60_000_000).settle()

    first = run.client("pat").published + 1
    run.publish("pat", price=30).settle().publish("pat", price=40).settle()
    assert run.received("ann")[-2:] == numbers(first, first + 1)
    run.subscribe("ann", "price < 5", "2").settle().publish("pat", price=1).settle()
    assert run.received("ann")[-1:] == numbers(first + 2, first + 2)


@pytest.mark.spec("LV-6", "DO-4")
def test_a_visitor_that_is_away_is_not_forgotten_before_others() -> None:
    """It has subscribed to nothing where it was, but its home broker would forget it as well."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B2", "bob": "B3", "cem": "B3"},
        handover=HandoverOptions(protocol=Handover.HOME, away_clients_max=2),
    )
    for client in ("bob", "cem", "ann"):
        run.subscribe(client, "price > 10").settle()
    run.detach("ann").settle().attach("ann", "B3").settle()

    for client in ("bob", "cem", "ann"):
        run.detach(client).settle()
    run.publish("pat", price=20).settle()

    forgotten = [fact for fact in run.facts.all if isinstance(fact, facts.ForgottenEarly)]
    assert [fact.client for fact in forgotten] == ["bob"]
    run.attach("ann", "B3").settle()
    assert run.received("ann") == ["pat#1"]


@pytest.mark.spec("LV-9", "DO-4", "PM-4")
@pytest.mark.parametrize(
    ("to", "is_away"),
    [
        ((Handover.STANDARD,), False),
        ((Handover.STANDARD,), True),
        ((Handover.LOGGING,), False),
        ((Handover.LOGGING,), True),
        ((Handover.PREFETCHING,), False),
        ((Handover.PREFETCHING,), True),
        ((Handover.STANDARD, Handover.RELOCATION), False),
        ((Handover.RELOCATION,), False),
        ((Handover.RELOCATION,), True),
        ((Handover.NAIVE,), False),
        ((Handover.NAIVE,), True),
        ((Handover.NONE,), False),
        ((Handover.NONE,), True),
        ((Handover.STANDARD, Handover.NONE), False),
        ((Handover.STANDARD, Handover.NONE), True),
    ],
)
def test_visitors_lose_nothing_when_another_strategy_takes_the_place_of_homes(
    to: tuple[Handover, ...], is_away: bool
) -> None:
    """In whichever order the brokers change, and while events are published."""
    for order in permutations(("B1", "B2", "B3")):
        run = Overlay(line(3), {"ann": "B1", "pat": "B2"}, handover=HOME)
        run.subscribe("ann", "price > 10").settle()
        run.detach("ann").settle().attach("ann", "B3").settle()
        if is_away:
            run.detach("ann").settle()
        for protocol in to:
            settings = Settings(handover=HandoverOptions(protocol=protocol))
            for broker in order:
                run.simulation.do(Reconfigure(broker=broker, settings=settings, tells=True))
                run.publish("pat", price=20).wait(5_000)
            run.settle()
        if is_away:
            run.attach("ann", "B3").settle()
        run.publish("pat", price=30).settle()

        assert run.received("ann") == numbers(1, 3 * len(to) + 1), order
        assert not any(run.broker(name).part("home") for name in order), order


# ---- What a visitor may have


def limited(most: int) -> Overlay:
    """Ann has three subscriptions at B1, her home, and is at B3."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=HandoverOptions(protocol=Handover.HOME, filters_max=most),
        crashing=["B3"],
    )
    for number in range(3):
        run.subscribe("ann", f"x = {number}", str(number))
    return run.settle().detach("ann").settle().attach("ann", "B3").settle()


def claimed(run: Overlay) -> list[str]:
    """The names of Ann's subscriptions as B3 counts them."""
    return sorted(dict(run.broker("B3").claimed("ann"))["subscription"])


@pytest.mark.spec("LV-6", "DO-4")
def test_what_a_visitor_has_at_home_counts_where_it_is() -> None:
    """Drivers refuse what is too much, and go by what a broker says."""
    run = limited(10)
    assert claimed(run) == ["ann/0", "ann/1", "ann/2"]
    run.subscribe("ann", "x = 7", "7").unsubscribe("ann", "0").settle()
    assert claimed(run) == ["ann/1", "ann/2", "ann/7"]

    run.fault(Crash(broker="B3", us=100_000)).wait(2_000_000).settle()

    assert claimed(run) == ["ann/1", "ann/2", "ann/7"]
    broker = run.broker("B3")
    again = restore_node(encode_node(broker), make_broker("B3", broker.settings))
    assert sorted(dict(again.claimed("ann"))["subscription"]) == claimed(run)
    run.detach("ann").settle().attach("ann", "B3").settle()
    assert claimed(run) == ["ann/1", "ann/2", "ann/7"]


@pytest.mark.spec("LV-6", "DO-4")
def test_a_visitor_whose_home_has_not_answered_counts_what_it_announces_since() -> None:
    run = limited(10).detach("ann").settle()
    run.fault(Drop(a="B1", b="B2", us=1_000_000)).attach("ann", "B3").wait(100_000)
    run.subscribe("ann", "x = 7", "7").wait(100_000)
    assert "ann/7" in claimed(run)

    run.settle()

    assert claimed(run) == ["ann/0", "ann/1", "ann/2", "ann/7"]


@pytest.mark.spec("LV-6", "DO-4")
def test_a_home_takes_no_more_than_a_client_may_have() -> None:
    """A client could announce that many on each visit before its home has answered."""
    run = limited(4).subscribe("ann", "x = 3", "3").settle()
    assert len(run.table("B1")["ann"]) == 4

    run.subscribe("ann", "x = 4", "4").settle()

    assert run.table("B1")["ann"] == [f"x = {number}" for number in range(4)]
    run.unsubscribe("ann", "0").settle().subscribe("ann", "x = 5", "5").settle()
    assert run.table("B1")["ann"] == ["x = 1", "x = 2", "x = 3", "x = 5"]
