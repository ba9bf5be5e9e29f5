"""The client's part in the terms of subscriptions: it states them to its broker."""

import msgspec

from sterna.core.component import ClientComponent
from sterna.core.inputs import LinkUp
from sterna.core.keeping import Reader, Writer
from sterna.core.messages import Message
from sterna.core.names import LinkId, Time
from sterna.core.terms.messages import DEFAULT, TERMS, Terms, TermsChange


class KeptStating(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of the terms of a client's subscriptions."""

    terms: dict[str, Terms]
    has_stated: bool
    is_owed: bool
    is_mute: bool


class Stating(ClientComponent):
    """Keeps the terms of subscriptions that have other ones than the default.

    Brokers of older releases know nothing of terms: they are not told, and keep everything.
    """

    name = TERMS
    Kept = KeptStating

    def __init__(self) -> None:
        self._terms: dict[str, Terms] = {}
        """The terms by the names of subscriptions."""
        self._has_stated = False
        """Whether a broker was ever told of any."""
        self._is_owed = False
        """Whether the broker has not been told of them, because it could not be."""
        self._is_mute = False
        """Whether the broker does not take part in the protocol."""

    def of(self, name: str) -> Terms:
        """The terms of a subscription."""
        return self._terms.get(name, DEFAULT)

    def state(self, name: str, terms: Terms, now: Time) -> None:
        """A subscription begins on these terms; the broker hears of them before that."""
        if terms != DEFAULT:
            self._terms[name] = terms
            self._tell(TermsChange(added=((self.client.route(name), terms),)), now)

    def unsubscribed(self, name: str, now: Time) -> None:
        if self._terms.pop(name, None) is not None:
            self._tell(TermsChange(removed=(self.client.route(name),)), now)

    def introduction(self) -> tuple[Message, ...]:
        self._is_owed = self._is_mute
        if self._is_mute or not (self._terms or self._has_stated):
            return ()
        self._has_stated = True
        return (self._all(),)

    def _tell(self, change: TermsChange, now: Time) -> None:
        if self._is_mute:
            self._is_owed = True
        else:
            self._has_stated = True
            self.client.tell(change, now)

    def _all(self) -> TermsChange:
        added = ((self.client.route(name), terms) for name, terms in self._terms.items())
        return TermsChange(added=tuple(added), anew=True)

    # ---- Moments

    def link_made(self, given: LinkUp, now: Time) -> None:
        del now
        self._is_mute = given.features is not None and TERMS not in given.features

    def link_up(self, link: LinkId, now: Time) -> None:
        """A broker may be of a later release than when it was connected last."""
        del link
        if self._is_owed and not self._is_mute and self.client.is_introduced:
            self._is_owed = False
            self._tell(self._all(), now)

    # ---- Settings and snapshots

    def begin(self, now: Time) -> None:
        """Whether the broker takes part is known when its link is made the next time."""
        del now
        self._is_mute = self._is_owed = True

    def keep(self, writer: Writer) -> KeptStating:
        del writer
        return KeptStating(
            terms=dict(self._terms),
            has_stated=self._has_stated,
            is_owed=self._is_owed,
            is_mute=self._is_mute,
        )

    def restore(self, kept: KeptStating, reader: Reader) -> None:
        del reader
        self._terms, self._has_stated = dict(kept.terms), kept.has_stated
        self._is_owed, self._is_mute = kept.is_owed, kept.is_mute
