"""A broker does not trust what it is told of moving subscriptions, and forgets what has gone."""

import msgspec
import pytest

from sterna.core.inputs import SetVariable
from sterna.core.keeping import Reader, Writer
from sterna.core.location.context import variable
from sterna.core.location.messages import MovingChange, MovingRoute
from sterna.core.location.moving import Moving
from sterna.core.location.options import PlacesOptions
from sterna.core.location.stays import Dwell
from sterna.core.location.steps import StepRule
from sterna.core.messages import Route, SubscriptionChange
from sterna.core.names import LocalProtocolError
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.routing.stages import EVERYTHING
from sterna.core.settings import ClientOptions, Settings
from sterna.model.filters import Filter, tree
from sterna.model.ranges import DURATION_MAX_US
from sterna.sim.script import Crash, Reconfigure
from sterna.sim.topology import line
from tests.sim.overlay import Overlay

GOOD = MovingRoute(
    id="ann/1", filter=Filter("room IN myloc"), at="r0", dwell_us=1_000_000, delay_us=2_000
)


def corridor(**options: object) -> Overlay:
    places = PlacesOptions(
        edges=tuple((f"r{n}", f"r{n + 1}") for n in range(20)),
        dwell=Dwell.FIXED,
        dwell_us=10_000_000,
    )
    clients = {"ann": "B1", "pat": "B2"}
    return Overlay(line(2), clients, places=places, locations={"ann": "r0"}, **options)  # type: ignore[arg-type]


def moving(run: Overlay, broker: str) -> Moving:
    return next(each for each in run.broker(broker).components if isinstance(each, Moving))


@pytest.mark.parametrize(
    "bad",
    [
        {"dwell_us": 0},
        {"dwell_us": -5},
        {"dwell_us": DURATION_MAX_US + 1},
        {"delay_us": -1},
        {"delay_us": 2**64 - 1},
        {"filter": Filter("price < $budget AND room IN myloc")},
    ],
    ids=str,
)
def test_a_route_that_makes_no_sense_is_as_if_it_had_not_been_said(bad: dict[str, object]) -> None:
    run = corridor()
    nonsense = msgspec.structs.replace(GOOD, id="ann/2", **bad)
    run.broker("B1").message_arrived(MovingChange(added=(nonsense, GOOD)), "ann", 0)

    assert list(moving(run, "B1").table["ann"]) == ["ann/1"]
    assert len(run.broker("B1").router.subscriptions.entered("ann")) == 1


@pytest.mark.spec("LM-3", "LV-6")
def test_a_delay_too_long_to_pass_on_counts_as_not_known() -> None:
    """Each broker adds its own: what it says must be readable for the next one, too."""
    run = corridor()
    run.subscribe("ann", "room IN myloc", name="0").settle()  # Now the delay between them is known.
    route = msgspec.structs.replace(GOOD, dwell_us=1, delay_us=DURATION_MAX_US)
    run.broker("B1").message_arrived(MovingChange(added=(route,)), "ann", 0)

    told = moving(run, "B1").announced("B2").values()

    assert [each.delay_us for each in told if each.dwell_us == 1] == [None]


@pytest.mark.spec("LM-3", "LV-6")
def test_a_client_that_is_far_away_may_be_anywhere_while_it_is_gone() -> None:
    run = corridor()
    route = msgspec.structs.replace(GOOD, dwell_us=DURATION_MAX_US, delay_us=DURATION_MAX_US)
    run.broker("B1").message_arrived(MovingChange(added=(route,)), "ann", 0)
    run.detach("ann")
    (known,) = moving(run, "B1").table["ann"].values()
    assert known.delay_us is None


@pytest.mark.spec("LV-6")
def test_publishers_get_a_filter_that_they_can_read_wherever_a_client_may_be() -> None:
    """Without locations the filter of a client may be longer than a filter can be."""
    ends = " OR ".join(f"(a{n:05} AND b IN myloc)" for n in range(9_000))
    filter_ = Filter.from_condition(tree.negation(Filter(ends).condition))
    assert not filter_.anywhere.is_readable
    run = corridor(client=ClientOptions(quenching=True))
    route = msgspec.structs.replace(GOOD, filter=filter_)
    run.broker("B1").message_arrived(MovingChange(added=(route,)), "ann", 0)

    assert [each.filter for each in run.broker("B1").router.subscriptions.widest()] == [EVERYTHING]


