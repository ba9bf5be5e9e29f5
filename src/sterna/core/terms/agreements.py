"""The broker's part in the terms of subscriptions: it knows those of its clients."""

from collections.abc import Collection, Mapping, Sequence
from typing import Self

import msgspec

from sterna.core.component import BrokerComponent
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, NodeId, Peer, RouteId, Time
from sterna.core.protocol import Protocol
from sterna.core.settings import Settings
from sterna.core.terms.messages import DEFAULT, TERMS, Terms, TermsChange, TermsOf
from sterna.core.terms.stating import Stating
from sterna.model.queue_policies import QueuePolicy, policy_or_none


class TermsOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What can be configured below `[protocols.terms]`."""

    clocks_differ_s: float = 1.0
    """By how much the clocks of clients and publishers may differ. An event may overtake others if
    it was published by so much later than its client was connected elsewhere."""

    def __post_init__(self) -> None:
        if not 0 <= self.clocks_differ_s < float("inf"):
            raise ValueError("clocks_differ_s is a number of seconds, and not negative")


class KeptAgreements(msgspec.Struct, frozen=True):
    """What a snapshot holds of the terms of clients."""

    terms: dict[NodeId, dict[RouteId, Terms]]


class Agreements(BrokerComponent):
    """The terms that clients have stated: those that are here, away, at home here, or expected.

    A client states them wherever it comes, before anything is kept for it there. Where it has its
    home, or is expected, another broker passes them on.
    """

    name = TERMS
    handles = (TermsChange,)
    Kept = KeptAgreements

    @classmethod
    def make(cls, settings: Settings) -> Self:
        return cls(settings.options_of(TERMS, TermsOptions))

    def __init__(self, options: TermsOptions = TermsOptions()) -> None:  # noqa: B008 - frozen.
        self._options = options
        self._terms: dict[NodeId, dict[RouteId, Terms]] = {}
        self._policies: dict[NodeId, dict[RouteId, QueuePolicy]] = {}
        """What the terms say is kept of waiting events, as far as this broker understands it."""

    def configure(self, settings: Settings, now: Time) -> None:
        del now
        self._options = settings.options_of(TERMS, TermsOptions)

    @property
    def clocks_differ_us(self) -> Time:
        """By how much the clocks of clients and publishers may differ."""
        return round(self._options.clocks_differ_s * 1e6)

    def of(self, client: NodeId) -> Mapping[RouteId, Terms]:
        """The terms of a client's subscriptions that have other ones than the default."""
        return self._terms.get(client, _NONE)

    def policies_of(self, client: NodeId) -> Mapping[RouteId, QueuePolicy]:
        """The queue policies of a client's subscriptions. For those that are not there, everything
        is kept: they have none, or one that only other releases know.
        """
        return self._policies.get(client, _NO_POLICIES)

    @property
    def has_policies(self) -> bool:
        """Whether there is a queue policy at all."""
        return bool(self._policies)

    def on_terms_change(self, message: TermsChange, link: LinkId, now: Time) -> None:
        """A client has subscribed on terms of its own, or ended such a subscription."""
        if self.broker.peers.get(link) is Peer.BROKER:
            return
        if message.anew:
            self.replace(link, message.added, now)
        else:
            self._change(link, (*message.added, *((id_, DEFAULT) for id_ in message.removed)), now)
        if self.broker.hooks.goes_elsewhere:
            change = TermsChange(added=tuple(self.of(link).items()), anew=True)
            self.broker.goes_elsewhere(change, link, now)

    def _change(self, client: NodeId, changes: TermsOf, now: Time) -> None:
        """Some subscriptions of a client have these terms; the others are not looked at."""
        known = self._terms.setdefault(client, {})
        is_new = False
        for id_, terms in changes:
            is_new = is_new or known.get(id_, DEFAULT) != terms
            if terms == DEFAULT:
                known.pop(id_, None)
            else:
                known[id_] = terms
            self._understand(client, id_, terms)
        if not known:
            del self._terms[client]
        if is_new:
            for changed in self.broker.hooks.terms_changed:
                changed(client, now)

    def replace(self, client: NodeId, terms: TermsOf, now: Time) -> None:
        """A client has these terms from now on, and no others."""
        known = {id_: each for id_, each in terms if each != DEFAULT}
        if known == self.of(client):
            return
        if known:
            self._terms[client] = known
        else:
            del self._terms[client]
        self._policies.pop(client, None)
        for id_, each in known.items():
            self._understand(client, id_, each)
        for changed in self.broker.hooks.terms_changed:
            changed(client, now)

    def _understand(self, client: NodeId, id_: RouteId, terms: Terms) -> None:
        """Know the policy of a subscription, if it has one."""
        policy = policy_or_none(terms.keep)
        if policy is not None:
            self._policies.setdefault(client, {})[id_] = policy
        elif id_ in self.policies_of(client):
            del self._policies[client][id_]
            if not self._policies[client]:
                del self._policies[client]

    def claimed(self, link: LinkId) -> Sequence[tuple[str, Collection[RouteId]]]:
        return [(TERMS, self.of(link))]

    # ---- Moments

    def link_new(self, link: LinkId, now: Time) -> None:
        if not any(keeps(link) for keeps in self.broker.hooks.keeps):
            self.replace(link, (), now)

    def link_gone(self, link: LinkId, unconfirmed: Sequence[Message], now: Time) -> None:
        del unconfirmed
        self.replace(link, (), now)

    # ---- Snapshots

    def keep(self, writer: Writer) -> KeptAgreements:
        del writer
        return KeptAgreements({client: dict(terms) for client, terms in self._terms.items()})

    def restore(self, kept: KeptAgreements, reader: Reader) -> None:
        del reader
        self._terms = {client: dict(terms) for client, terms in kept.terms.items()}
        for client, terms in self._terms.items():
            for id_, each in terms.items():
                self._understand(client, id_, each)


PROTOCOL = Protocol(name=TERMS, broker=Agreements, client=Stating)

_NONE: Mapping[RouteId, Terms] = {}
_NO_POLICIES: Mapping[RouteId, QueuePolicy] = {}
