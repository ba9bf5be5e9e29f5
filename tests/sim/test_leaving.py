"""Clients that leave for good, or are away for too long: everything of them goes, everywhere, and
who comes back is never kept waiting.

What no broker may keep stands in `tests/sim/judging.py`; the campaign of roaming clients has them
leave as well.
"""

from collections import Counter
from collections.abc import Container

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core import facts
from sterna.core.handover.messages import Farewell
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.handover.roaming import NEWS_US
from sterna.core.inputs import Leave
from sterna.core.names import LocalProtocolError
from sterna.core.routing.offers import MANY
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.generate import FAULTS, Plan, generate
from sterna.sim.script import Do, Drop
from sterna.sim.topology import line, star
from tests.scale import examples
from tests.sim.judging import run_rightly
from tests.sim.overlay import RELOCATION, Overlay
from tests.sim.test_roaming_campaign import plans

AWAY_MAX_US = 50_000


def three(handover: HandoverOptions = RELOCATION) -> Overlay:
    """A subscriber at one end of a line, and a publisher at the other."""
    run = Overlay(line(3), {"ann": "B1", "pat": "B3"}, handover=handover, crashing=["B1", "B2"])
    return run.subscribe("ann", "kind = 'x'").settle()


def forgetful() -> Overlay:
    return three(HandoverOptions(protocol=Handover.RELOCATION, away_max_us=AWAY_MAX_US))


def leave(run: Overlay, client: str = "ann") -> Overlay:
    run.simulation.do(Do(client=client, what=Leave()))
    return run


def kept(run: Overlay, client: str = "ann") -> list[str]:
    """What brokers keep of a client."""
    found = []
    for id_ in run.simulation.script.topology.brokers:
        broker, part = run.broker(id_), run.relocation(id_)
        places: dict[str, Container[str]] = {
            "guest": part.guests,
            "trail": part.trails,
            "link": broker.peers,
            "request": part.strangers,
            "return": part.returning,
            "subscription": broker.router.subscriptions.links(),
            "advertisement": broker.router.advertisements,
        }
        found += [f"{what} at {id_}" for what, where in places.items() if client in where]
    return found


# ---- Leaving


@pytest.mark.spec("LV-6", "PM-3")
def test_nothing_stays_of_a_client_that_leaves() -> None:
    run = three()
    assert kept(run)
    leave(run).settle()

    assert kept(run) == []
    assert run.table("B3") == {}
    (left,) = run.facts_of(facts.Left)
    (forgotten,) = run.facts_of(facts.ClientForgotten)
    assert (left.at, forgotten.at) == ("ann", "B1")
    run.publish("pat", kind="x").settle()
    assert run.received("ann") == []
    assert run.sent("Events", "B3 → B2") == 0


@pytest.mark.spec("LV-6")
def test_one_message_over_each_link_tells_of_a_departure() -> None:
    run = Overlay(star(6), {"ann": "B3"}, handover=RELOCATION)
    leave(run).settle()
    assert run.sent("Departed") == 5


@pytest.mark.spec("LV-6", "PM-4")
def test_what_was_published_before_leaving_arrives() -> None:
    run = three().publish("pat", kind="x")
    leave(run, "pat").settle()

    assert run.received("ann") == ["pat#1"]
    assert kept(run, "pat") == []


@pytest.mark.spec("LV-6", "PM-4")
def test_who_leaves_without_a_connection_says_so_on_the_next() -> None:
    run = three().fault(Drop(a="ann", b="B1", us=30_000)).wait(1_000)
    leave(run).wait(5_000)
    assert run.facts_of(facts.Left) == []
    run.settle()
    assert kept(run) == []


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("broker", ["B1", "B3"])
def test_who_comes_back_is_a_new_client(broker: str) -> None:
    run = three()
    leave(run).settle()
    run.publish("pat", kind="x").attach("ann", broker).settle()
    assert run.received("ann") == []

    run.subscribe("ann", "kind = 'x'").settle().publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#2"]
    assert run.relocation("B2").trails["ann"].link == broker
    assert run.facts_of(facts.Forgotten) == []


@pytest.mark.spec("LV-6")
def test_who_attaches_while_it_leaves_leaves_first() -> None:
    run = leave(three()).attach("ann", "B3").subscribe("ann", "kind = 'y'").settle()
    assert len(run.facts_of(facts.Left)) == 1
    run.publish("pat", kind="x").publish("pat", kind="y").settle()
    assert run.received("ann") == ["pat#2"]


