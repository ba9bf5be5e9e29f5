"""The protocols that come with Sterna."""

from sterna.core.adhoc.serving import AD_HOC
from sterna.core.confirming.echoes import PROTOCOL as CONFIRMING
from sterna.core.handover.home import HOME
from sterna.core.handover.logging import LOGGING
from sterna.core.handover.naive import NAIVE
from sterna.core.handover.options import Handover
from sterna.core.handover.prefetching import PREFETCHING
from sterna.core.handover.relocation import RELOCATION
from sterna.core.handover.standard import STANDARD
from sterna.core.history.recent import PAST
from sterna.core.history.search import PROTOCOL as SEARCH
from sterna.core.location.moving import MOVING
from sterna.core.mobile.efficient import EFFICIENT
from sterna.core.mobile.modular import MODULAR
from sterna.core.mobile.ordering import ORDERING
from sterna.core.mobile.phoenix import PHOENIX
from sterna.core.mobile.reversing import REVERSING
from sterna.core.mobile.simple import SIMPLE
from sterna.core.overlay.branches import BRANCHES
from sterna.core.overlay.electing import ELECTION
from sterna.core.overlay.members import OVERLAY
from sterna.core.overlay.post import POST
from sterna.core.presubscribing.replicator import PRESUBSCRIBING
from sterna.core.protocol import Kind, Protocol, register
from sterna.core.terms.agreements import PROTOCOL as TERMS

LIVE = (OVERLAY.name, PAST.name, SEARCH.name, CONFIRMING.name, POST.name, TERMS.name)
"""The protocols that every broker on sockets takes part in, whatever else is configured."""

LIVE_0_1 = (OVERLAY.name, PAST.name)
"""What every broker of release 0.1 took part in."""

PROTOCOLS = (
    BRANCHES,
    OVERLAY,
    PAST,
    SEARCH,
    PRESUBSCRIBING,
    CONFIRMING,
    TERMS,
    MOVING,
    POST,
    ELECTION,
    ORDERING,
    SIMPLE,
    MODULAR,
    EFFICIENT,
    REVERSING,
    AD_HOC,
    Protocol(name=Handover.NONE, kind=Kind.HANDOVER),
    NAIVE,
    RELOCATION,
    STANDARD,
    PREFETCHING,
    LOGGING,
    HOME,
    PHOENIX,
)
"""All protocols that come with Sterna."""

for _protocol in PROTOCOLS:
    register(_protocol)