@pytest.mark.parametrize("at", ["", "nowhere"])
def test_a_location_that_is_not_known_may_be_anywhere(at: str) -> None:
    run = corridor()
    route = msgspec.structs.replace(GOOD, at=at)
    run.broker("B1").message_arrived(MovingChange(added=(route,)), "ann", 0)

    (entered,) = run.broker("B1").router.subscriptions.entered("ann").values()
    assert entered == Filter("room IN myloc").anywhere


@pytest.mark.spec("LM-3")
def test_without_a_dwell_time_a_client_may_be_anywhere() -> None:
    """At every broker, however near; and their neighbours need not hear of moves nor delays."""
    run = corridor()
    route = msgspec.structs.replace(GOOD, dwell_us=None)
    run.broker("B1").message_arrived(MovingChange(added=(route,)), "ann", 0)
    (entered,) = run.broker("B1").router.subscriptions.entered("ann").values()
    assert entered == Filter("room IN myloc").anywhere

    (known,) = moving(run.settle(), "B2").table["B1"].values()
    assert (known.dwell_us, known.delay_us) == (None, None)
    told = run.sent("MovingChange", "B1 → B2")
    moved = msgspec.structs.replace(route, at="r9", delay_us=90_000)
    run.broker("B1").message_arrived(MovingChange(added=(moved,)), "ann", 0)
    run.settle().publish("pat", room="r17").settle()
    assert run.sent("MovingChange", "B1 → B2") == told
    assert run.sent("Events", "B2 → B1") == 1


def test_a_subscription_that_depends_on_somebody_means_nothing_to_a_broker() -> None:
    run = corridor()
    routes = (Route("ann/3", Filter("price < $budget")), Route("ann/4", Filter("price < 3")))
    run.broker("B1").message_arrived(SubscriptionChange(added=routes), "ann", 0)

    assert list(run.broker("B1").router.subscriptions.routes("ann")) == ["ann/4"]


@pytest.mark.spec("LM-7")
@pytest.mark.parametrize("high", [float("inf"), float("nan")])
def test_a_range_is_finite(high: float) -> None:
    with pytest.raises(LocalProtocolError, match="finite"):
        variable(SetVariable(name="budget", value=10, low=0, high=high))


@pytest.mark.spec("LM-5")
def test_a_neighbour_that_has_forgotten_everything_is_told_nothing_old() -> None:
    run = corridor(crashing=["B2"])
    run.subscribe("ann", "room IN myloc").settle()
    run.fault(Crash(broker="B2", us=1_000_000, forgets=True))
    for room in ("r1", "r2"):
        run.wait(100_000).move("ann", room)
    run.settle()

    assert len(moving(run, "B2").table["B1"]) == 1
    run.unsubscribe("ann").settle()
    assert moving(run, "B2").table == moving(run, "B1").table == {}


def test_a_neighbour_that_has_forgotten_everything_is_told_everything() -> None:
    run = corridor(crashing=("B2",))
    run.subscribe("ann", "room IN myloc").settle()

    run.fault(Crash(broker="B2", us=1_000, forgets=True)).settle()

    assert [route.filter for route in moving(run, "B2").table["B1"].values()] == [
        Filter("room IN myloc")
    ]


def with_shortcut(run: Overlay) -> Settings:
    """The settings of a corridor in which r0 leads to r9, too."""
    before = run.broker("B1").settings
    assert before.places is not None
    edges = (*before.places.edges, ("r0", "r9"))
    return msgspec.structs.replace(
        before, places=msgspec.structs.replace(before.places, edges=edges)
    )


@pytest.mark.spec("LM-3", "LV-9")
@pytest.mark.parametrize("is_away", [True, False])
def test_what_is_kept_for_a_client_is_what_it_asked_by_the_places_it_knew(*, is_away: bool) -> None:
    """Its broker has other places meanwhile; the client has not heard of them."""
    run = corridor().subscribe("ann", "room IN myloc(1)").settle()
    if is_away:
        run.detach("ann").settle()
    change = Reconfigure(broker="B1", settings=with_shortcut(run), tells=False)
    run.simulation.do(change)
    run.settle()
    kept_for = moving(run, "B1")
    (_, wanted), = kept_for.exact("ann")  # fmt: skip
    assert wanted == Filter("room IN ('r0', 'r1')")

    again = Moving(kept_for.places)
    again.restore(kept_for.keep(Writer()), Reader((), ()))
    assert again.exact("ann") == kept_for.exact("ann")
    run.detach("ann").attach("ann", "B1").settle()
    (_, wanted), = kept_for.exact("ann")  # fmt: skip
    assert wanted == Filter("room IN ('r0', 'r1', 'r9')")


