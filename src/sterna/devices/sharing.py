"""Shared subscriptions across brokers: members here, and groups here.

A group is at the broker where its first member subscribed; all brokers know where, as they do of
sessions. A broker tells it of its members, and what became of the messages that they were given.
"""

from typing import TYPE_CHECKING

from msgspec.structs import replace

from sterna.core.client import Client
from sterna.core.names import NodeId, Time
from sterna.devices.filters import Wish
from sterna.devices.group import Group
from sterna.devices.hosted import Hosted, Inside
from sterna.devices.messages import Place, ShareEnded, ShareGiven, ShareJoined, ShareLeft
from sterna.devices.options import DeviceOptions

if TYPE_CHECKING:
    from sterna.devices.hosting import Devices


class GroupHost(Hosted):
    """A group at its broker, and the client that the broker hosts for it."""

    def __init__(self, inside: Inside, client: Client, options: DeviceOptions) -> None:
        super().__init__(inside, client)
        self.group = Group(options)

    @property
    def machine(self) -> Group:
        return self.group


class Sharing:
    """What a broker does for members, and for groups."""

    def __init__(self, devices: "Devices") -> None:
        self._devices = devices
        self._ended: dict[NodeId, tuple[list[int], list[int]]] = {}
        """Of each group what is done, and what is given back."""

    @property
    def _here(self) -> NodeId:
        return self._devices.broker.id

    def _broker_of(self, group: NodeId) -> NodeId:
        """Where a group is, or is going to be."""
        place = self._devices.places.get(group)
        known = "" if place is None else place.broker
        return known if known and self._devices.is_member(known) else self._here

    # ---- For members that are here

    def join(self, member: NodeId, group: NodeId, wish: Wish, *, is_active: bool) -> None:
        """A member has subscribed, has come, or is not connected any more."""
        self._devices.send(
            ShareJoined(
                to=self._broker_of(group),
                sender=self._here,
                group=group,
                member=member,
                topics=wish.topics,
                where=wish.where,
                keep=wish.keep,
                is_active=is_active,
            )
        )

    def leave(self, member: NodeId, group: NodeId) -> None:
        """A member has unsubscribed, or its session has ended."""
        to = self._broker_of(group)
        self._devices.send(ShareLeft(to=to, sender=self._here, group=group, member=member))

    def ended(self, group: NodeId, number: int, *, is_done: bool) -> None:
        """A member is done with a message, or gives it back."""
        done, returned = self._ended.setdefault(group, ([], []))
        (done if is_done else returned).append(number)

    def gather(self) -> None:
        """Send what was gathered in this turn."""
        ended, self._ended = self._ended, {}
        for group, (done, returned) in ended.items():
            self._devices.send(
                ShareEnded(
                    to=self._broker_of(group),
                    sender=self._here,
                    group=group,
                    done=tuple(done),
                    returned=tuple(returned),
                )
            )

    @property
    def has_news(self) -> bool:
        """Whether something was gathered."""
        return bool(self._ended)

    def given(self, message: ShareGiven, now: Time) -> None:
        """Messages have come for a member."""
        device = self._devices.devices.get(message.member)
        session = None if device is None else device.session
        for number, event in zip(message.numbers, message.events, strict=True):
            share = message.group, number
            if session is None:
                self.ended(*share, is_done=False)
            else:
                session.subscriptions.deliver_shared(event, share, now)
        self._devices.touch(message.member)

    def moved(self, group: NodeId) -> None:
        """A group is elsewhere now: its members here join it there."""
        for device in self._devices.devices.values():
            device.session.subscriptions.join_again(group)

    # ---- For groups that are here

    def joined(self, message: ShareJoined, now: Time) -> None:
        """A member is somewhere."""
        to = self._broker_of(message.group)
        if to != self._here:
            self._devices.send(replace(message, to=to))
            return
        host = self._host(message, now)
        host.group.join(message.member, message.sender, is_active=message.is_active)
        self._look_after(host, now)

    def _host(self, message: ShareJoined, now: Time) -> GroupHost:
        name = message.group
        host = self._devices.groups.get(name)
        if host is None or host.group.is_over:
            host = self._devices.new_group(name, now)
            template = self._devices.options.topic
            wish = Wish(message.topics, message.where, message.keep, template=template)
            host.subscribe("1", wish, now)
            self._devices.note(Place(name, self._here, self._devices.places.next_epoch(name, now)))
        return host

    def left(self, message: ShareLeft, now: Time) -> None:
        """A member has left."""
        host = self._devices.groups.get(message.group)
        if host is not None:
            host.group.leave(message.member, message.sender)
            self._look_after(host, now)
        else:
            self._pass_on(message)

    def settled(self, message: ShareEnded, now: Time) -> None:
        """Members are done with messages, or give them back."""
        del now
        host = self._devices.groups.get(message.group)
        if host is not None:
            host.group.done(message.done)
            host.group.returned(message.returned)
            self._devices.touch(message.group)
        else:
            self._pass_on(message)

    def _pass_on(self, message: ShareLeft | ShareEnded) -> None:
        to = self._broker_of(message.group)
        if to != self._here:
            self._devices.send(replace(message, to=to))

    def _look_after(self, host: GroupHost, now: Time) -> None:
        """Attach a group as long as it has active members; without members, it ends."""
        if not host.group.members:
            host.attach(now)
            host.leave(now)
        elif host.group.has_active:
            host.attach(now)
        else:
            host.detach(now)
        self._devices.touch(host.name)

    def give(self, host: GroupHost) -> None:
        """Send what a group gives to its members."""
        group = host.group
        giving, group.giving = group.giving, []
        for each in giving:
            self._devices.send(
                ShareGiven(
                    to=each.member.broker,
                    sender=self._here,
                    group=host.name,
                    member=each.member.name,
                    numbers=each.numbers,
                    events=each.events,
                )
            )
