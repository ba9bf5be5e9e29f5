"""A broker on sockets and disk.

`BrokerServer` puts the parts together and runs them from start to stop. Peers come in through a
`Door`, which listens, does the handshake and adds a `Session` to `Sessions`; the other parts know
sessions only. How bytes travel is the business of a `Transport`.
"""

from sterna.errors import StartError
from sterna.extras import require

require("broker", "a broker")

from sterna.net.broker.server import BrokerServer
from sterna.net.nodes import STATE_KIND

__all__ = ["STATE_KIND", "BrokerServer", "StartError"]
