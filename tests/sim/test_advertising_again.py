"""Publishers that begin another life: what is advertised again at once is wanted all the time.

Brokers that heard that an advertisement ended and came again would end the subscriptions behind it,
and announce them again. The first events of the new life would go out on those that are still
known, and the next ones would be lost.
"""

import pytest

from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.routing.offers import OUTLIVES_US
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions
from sterna.sim.script import Crash, Drop, LiveAgain
from sterna.sim.topology import Topology
from tests.sim.overlay import Overlay

LOSSLESS = (
    *(Handover.RELOCATION, Handover.STANDARD, Handover.LOGGING, Handover.PREFETCHING),
    Handover.HOME,
)
STAR = Topology(
    ("B1", "B2", "B3", "B4", "B5"), (("B1", "B2"), ("B2", "B3"), ("B2", "B4"), ("B2", "B5"))
)
EVENTS = 40


def network(
    protocol: Handover,
    place: str = "B4",
    strategy: Strategy = Strategy.COVERING,
    latencies: tuple[tuple[str, str, int], ...] = (),
) -> Overlay:
    """Ann at B1 wants what the car has advertised and published elsewhere."""
    run = Overlay(
        STAR,
        {"ann": "B1", "car": place},
        RoutingOptions(strategy=strategy, advertisements=True),
        ClientOptions(advertisements=True),
        handover=HandoverOptions(protocol=protocol),
        latencies=latencies,
        crashing=["B4"],
    )
    run.subscribe("ann", "n >= 0").advertise("car", "n >= 0").settle()
    return run.publish("car", n=0).settle()


def live_again(run: Overlay, broker: str) -> Overlay:
    run.simulation.do(LiveAgain(client="car", broker=broker))
    return run


def lost(run: Overlay, before: int) -> int:
    """The car publishes; how many events are lost after the first one that arrives."""
    for _ in range(EVENTS):
        run.publish("car", n=1).wait(500)
    got = run.wait(100_000).received("ann")[before:]
    first, last = (int(id_.partition("#")[2]) for id_ in (got[0], got[-1]))
    assert last == run.client("car").published
    return last - first + 1 - len(got)


@pytest.mark.spec("RT-3", "PM-4")
@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("wait_us", [0, 5_000])
def test_a_life_that_advertises_the_same_again_is_heard_without_a_gap(
    strategy: Strategy, wait_us: int
) -> None:
    for protocol in (*LOSSLESS, Handover.NONE):
        run = network(protocol, strategy=strategy)
        live_again(run, "B4").wait(wait_us).advertise("car", "n >= 0")
        assert lost(run, 1) == 0, protocol
        assert len(run.received("ann")) == 1 + EVENTS, protocol


@pytest.mark.spec("RT-3", "PM-4")
@pytest.mark.parametrize("protocol", LOSSLESS)
def test_also_where_its_earlier_life_still_waits_for_a_broker_that_is_down(
    protocol: Handover,
) -> None:
    run = network(protocol, "B3")
    run.fault(Drop(a="B2", b="B3", us=10_000_000)).wait(10_000)
    run.attach("car", "B4").wait(50_000)
    live_again(run, "B4").advertise("car", "n >= 0")
    assert lost(run, 1) == 0


@pytest.mark.spec("RT-3", "PM-4")
@pytest.mark.parametrize("protocol", LOSSLESS)
def test_also_at_another_broker(protocol: Handover) -> None:
    """What the earlier life has advertised ends at B4 while the new one advertises at B5."""
    for latency_us, wait_us in (500, 0), (500, 5_000), (4_000, 12_000):
        run = network(protocol, latencies=(("B1", "B2", 4_000), ("B2", "B4", latency_us)))
        live_again(run, "B5").wait(wait_us).advertise("car", "n >= 0")
        assert lost(run, 1) == 0, (latency_us, wait_us)


@pytest.mark.spec("RT-3", "PM-4")
def test_also_if_a_name_stands_for_another_filter_now() -> None:
    run = network(Handover.RELOCATION)
    live_again(run, "B4").advertise("car", "n < 0").wait(5_000).advertise("car", "n >= 0", "2")
    assert lost(run, 1) == 0


@pytest.mark.spec("RT-3", "PM-4")
def test_also_with_several_lives_in_a_row() -> None:
    """Also one that ends before it has advertised anything."""
    run = network(Handover.RELOCATION)
    for _ in range(3):
        live_again(run, "B4").wait(3_000)
    run.advertise("car", "n >= 0")
    assert lost(run, 1) == 0


@pytest.mark.spec("RT-3", "LV-6")
@pytest.mark.parametrize("protocol", [*LOSSLESS, Handover.NONE])
@pytest.mark.parametrize("broker", ["B4", "B5"])
def test_what_is_not_advertised_again_ends(protocol: Handover, broker: str) -> None:
    if protocol is Handover.NONE and broker != "B4":
        return  # B4 does not hear that the car is elsewhere.
    run = network(protocol)
    live_again(run, broker).advertise("car", "n < 0").wait(OUTLIVES_US // 2)
    assert "B2" in run.table("B4")

    run.wait(OUTLIVES_US).settle()

    for each in STAR.brokers:
        if each != "B1":
            assert run.table(each) == {}, each
    advertised = run.broker(broker).router.advertisements["car"]
    assert [str(route.filter) for route in advertised.values()] == ["n < 0"]
    run.subscribe("ann", "n = -1", "2").settle()
    assert run.publish("car", n=-1).settle().received("ann")[1:] != []


@pytest.mark.spec("RT-3", "LV-6")
def test_it_ends_also_if_the_broker_is_restarted_meanwhile() -> None:
    run = network(Handover.RELOCATION)
    live_again(run, "B4").wait(10_000)
    run.fault(Crash(broker="B4", us=10_000)).wait(100_000)
    assert "B2" in run.table("B4")

    run.wait(OUTLIVES_US).settle()

    assert run.table("B4") == {}
    assert run.broker("B4").router.advertisements == {}


@pytest.mark.spec("RT-3", "LV-6")
def test_it_ends_for_each_client_in_its_time() -> None:
    run = network(Handover.RELOCATION)
    run.attach("ann", "B4").advertise("ann", "k = 1").settle()
    live_again(run, "B4").wait(OUTLIVES_US // 2)
    run.simulation.do(LiveAgain(client="ann", broker="B4"))
    offered = run.broker("B4").router.advertisements

    assert [*offered] == ["car", "ann"]
    assert [*run.wait(OUTLIVES_US * 3 // 4).broker("B4").router.advertisements] == ["ann"]
    run.wait(OUTLIVES_US // 2)
    assert offered == {}


@pytest.mark.spec("RT-3", "LV-6")
def test_it_does_not_count_towards_what_a_client_may_announce() -> None:
    run = network(Handover.RELOCATION)
    live_again(run, "B4").wait(10_000)
    assert dict(run.broker("B4").claimed("car"))["advertisement"] == []
