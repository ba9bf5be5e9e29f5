"""A shared subscription: each message goes to one of its members. (MQTT 5.0, 4.8.2)

A group is hosted as a device is, by one broker of the network: it has a client inside the broker,
which subscribes once for all members, and this in the place of a session. Its members are where
their sessions are. What was given to a member and comes back goes to another one.
"""

from collections import deque
from collections.abc import Iterable, Sequence

import msgspec

from sterna.core.names import NodeId, Time
from sterna.core.sizes import Load, weight
from sterna.devices.filters import Wish
from sterna.devices.options import DeviceOptions
from sterna.devices.sending import Messages
from sterna.model.event import Event

GIVEN_MAX = 200
"""So many messages are given to a member before it is done with some of them."""

GROUP = "mqtt:$share/"
"""The names of groups begin with it. No client identifier does: it would be that of a device."""


def group_of(share: str, wish: Wish) -> NodeId:
    """The name of a group: members with other filters are in another one."""
    more = "".join(f"?{each}" for each in (wish.where, wish.keep) if each)
    return f"{GROUP}{share}/{wish.topics}{more}"


class Member(msgspec.Struct):
    """A member of a group."""

    name: NodeId
    broker: NodeId
    """Where its session is."""
    is_active: bool
    """Whether it is connected."""
    given: int = 0
    """How many messages it has that it is not done with."""


class Given(msgspec.Struct, frozen=True):
    """Messages for a member."""

    member: Member
    numbers: tuple[int, ...]
    events: tuple[Event, ...]


class KeptGroup(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a group."""

    members: list[Member]
    pending: list[tuple[int, Event]]
    given: list[tuple[int, Event, NodeId]]
    last: int


class Group:
    """In the place of the session of a device: gives out what its client gets."""

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self.is_over = False
        self.closes = False
        self.members: dict[NodeId, Member] = {}
        """The members, the one that is next first."""
        self.giving: list[Given] = []
        """What is to be sent to members in this turn."""
        self._pending: deque[tuple[int, Event]] = deque()
        self._given: dict[int, tuple[Event, NodeId]] = {}
        self._last = 0

    # ---- Members

    @property
    def has_active(self) -> bool:
        """Whether any member is connected."""
        return any(member.is_active for member in self.members.values())

    def join(self, name: NodeId, broker: NodeId, *, is_active: bool) -> None:
        """A member is at a broker now, connected or not; of another broker it is old news."""
        member = self.members.get(name)
        if member is None:
            self.members[name] = Member(name, broker, is_active)
        elif is_active or member.broker == broker:
            member.broker, member.is_active = broker, is_active

    def leave(self, name: NodeId, broker: NodeId) -> None:
        """A member has left; it goes on with what it has."""
        member = self.members.get(name)
        if member is not None and member.broker == broker:
            del self.members[name]

    def done(self, numbers: Iterable[int]) -> None:
        """Members are done with messages."""
        for number in numbers:
            self._take(number)

    def returned(self, numbers: Iterable[int]) -> None:
        """Members give messages back, which go to others, before what is newer."""
        back = [(number, event) for number in numbers if (event := self._take(number)) is not None]
        self._pending = deque(sorted([*back, *self._pending], key=lambda each: each[0]))

    def _take(self, number: int) -> Event | None:
        event, name = self._given.pop(number, (None, ""))
        if event is not None and name in self.members:
            self.members[name].given -= 1
        return event

    # ---- As a session

    @property
    def wants_more(self) -> bool:
        """Whether it takes more events."""
        return self.is_over or (not self._pending and self.has_active)

    def deliver(
        self,
        events: Sequence[Event],
        subscriptions: Sequence[Sequence[str]],
        messages: Messages,
        now: Time,
    ) -> None:
        """Events have come for the group."""
        del subscriptions, now
        for event in events:
            if not self.is_over and messages.of(event, self.options).publish is not None:
                self._last += 1
                self._pending.append((self._last, event))

    def known(self, subscription: str, now: Time) -> None:
        """Do nothing: a group has one subscription, for good."""

    def flush(self, now: Time) -> None:
        """Give out what can be given now, to one member after the other."""
        del now
        gathered: dict[NodeId, list[tuple[int, Event]]] = {}
        while self._pending:
            member = self._next()
            if member is None:
                break
            number, event = self._pending.popleft()
            self._given[number] = event, member.name
            member.given += 1
            gathered.setdefault(member.name, []).append((number, event))
        for name, found in gathered.items():
            numbers, events = zip(*found, strict=True)
            self.giving.append(Given(self.members[name], numbers, events))

    def _next(self) -> Member | None:
        """The member whose turn it is."""
        for name, member in self.members.items():
            if member.is_active and member.given < GIVEN_MAX:
                self.members[name] = self.members.pop(name)
                return member
        return None

    @property
    def load(self) -> Load:
        """How much it holds."""
        events = [*(event for _, event in self._pending), *(e for e, _ in self._given.values())]
        return Load(len(events), sum(map(weight, events)))

    # ---- Snapshots

    def keep(self) -> KeptGroup:
        """What a snapshot has to hold."""
        return KeptGroup(
            members=[msgspec.structs.replace(member) for member in self.members.values()],
            pending=list(self._pending),
            given=[(number, *given) for number, given in self._given.items()],
            last=self._last,
        )

    def restore(self, kept: KeptGroup) -> None:
        """Go on with what a snapshot has held."""
        self.members = {member.name: member for member in kept.members}
        self._pending = deque(kept.pending)
        self._given = {number: (event, name) for number, event, name in kept.given}
        self._last = kept.last
