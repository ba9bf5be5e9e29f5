"""The terms of subscriptions reach whoever keeps events for the client."""

import pytest

from sterna.core import facts
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import Subscribe
from sterna.core.mobility import MobilityOptions
from sterna.core.names import LocalProtocolError
from sterna.core.terms.agreements import Agreements
from sterna.core.terms.messages import TERMS, Order, Terms
from sterna.model.filters import Filter
from sterna.sim.script import Crash, Do, LiveAgain, Script
from sterna.sim.topology import line
from tests.mobility import model_of
from tests.sim.overlay import RELOCATION, Overlay

LAST = Terms(keep="last_per(sensor)")
SOON = Terms(order=Order.AVAILABLE)
HANDOVERS = (
    Handover.NAIVE,
    Handover.RELOCATION,
    Handover.STANDARD,
    Handover.PREFETCHING,
    Handover.LOGGING,
    Handover.HOME,
)


def overlay(handover: str = Handover.RELOCATION, **more: object) -> Overlay:
    """Ann is at B1; both her subscriptions have terms of their own, and one has not."""
    run = Overlay(
        line(3),
        {"ann": "B1", "pat": "B3"},
        handover=HandoverOptions(protocol=handover),
        **{"protocols": (TERMS,), **more},  # type: ignore[arg-type]
    )
    run.subscribe("ann", "TRUE", "a", terms=LAST).subscribe("ann", "x > 1", "b", terms=SOON)
    return run.subscribe("ann", "x > 2", "c").settle()


BOTH = {"ann/a": LAST, "ann/b": SOON}


def agreed(run: Overlay, broker: str) -> dict[str, Terms]:
    agreements = run.broker(broker).part(TERMS)
    assert isinstance(agreements, Agreements)
    return dict(agreements.of("ann"))


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize("subscriptions", ["device", "broker"])
@pytest.mark.parametrize("handover", HANDOVERS)
def test_terms_go_where_events_are_kept(handover: Handover, subscriptions: str) -> None:
    """And they are forgotten where the client has left nothing."""
    is_chosen = handover not in {Handover.NAIVE, Handover.RELOCATION, Handover.HOME}
    options = {handover: {"subscriptions": subscriptions}} if is_chosen else {}
    run = overlay(handover, options=options)
    assert agreed(run, "B1") == BOTH

    run.detach("ann").settle().attach("ann", "B3").settle()

    keeper, other = ("B1", "B2") if handover is Handover.HOME else ("B3", "B1")
    assert agreed(run, keeper) == BOTH
    assert agreed(run, other) == {}
    run.unsubscribe("ann", "a").settle()
    assert agreed(run, keeper) == {"ann/b": SOON}
    run.detach("ann").settle().attach("ann", "B2").settle().unsubscribe("ann", "b").settle()
    assert agreed(run, "B1" if handover is Handover.HOME else "B2") == {}
    run.subscribe("ann", "y > 1", "d", terms=LAST).settle()
    assert agreed(run, "B1" if handover is Handover.HOME else "B2") == {"ann/d": LAST}
    assert run.outcome().findings == []


@pytest.mark.spec("RE-3")
def test_a_broker_that_expects_a_client_knows_its_terms() -> None:
    mobility = MobilityOptions(model=model_of({("B1", "B3"): 1}).to_bytes())
    run = overlay(Handover.PREFETCHING, mobility=mobility)

    run.detach("ann").settle()

    assert agreed(run, "B3") == BOTH
    assert agreed(run, "B1") == {}
    run.attach("ann", "B2").settle()
    assert (agreed(run, "B2"), agreed(run, "B3")) == (BOTH, {})


@pytest.mark.spec("RE-3")
@pytest.mark.parametrize("handover", HANDOVERS[1:])
def test_terms_are_known_before_the_subscription(handover: Handover) -> None:
    """Whenever the connection breaks, nothing is kept on other terms."""
    seen: list[tuple[str, str]] = []
    for when_us in range(0, 12_000, 500):
        run = Overlay(
            line(1),
            {"ann": "B1"},
            handover=HandoverOptions(protocol=handover),
            protocols=(TERMS,),
        )
        run.subscribe("ann", "TRUE", "a", terms=LAST).wait(when_us).detach("ann").settle()
        routes = run.broker("B1").router.subscriptions.routes("ann")
        seen.append((str(sorted(routes)), str(sorted(agreed(run, "B1")))))
    assert ("['ann/a']", "[]") not in seen
    assert ("['ann/a']", "['ann/a']") in seen


@pytest.mark.spec("RE-3")
def test_terms_survive_restarts() -> None:
    run = overlay(crashing=("B1",))
    run.fault(Crash(broker="B1", us=5_000)).settle()
    assert agreed(run, "B1") == BOTH
    run.fault(Crash(broker="B1", us=5_000, forgets=True)).settle()
    assert agreed(run, "B1") == BOTH


@pytest.mark.spec("RE-3")
def test_another_client_of_the_name_has_terms_of_its_own() -> None:
    run = overlay()
    run.simulation.do(LiveAgain(client="ann", broker="B1"))
    run.settle().subscribe("ann", "TRUE", "a").settle()
    assert agreed(run, "B1") == {}


@pytest.mark.spec("RE-3")
def test_without_the_protocol_a_subscription_has_no_terms() -> None:
    run = Overlay(line(1), {"ann": "B1"}, handover=RELOCATION)
    with pytest.raises(LocalProtocolError, match="protocol 'terms'; list it"):
        run.subscribe("ann", "TRUE", terms=LAST)
    assert run.facts_of(facts.Subscribed) == []


@pytest.mark.spec("RE-3")
def test_facts_say_on_which_terms_a_client_subscribes() -> None:
    run = overlay()
    asked = [fact for fact in run.facts.all if isinstance(fact, facts.Subscribed)]
    stated = [(fact.subscription, fact.keep, fact.order) for fact in asked]
    assert stated == [("a", "last_per(sensor)", ""), ("b", "", "available"), ("c", "", "")]
    client = run.client("ann")
    again = [fact for fact in client.in_force(run.now) if isinstance(fact, facts.Subscribed)]
    assert [(fact.subscription, fact.keep, fact.order) for fact in again] == stated


@pytest.mark.spec("RE-3")
def test_a_script_with_terms_runs_in_a_network_that_knows_them() -> None:
    subscribe = Subscribe(subscription="a", filter=Filter("TRUE"), terms=LAST)
    steps = (Do(client="ann", what=subscribe),)
    script = Script(topology=line(1), clients={"ann": "B1"}, steps=steps)
    assert script.settings().protocols == (TERMS,)
    assert Script(topology=line(1), clients={}, steps=()).settings().protocols == ()