@pytest.mark.spec("LV-6", "PM-4")
def test_who_comes_back_does_not_overtake_what_it_published_before() -> None:
    """From the end of a slow line to its middle: the first event is still on its way there."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=RELOCATION,
        latencies=[("B2", "B3", 100_000)],
    )
    run.subscribe("ann", "kind = 'x'").settle().publish("pat", kind="x")
    leave(run, "pat").wait(50_000)
    assert len(run.facts_of(facts.Left)) == 1
    run.attach("pat", "B1").publish("pat", kind="x").settle()

    assert run.received("ann") == ["pat#1", "pat#2"]
    assert run.simulation.network.kernel.now < NEWS_US  # It waited for the news only.


@pytest.mark.spec("LV-6", "PM-4")
def test_who_leaves_during_its_handover_leaves_when_it_is_finished() -> None:
    run = Overlay(
        line(3), {"ann": "B1"}, handover=RELOCATION, latencies=[("B2", "B3", 100_000)]
    ).settle()  # fmt: skip
    run.attach("ann", "B3").wait(5_000)
    leave(run).wait(50_000)
    assert len(run.facts_of(facts.Left)) == 1
    assert "guest at B3" in kept(run)
    run.settle()
    assert kept(run) == []


@pytest.mark.spec("LV-6", "PM-4")
def test_a_farewell_goes_where_everything_else_goes() -> None:
    """From B2 over B3 to B4, where it leaves. The request of B3 comes to B4 after that of B4 itself
    went out, and before it is answered: B3 will have everything, and has to forget it.
    """
    run = Overlay(
        star(4),
        {"ann": "B2"},
        handover=RELOCATION,
        latencies=[("B1", "B2", 60_000), ("B1", "B3", 100_000)],
    ).settle()
    run.attach("ann", "B3").wait(5_000).attach("ann", "B4").wait(5_000)
    leave(run).settle()

    assert run.sent("Replay", "B1 → B3") == 1
    assert len(run.facts_of(facts.Left)) == 1
    assert kept(run) == []


@pytest.mark.spec("LV-6")
def test_who_left_while_offline_leaves_when_it_attaches() -> None:
    run = three().detach("ann").wait(5_000)
    leave(run).settle()
    assert kept(run)
    run.attach("ann", "B2").settle()
    assert len(run.facts_of(facts.Left)) == 1
    assert run.broker("B2").router.subscriptions.routes("ann") == {}


@pytest.mark.spec("LV-6", "PM-4")
def test_what_is_advertised_while_it_leaves_is_for_when_it_is_back() -> None:
    """Although the farewell, and the end of the first advertisement, have to be sent twice."""
    run = Overlay(
        line(1),
        {"pat": "B1"},
        RoutingOptions(strategy=Strategy.SIMPLE, advertisements=True),
        ClientOptions(advertisements=True),
        handover=RELOCATION,
    )
    run.advertise("pat", "kind = 'x'").settle()
    leave(run, "pat").advertise("pat", "kind = 'y'").wait(1_500)
    run.fault(Drop(a="pat", b="B1", us=10_000)).settle().attach("pat", "B1").settle()

    offered = run.broker("B1").router.advertisements["pat"]
    assert {id_: str(route.filter) for id_, route in offered.items()} == {"pat/1": "kind = 'y'"}


def test_who_has_left_is_nowhere() -> None:
    run = leave(three()).settle()
    assert run.client("ann").link is None
    with pytest.raises(LocalProtocolError, match="attach it first"):
        run.detach("ann")


@pytest.mark.spec("LV-6")
def test_a_farewell_ends_all_that_was_said_before() -> None:
    """Whatever the client does then: one that is not ours may not even end the connection."""
    run = three()
    part = run.relocation("B1")
    part.on_farewell(Farewell(), "ann", 0)
    assert run.table("B1") == {}
    assert part.guests == {}
    part.on_farewell(Farewell(), "ann", 0)
    assert len(part.trails.departures) == 1


# ---- Being away for too long


@pytest.mark.spec("LV-6", "PM-3")
def test_who_is_away_for_too_long_is_forgotten() -> None:
    run = forgetful().detach("ann").wait(AWAY_MAX_US // 2).publish("pat", kind="x").wait(10_000)
    assert len(run.relocation("B1").guests["ann"].cache) == 1
    run.wait(AWAY_MAX_US // 2).settle()

    assert kept(run) == []
    assert run.table("B3") == {}


@pytest.mark.spec("LV-6", "PM-3")
def test_many_are_forgotten_a_few_at_a_time() -> None:
    """A broker has time for others in between."""
    options = HandoverOptions(protocol=Handover.RELOCATION, away_max_us=AWAY_MAX_US)
    clients = {f"c{number}": "B1" for number in range(MANY)}
    run = Overlay(line(2), clients, handover=options)
    for number, client in enumerate(clients):
        run.subscribe(client, f"n = {number}")
    run.settle()
    for client in clients:
        run.detach(client)

    run.wait(3 * AWAY_MAX_US).settle()

    forgotten = run.facts_of(facts.ClientForgotten)
    assert len(forgotten) == len(clients)
    assert max(Counter(fact.time for fact in forgotten).values()) <= MANY // 2 + 1
    assert run.table("B2") == {}


@pytest.mark.spec("LV-6", "PM-3")
@pytest.mark.parametrize("broker", ["B1", "B3"])
def test_who_was_forgotten_hears_of_it_and_goes_on(broker: str) -> None:
    """It is welcomed as soon as anyone, and all that it wants holds again."""
    run = forgetful().detach("ann").wait(2 * AWAY_MAX_US).publish("pat", kind="x").settle()
    run.attach("ann", broker).wait(10_000)
    (forgotten,) = run.facts_of(facts.Forgotten)
    assert forgotten.at == "ann"

    run.settle().publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#2"]
    run.attach("ann", "B2").publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#2", "pat#3"]
    assert len(run.facts_of(facts.Forgotten)) == 1


@pytest.mark.spec("LV-6", "PM-4")
def test_what_a_forgotten_client_had_published_is_not_published_again() -> None:
    """Its broker has the event, but the connection broke before the client could know."""
    run = forgetful().subscribe("pat", "kind = 'y'").settle()
    run.publish("ann", kind="y").wait(1_500).detach("ann").wait(2 * AWAY_MAX_US)
    assert run.client("ann").accepted == 0
    run.attach("ann", "B2").settle()

    assert run.client("ann").accepted == 1
    assert run.received("pat") == ["ann#1"]
    assert run.facts_of(facts.Repeated) == []


@pytest.mark.spec("LV-6", "PM-4")
def test_who_is_away_during_its_handover_is_forgotten_after_it() -> None:
    """Else it could be back, and publish, before its last event has passed."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=1_000),
        latencies=[("B2", "B3", 100_000)],
    )
    run.subscribe("ann", "kind = 'x'").settle().publish("pat", kind="x").wait(30_000)
    run.attach("pat", "B1").wait(5_000).detach("pat").wait(5_000)
    run.attach("pat", "B1").publish("pat", kind="x").settle()
    assert run.received("ann") == ["pat#1", "pat#2"]


