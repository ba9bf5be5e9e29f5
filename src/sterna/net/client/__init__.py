"""The client library: publish and subscribe from an asyncio program, wherever it moves.

    async with sterna.connect("sterna://127.0.0.1:7461", client="car-7") as client:
        async for event in client.subscribe("service = 'parking' AND price < 3", past=10):
            ...

The client reconnects by itself, to the same broker or another one of its list, and keeps its
subscriptions. Each event is delivered once, and those of each publisher in order. With a `state`
directory, this holds across restarts of the process, too.
"""

from sterna.net.client.api import Client, connect

__all__ = ["Client", "connect"]
