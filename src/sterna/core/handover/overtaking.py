"""What a guest gets at once although it waits for what it has missed.

(Huang and Garcia-Molina, 4.3: "the ED can still receive new events even if the old EB is
temporarily down or partitioned from the new EB".)

A guest waits until what it missed has come from its old broker, so that the order of each
publisher's events holds. If that broker cannot be reached, that takes long. Events that are surely
new to the guest (`connection_log.py`), and that all its subscriptions that want them let overtake
others, are sent ahead.

They are kept as well, as all that comes while a guest waits. So nothing depends on them: when the
guest is served, or handed over, what it has confirmed is left out, and the rest follows in order.
"""

from collections.abc import Iterable, Mapping, Sequence

from sterna.core.broker import Broker
from sterna.core.handover.cache import read
from sterna.core.handover.connection_log import AHEAD_MAX
from sterna.core.handover.guests import Guest, matching
from sterna.core.handover.messages import Overtaking
from sterna.core.messages import Message
from sterna.core.names import NEVER, NodeId, RouteId, Time
from sterna.core.sizes import batches
from sterna.core.terms.messages import Order, Terms
from sterna.model.event import Event, EventId


def send(
    broker: Broker, client: NodeId, guest: Guest, events: Sequence[Event],
    terms: Mapping[RouteId, Terms], now: Time,
) -> None:  # fmt: skip
    """Send a guest that waits what may overtake the events that it waits for."""
    if guest.new_after == NEVER or not terms or guest.home or not (guest.waits and guest.is_here):
        return
    going = [
        event
        for event in events
        if event.time_us > guest.new_after
        and event.id not in guest.ahead
        and _may_overtake(broker, client, guest, event, terms)
    ]
    for batch in batches(going):
        broker.send(client, Overtaking(events=batch), now)
    guest.ahead.update(dict.fromkeys(event.id for event in going))
    while len(guest.ahead) > AHEAD_MAX:
        del guest.ahead[next(iter(guest.ahead))]


def send_kept(
    broker: Broker, client: NodeId, guest: Guest, terms: Mapping[RouteId, Terms], now: Time
) -> None:
    """Do the same for a guest that is back with what has come meanwhile."""
    if guest.new_after != NEVER and guest.waits and terms:
        kept = read(guest.cache.events(), broker.depot)
        send(broker, client, guest, kept, terms, now)


def without_known(
    broker: Broker, client: NodeId, guest: Guest, events: Sequence[Event]
) -> list[Event]:
    """Of a guest's events, those that it has not confirmed to have got ahead of others."""
    messages = broker.unconfirmed(client) if client in broker.peers else ()
    unconfirmed = {*_ids(messages)}
    return [event for event in events if event.id not in guest.ahead or event.id in unconfirmed]


def lost(guest: Guest, unconfirmed: Iterable[Message]) -> None:
    """The link to a guest was reset: it may not have got what it has not confirmed."""
    for id_ in _ids(unconfirmed):
        guest.ahead.pop(id_, None)


def _may_overtake(
    broker: Broker, client: NodeId, guest: Guest, event: Event, terms: Mapping[RouteId, Terms]
) -> bool:
    wanting = [*matching(broker, client, event), *guest.moving.get(event.id, ())]
    return bool(wanting) and all(
        id_ in terms and terms[id_].order is Order.AVAILABLE for id_ in wanting
    )


def _ids(messages: Iterable[Message]) -> Iterable[EventId]:
    return (
        event.id
        for message in messages
        if isinstance(message, Overtaking)
        for event in message.events
    )
