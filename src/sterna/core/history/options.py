"""What brokers remember of the events that passed, and how far a search for the past goes."""

from enum import StrEnum

import msgspec

from sterna.core.names import Time
from sterna.model.filters import Filter


class Search(StrEnum):
    """Where brokers look for the past of a subscription; each refines the one before."""

    NONE = "none"
    """At the client's own broker only."""
    NEAREST = "nearest"
    """On the way to the publishers, up to the first broker that has everything from there."""
    LARGEST = "largest"
    """At all brokers on the way; one that has no more than another before it sends nothing."""
    MERGED = "merged"
    """At all brokers on the way; each sends what it has."""
    JUNCTIONS = "junctions"
    """The same, and the events of several publishers are put in the order of their times."""
    SEQUENCES = "sequences"
    """The same, and nobody sends what is known to be there already."""
    COMPLETE = "complete"
    """The same, and a broker that has enough asks nobody else."""

    @property
    def stops_at_first(self) -> bool:
        """Whether a broker that has everything from some neighbours does not ask these."""
        return self is Search.NEAREST

    @property
    def sends_more_only(self) -> bool:
        """Whether a broker sends nothing unless it has more than those before it."""
        return self is Search.LARGEST

    @property
    def sorts(self) -> bool:
        """Whether events of several publishers are put in the order of their times."""
        return self in {Search.JUNCTIONS, Search.SEQUENCES, Search.COMPLETE}

    @property
    def names_known(self) -> bool:
        """Whether a question says which events are there already."""
        return self in {Search.SEQUENCES, Search.COMPLETE}

    @property
    def stops_when_enough(self) -> bool:
        """Whether a broker that has enough asks nobody else."""
        return self is Search.COMPLETE


class BufferOptions(msgspec.Struct, frozen=True, kw_only=True):
    """A history buffer: which events it keeps, and how many."""

    filter: Filter = Filter("TRUE")
    events_max: int = 10_000
    bytes_max: int = 64 << 20
    age_max_us: Time | None = None


class HistoryOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What a broker remembers of the events that passed it."""

    events_max: int = 10_000
    bytes_max: int = 64 << 20
    age_max_us: Time | None = None
    """How long an event is kept at most."""
    buffers: tuple[BufferOptions, ...] = ()
    """More buffers, for some events only: others do not push these out."""
    publisher_events: int = 100
    """How many events of each of its own publishers a broker keeps, however loud the others are."""
    publishers_max: int = 10_000
    """Of how many publishers; those that were silent for the longest time are forgotten first."""
    search: Search = Search.COMPLETE
    search_us: Time = 2_000_000
    """How long a broker waits for what others have."""
    hold_us: Time = 5_000_000
    """How long a client's events wait for earlier ones; then it goes on without these."""
    prepares: bool = False
    """Whether also subscriptions without a past have brokers find out from when on they have
    everything, so that others find it near."""
