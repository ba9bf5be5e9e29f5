"""A client process with a state, to be killed: `python -m tests.net.live_client pub|sub …`.

The publisher numbers its events by what its state says it has published. The subscriber writes each
number to a file before it asks for the next event.
"""

import asyncio
import os
import sys
from pathlib import Path

from sterna.net.client import connect


async def publish(url: str, state: str, count: int) -> None:
    """Go on until so many are published, and all are with the broker."""
    async with connect(url, client="publisher", state=state) as client:
        engine = client._driver.engine
        assert engine is not None
        done = engine.node.published - engine.began.seq
        for number in range(done, count):
            client.publish(n=number)
            if number % 20 == 0:
                await asyncio.sleep(0.001)
        await client.drain()


async def subscribe(url: str, state: str, count: int, output: Path) -> None:
    """Go on until the last one has come."""
    file = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    async with connect(url, client="subscriber", state=state) as client:
        async for event in client.subscribe("n >= 0"):
            os.write(file, f"{event.attributes['n']}\n".encode())
            if event.attributes["n"] == count - 1:
                break


def main(what: str, url: str, state: str, count: str, output: str) -> None:
    if what == "pub":
        asyncio.run(publish(url, state, int(count)))
    else:
        asyncio.run(subscribe(url, state, int(count), Path(output)))


if __name__ == "__main__":
    main(*sys.argv[1:])
