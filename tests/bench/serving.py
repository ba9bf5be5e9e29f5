"""A server in a thread of this process, for benchmarks that measure somebody else."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sterna.bench.servers import free_port


@contextmanager
def serving(make: Callable[[], asyncio.Protocol]) -> Iterator[int]:
    """The port at which each connection gets a protocol made by this function."""
    loop, port = asyncio.new_event_loop(), free_port()
    loop.run_until_complete(loop.create_server(make, "127.0.0.1", port))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield port
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