@pytest.mark.spec("LM-3", "LV-9")
def test_a_client_says_when_it_has_heard_of_the_places() -> None:
    run = corridor().subscribe("ann", "room IN myloc(1)").settle()
    run.simulation.do(Reconfigure(broker="B1", settings=with_shortcut(run), tells=True))
    (_, wanted), = moving(run, "B1").exact("ann")  # fmt: skip
    assert wanted == Filter("room IN ('r0', 'r1')")

    run.settle()
    (_, wanted), = moving(run, "B1").exact("ann")  # fmt: skip
    assert wanted == Filter("room IN ('r0', 'r1', 'r9')")


@pytest.mark.spec("LM-3", "LV-9")
def test_a_client_at_a_location_that_is_no_more_wants_just_what_is_there() -> None:
    """It is told of places without its own, and goes on; so does what is kept for it."""
    run = corridor().subscribe("ann", "room IN myloc(1)").settle()
    before = run.broker("B1").settings
    assert before.places is not None
    edges = tuple(edge for edge in before.places.edges if "r0" not in edge)
    settings = msgspec.structs.replace(
        before, places=msgspec.structs.replace(before.places, edges=edges)
    )
    run.simulation.do(Reconfigure(broker="B1", settings=settings, tells=True))
    run.settle()

    (_, wanted), = moving(run, "B1").exact("ann")  # fmt: skip
    assert wanted == Filter("room IN ('r0')")
    run.publish("pat", room="r1").publish("pat", room="r0").settle()
    assert run.received("ann") == ["pat#2"]
    run.move("ann", "r2").settle()
    run.publish("pat", room="r1").settle()
    assert run.received("ann") == ["pat#2", "pat#3"]


@pytest.mark.spec("LM-3", "LV-9")
@pytest.mark.parametrize("change", ["graph", "rule"])
def test_a_broker_that_goes_by_other_places_lets_all_locations_through(change: str) -> None:
    """The broker nearer to the client goes by others, and may tell it nothing of a move."""
    run = corridor().subscribe("ann", "room IN myloc(1)").settle()
    settings = with_shortcut(run)
    if change == "rule":
        before = run.broker("B2").settings
        assert before.places is not None
        places = msgspec.structs.replace(before.places, rule=StepRule.SUB_UNSUB)
        settings = msgspec.structs.replace(before, places=places)
    run.simulation.do(Reconfigure(broker="B2", settings=settings, tells=True))
    run.settle()

    (route,) = moving(run, "B2").table["B1"].values()
    assert moving(run, "B2").instance(route) == Filter("room IS NOT NULL")
    run.simulation.do(Reconfigure(broker="B1", settings=settings, tells=True))
    run.settle()
    (route,) = moving(run, "B2").table["B1"].values()
    assert moving(run, "B2").instance(route) != Filter("room IS NOT NULL")


@pytest.mark.spec("LM-3", "LV-9")
def test_without_flooding_moving_routes_are_told_before_everything_ends() -> None:
    """A neighbour that was told to send everything hears of moving subscriptions first, so that
    none of their events is lost between the two messages.
    """
    run = corridor(routing=RoutingOptions(strategy=Strategy.FLOODING))
    run.subscribe("ann", "room IN myloc").subscribe("ann", "kind = 'x'", "2").settle()
    assert run.sent("MovingChange", "B1 → B2") == 0
    begin = len(run.trace.lines)
    before = run.broker("B1").settings
    covering = msgspec.structs.replace(before, routing=RoutingOptions())
    run.simulation.do(Reconfigure(broker="B1", settings=covering, tells=True))
    run.settle().publish("pat", room="r0").settle()

    said = [each.split()[4] for each in run.trace.lines[begin:] if "B1 → B2" in each]
    assert said[:2] == ["MovingChange", "SubscriptionChange"]
    assert run.received("ann") == ["pat#1"]

    run.simulation.do(Reconfigure(broker="B1", settings=before, tells=True))
    run.settle()
    assert "B1" not in moving(run, "B2").table, "it sends everything again"