@pytest.mark.spec("LV-6")
def test_who_was_away_for_too_long_when_its_handover_is_finished_is_forgotten() -> None:
    run = Overlay(
        line(3),
        {"ann": "B3"},
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=150_000),
        latencies=[("B2", "B3", 100_000)],
    ).settle()
    run.attach("ann", "B1").wait(5_000).detach("ann").wait(190_000)
    assert "guest at B1" in kept(run)
    run.wait(50_000).settle()
    assert run.sent("Replay", "B2 → B1") == 1
    assert kept(run) == []


@pytest.mark.spec("LV-6")
def test_a_connection_that_stands_again_in_time_counts() -> None:
    run = forgetful()
    for _ in range(4):
        run.detach("ann").wait(AWAY_MAX_US // 2).attach("ann", "B1").wait(10_000)
    run.settle()
    assert run.facts_of(facts.ClientForgotten) == []


@pytest.mark.spec("LV-6", "PM-4")
@pytest.mark.parametrize("faults", ["none", "heavy"])
def test_clients_that_are_forgotten_all_the_time(faults: str) -> None:
    """Whatever crosses on the way: all brokers agree, nobody hangs, and who was told that it had
    been forgotten gets everything from then on, once and in order.
    """
    seen: Counter[str] = Counter()

    @examples(150, long=2)
    @given(
        st.tuples(st.sampled_from(Strategy), st.booleans(), st.sampled_from((1, 2_000, 20_000)))
        .map(
            lambda drawn: plans(
                drawn[0],
                FAULTS[faults],
                HandoverOptions(protocol=Handover.RELOCATION, away_max_us=drawn[2]),
                advertisements=drawn[1],
                leaves=(0, 2),
            )
        )
        .flatmap(lambda shapes: shapes),
        st.integers(0, 2**32),
    )
    def runs(plan: Plan, seed: int) -> None:
        outcome = run_rightly(generate(plan, seed))
        seen.update(runs=1, owed=outcome.owed, departed=outcome.messages["Departed"])

    runs()
    assert seen["owed"] > seen["runs"]
    assert seen["departed"] > seen["runs"]


@pytest.mark.spec("LV-6", "PM-4")
def test_a_larger_network_in_which_clients_come_and_go() -> None:
    plan = Plan(
        topology=line(12),
        clients=20,
        subscriptions=80,
        events=100,
        moves=100,
        naps=40,
        leaves=60,
        settle=0.02,
        routing=RoutingOptions(strategy=Strategy.COVERING),
        faults=FAULTS["heavy"],
        handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=30_000),
    )
    outcome = run_rightly(generate(plan, 3))
    assert outcome.messages["Farewell"] > 30
