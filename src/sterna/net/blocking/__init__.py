"""The client library for programs without asyncio: the same calls, but blocking.

    with sterna.blocking.connect("sterna://127.0.0.1:7461", client="car-7") as client:
        for event in client.subscribe("service = 'parking' AND price < 3", past=10):
            ...

An event loop in a thread of its own does the work. All objects here may be used from any thread.
"""

from sterna.net.blocking.client import Client, connect
from sterna.net.blocking.handles import Advertisement, Connections, Receipt, Subscription
from sterna.net.blocking.watching import WatchingClient

__all__ = [
    "Advertisement",
    "Client",
    "Connections",
    "Receipt",
    "Subscription",
    "WatchingClient",
    "connect",
]
