"""The protocols that come with Sterna."""

from sterna.core.handover.naive import NAIVE
from sterna.core.handover.options import Handover
from sterna.core.handover.relocation import RELOCATION
from sterna.core.history.recent import PAST
from sterna.core.location.moving import MOVING
from sterna.core.overlay.members import OVERLAY
from sterna.core.protocol import Kind, Protocol, register

LIVE = (OVERLAY.name, PAST.name)
"""The protocols that every broker on sockets takes part in, whatever else is configured."""

PROTOCOLS = (
    OVERLAY,
    PAST,
    MOVING,
    Protocol(name=Handover.NONE, kind=Kind.HANDOVER),
    NAIVE,
    RELOCATION,
)
"""All protocols that come with Sterna."""

for _protocol in PROTOCOLS:
    register(_protocol)
