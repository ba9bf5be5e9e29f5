"""What brokers tell each other of devices: where sessions are, and what is retained."""

from abc import abstractmethod
from collections.abc import Sequence

from sterna.core.component import BrokerComponent
from sterna.core.messages import Message
from sterna.core.names import LinkId, Peer, Time
from sterna.core.overlay.messages import Unicast
from sterna.core.sizes import BATCH_BYTES_MAX
from sterna.devices.messages import Place, RetainedNoted, SessionsNoted
from sterna.devices.options import DeviceOptions
from sterna.devices.places import Places
from sterna.devices.retained import Retained, RetainedMessages, chunks, is_retained, topic_of
from sterna.model.event import Event
from sterna.model.filters import Filter

PLACES_AT_ONCE = 5_000
"""So many places of sessions are in one message."""


class Announcing(BrokerComponent):
    """Has all brokers know the same, and sends messages to single ones."""

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self.places = Places()
        """Where sessions and groups are."""
        self.retained_messages = RetainedMessages()
        self._news: list[Place] = []
        """Places of sessions that are to be announced to the neighbours."""
        self._mail: list[Unicast] = []
        """What is to be sent to other brokers."""

    @abstractmethod
    def placed(self, place: Place) -> None:
        """A session or a group is at another place, as another broker has announced."""

    def begin(self, now: Time) -> None:
        for link in self.broker.known:
            if self.broker.peers[link] is Peer.BROKER:
                self.broker.send(link, SessionsNoted(asks=True), now)

    def link_new(self, link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is Peer.BROKER:
            self._send_all(link, now)

    def _send_all(self, link: LinkId, now: Time) -> None:
        """Send a neighbour all that it may not know."""
        places = list(self.places)
        for at in range(0, len(places), PLACES_AT_ONCE):
            noted = SessionsNoted(places=tuple(places[at : at + PLACES_AT_ONCE]))
            self.broker.send(link, noted, now)
        for group in chunks(self.retained_messages, BATCH_BYTES_MAX):
            self.broker.send(link, _noted(group), now)

    def _tell_all(self, message: Message, source: LinkId | None, now: Time) -> None:
        """Send something to all neighbours but the one that it comes from."""
        for link, peer in self.broker.peers.items():
            if peer is Peer.BROKER and link != source and link in self.broker.known:
                self.broker.send(link, message, now)

    # ---- Places

    def on_sessions_noted(self, message: SessionsNoted, link: LinkId, now: Time) -> None:
        """Sessions are elsewhere now."""
        news = tuple(place for place in message.places if self.places.note(place))
        if news:
            self._tell_all(SessionsNoted(places=news), link, now)
        if message.asks:
            self._send_all(link, now)
        for place in news:
            self.placed(place)

    def note(self, place: Place) -> None:
        """Note where a session is now, and have all brokers know."""
        if self.places.note(place):
            self._news.append(place)

    def send(self, message: Unicast) -> None:
        """Send something to another broker."""
        self._mail.append(message)

    @property
    def has_mail(self) -> bool:
        """Whether something is to be sent to other brokers."""
        return bool(self._news or self._mail)

    def send_mail(self, now: Time) -> None:
        """Send what has gathered."""
        if self._news:
            news, self._news = tuple(self._news), []
            self._tell_all(SessionsNoted(places=news), None, now)
        mail, self._mail = self._mail, []
        for message in mail:
            self.broker.post.send(message, now)

    # ---- Retained messages

    def events_passing(self, events: Sequence[Event], link: LinkId, now: Time) -> None:
        if self.broker.peers[link] is not Peer.CLIENT:
            return
        found = [event for event in events if is_retained(event.attributes)]
        if found:
            retained = self.retained_messages
            news = [
                retained.publish(event, now)
                for event in found
                if topic_of(event) in retained or self.may_retain(topic_of(event))
            ]
            self._announce_retained(news, None, now)

    def on_retained_noted(self, message: RetainedNoted, link: LinkId, now: Time) -> None:
        """Messages are retained elsewhere."""
        found = map(Retained, message.stamps, message.events)
        news = [
            each
            for each in found
            if is_retained(each.event.attributes) and self.retained_messages.note(each, now)
        ]
        self._announce_retained(news, link, now)

    def _announce_retained(
        self, news: Sequence[Retained], source: LinkId | None, now: Time
    ) -> None:
        if news:
            self._tell_all(_noted(news), source, now)

    def may_retain(self, topic: str) -> bool:
        """Whether there is room for a retained message of a topic."""
        retained = self.retained_messages
        return topic in retained or len(retained) < self.options.retained_max

    def retained(self, topics: str, filter_: Filter, now: Time) -> Sequence[Event]:
        """The retained messages of the topics of a topic filter that match a filter."""
        found = self.retained_messages.matching(topics, now)
        return [event for event in found if filter_.matches(event.attributes)]


def _noted(retained: Sequence[Retained]) -> RetainedNoted:
    return RetainedNoted(
        events=tuple(each.event for each in retained),
        stamps=tuple(each.stamp for each in retained),
    )
