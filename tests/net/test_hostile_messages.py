"""Whatever a client says, a broker's node takes it or its driver refuses it: it never stumbles."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.core.actions import Transmit
from sterna.core.assembly import make_broker
from sterna.core.broker import Broker
from sterna.core.catalogue import LIVE
from sterna.core.handover.messages import Arrival
from sterna.core.handover.options import Handover, HandoverOptions
from sterna.core.inputs import LinkDown, LinkUp, Received, TimePassed
from sterna.core.link import Data, Frame, Resume
from sterna.core.location.messages import Probed
from sterna.core.location.options import PlacesOptions
from sterna.core.location.steps import StepRule
from sterna.core.messages import Message, Route, SubscriptionChange
from sterna.core.names import Peer
from sterna.core.protocol import message_types
from sterna.core.routing.options import RoutingOptions, Strategy
from sterna.core.settings import ClientOptions, Settings
from sterna.model.filters import Filter
from sterna.net.admission import Admission, RefusedError
from sterna.net.nodes import AT_A_BROKER
from sterna.wire.codec import Bodies, MalformedError, decode, encode
from sterna.wire.snapshots import encode_node, restore_node
from tests.scale import examples
from tests.wire.messages import frames, in_range_or_not, messages_of, raw

SETTINGS = Settings(
    handover=HandoverOptions(protocol=Handover.RELOCATION, away_max_us=1_000_000),
    places=PlacesOptions(edges=(("c1", "c2"), ("c2", "B1"))),
    protocols=LIVE,
)
ARRANGEMENTS = [
    SETTINGS,
    Settings(
        routing=RoutingOptions(strategy=Strategy.MERGING, advertisements=True),
        client=ClientOptions(advertisements=True, quenching=True),
        places=PlacesOptions(edges=(("c1", "c2"),), dwell_us=1_000, rule=StepRule.CEIL),
        protocols=LIVE,
    ),
    Settings(
        routing=RoutingOptions(strategy=Strategy.IMPERFECT, interest_members_max=16),
        client=ClientOptions(quenching=True),
        handover=HandoverOptions(protocol=Handover.NAIVE),
        places=PlacesOptions(h3_resolution=5),
        protocols=LIVE,
    ),
    Settings(routing=RoutingOptions(strategy=Strategy.FLOODING), protocols=LIVE),
    Settings(routing=RoutingOptions(strategy=Strategy.SIMPLE), places=PlacesOptions()),
    *(
        Settings(
            handover=HandoverOptions(protocol=protocol, away_max_us=1_000_000),
            places=PlacesOptions(edges=(("B1", "B2"), ("B2", "c1"))),
            protocols=LIVE,
        )
        for protocol in (Handover.STANDARD, Handover.LOGGING, Handover.PREFETCHING, Handover.HOME)
    ),
]
ONLY_BROKERS_SAY = [kind for kind in message_types() if not kind.from_clients]
TALK = st.one_of(*(messages_of(kind) for kind in message_types() if kind.from_clients))
EXTREMES = st.one_of(
    *(messages_of(kind, in_range_or_not) for kind in message_types() if kind.from_clients)
)


def standing(settings: Settings = SETTINGS) -> Broker:
    """A broker with a neighbour and a client, whose links are up."""
    broker = make_broker("B1", settings, timing=AT_A_BROKER, incarnation=1)
    for link, peer in (("B2", Peer.BROKER), ("c1", Peer.CLIENT)):
        broker.handle(LinkUp(link=link, peer=peer), 1)
        broker.handle(Received(link=link, frames=(Resume(7, None, 0, True),)), 2)
    return broker


@pytest.mark.spec("LV-6")
@examples(400, long=5)
@given(st.lists(TALK, max_size=8), st.lists(frames(TALK), max_size=3), st.booleans())
def test_nothing_that_a_client_may_say_makes_a_broker_stumble(
    said: list[Message], odd: list[Frame], breaks: bool
) -> None:
    """In the right order or not; and all that it says to others because of it can be sent."""
    broker = standing()
    admission = Admission(broker.claimed, subscriptions_max=100)
    talk: list[Frame] = [Data(number, 0, message) for number, message in enumerate(said, 1)]
    now = 10
    for frame in [*talk, *odd]:
        now += 1
        try:
            came = decode(b"".join(encode(frame, Bodies())))
            admission.check("c1", [came])
        except (RefusedError, MalformedError):
            continue
        _take(broker, Received(link="c1", frames=(came,)), now)
    if breaks:
        _take(broker, LinkDown(link="c1"), now)
        _take(broker, LinkUp(link="c1", peer=Peer.CLIENT), now)
        _take(broker, Received(link="c1", frames=(Resume(7, 2**32 + 1, 0, True),)), now)
    end = now + 15_000_000
    while broker.deadline < end:
        now = max(now, broker.deadline)
        _take(broker, TimePassed(), now)
    again = restore_node(encode_node(broker), make_broker("B1", SETTINGS, timing=AT_A_BROKER))
    assert encode_node(again) == encode_node(broker)


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("settings", ARRANGEMENTS, ids=range(len(ARRANGEMENTS)))
def test_whatever_numbers_come_in_only_what_others_can_read_goes_out(settings: Settings) -> None:
    """Numbers at the ends of their ranges and beyond, as an attacker sends them."""

    @examples(60, long=5)
    @given(st.lists(EXTREMES, min_size=1, max_size=6), st.booleans())
    def holds(said: list[Message], breaks: bool) -> None:
        broker = standing(settings)
        known = Data(1, 0, ALL), Data(2, 0, Probed(number=1))  # It knows the way to B2.
        _take(broker, Received(link="B2", frames=known), 2_000)
        came = 0
        for message in said:
            with suppress(MalformedError):
                frame = decode(raw(Data(came + 1, 0, message)))
                came += 1
                _take(broker, Received(link="c1", frames=(frame,)), 2_010 + came)
        if breaks:
            _take(broker, LinkDown(link="c1"), 2_020)
        now, end = 2_020, 15_000_000
        while broker.deadline < end:
            now = max(now, broker.deadline)
            _take(broker, TimePassed(), now)
        encode_node(broker)

    holds()


ALL = SubscriptionChange(added=(Route("all", Filter("TRUE")),))


def _take(broker: Broker, given: LinkUp | LinkDown | Received | TimePassed, now: int) -> None:
    """Give a broker an input: another one can read all that it sends because of that."""
    actions = broker.handle(given, now).actions
    for action in actions:
        if isinstance(action, Transmit):
            decode(b"".join(encode(action.frame, Bodies())))


# ---- What is refused


@pytest.mark.spec("LV-6")
@pytest.mark.parametrize("kind", ONLY_BROKERS_SAY, ids=lambda kind: kind.__name__)
def test_what_only_brokers_say_is_refused_from_a_client(kind: type[Message]) -> None:
    @examples(3)
    @given(messages_of(kind))
    def refuses(message: Message) -> None:
        admission = Admission(lambda _: (), subscriptions_max=100)
        with pytest.raises(RefusedError, match=kind.__name__):
            admission.check("c1", [Data(1, 0, message)])

    refuses()


def subscribing(*names: str, removing: tuple[str, ...] = ()) -> Data:
    added = tuple(Route(name, Filter("TRUE")) for name in names)
    return Data(1, 0, SubscriptionChange(added=added, removed=removing))


@pytest.mark.spec("LV-6")
def test_subscriptions_are_counted_as_the_broker_has_them() -> None:
    """Said twice they count once; what ends makes room; what a restart has brought back counts."""
    admission = Admission(lambda _: [("subscription", {"1", "2"})], subscriptions_max=3)
    admission.check("c1", [subscribing("1", "2", "3"), subscribing("3")])
    admission.check("c1", [subscribing(removing=("1",)), subscribing("3", "4")])
    with pytest.raises(RefusedError, match="subscriptions_per_client_max"):
        admission.check("c1", [subscribing("3"), subscribing("4")])
    with pytest.raises(RefusedError, match="subscriptions_per_client_max"):
        admission.check("c1", [subscribing("3", removing=("5",)), subscribing("4")])


@pytest.mark.spec("LV-6", "DO-4")
def test_what_a_visitor_advertises_on_its_arrival_counts() -> None:
    """Else it could bring as many advertisements as it likes."""
    routes = tuple(Route(f"ann/{number}", Filter("x > 0")) for number in range(6))
    arrival = Arrival(
        visit=2, born=1, stay=1, received=0, brings=False, home="B1", advertisements=routes
    )
    admission = Admission(lambda _link: [], subscriptions_max=5)

    with pytest.raises(RefusedError, match="5"):
        admission.check("ann", [Data(1, 0, arrival)])
