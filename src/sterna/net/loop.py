"""The event loop that everything on sockets runs in."""

import asyncio


def new_event_loop() -> asyncio.AbstractEventLoop:
    """Make an event loop: uvloop where it is installed, which is faster."""
    try:
        import uvloop  # noqa: PLC0415 - not on every system.
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
