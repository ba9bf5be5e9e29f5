"""The queue of events from publishing threads to the event loop."""

import threading
from collections import deque
from collections.abc import Mapping

from sterna.errors import SternaError, TimedOutError
from sterna.model.event import Scalar
from sterna.net import client as async_client
from sterna.net.blocking.handles import Receipt
from sterna.net.blocking.thread import LoopThread, acquired, left
from sterna.net.client.waiting import timed_out
from sterna.net.client.window import BATCH_EVENTS, Window


class Outgoing:
    """Passes events from threads to the client in the event loop, a batch at a time."""

    def __init__(self, client: async_client.Client, thread: LoopThread) -> None:
        self._client = client
        self._thread = thread
        self._events: deque[tuple[Mapping[str, Scalar], bytes, Receipt]] = deque()
        self._publishing = threading.Lock()
        self._is_pumping = False
        self._window: Window[Receipt] = Window()
        self._problem: Exception | None = None
        """Why an event could not be published, for `drain`."""

    def put(
        self,
        attributes: Mapping[str, Scalar],
        payload: bytes,
        receipt: Receipt,
        deadline: float | None = None,
    ) -> Receipt:
        """Publish an event; wait while too many are in flight."""
        self._client._life.check()
        if not acquired(self._publishing, deadline):
            raise timed_out(0, "this event got no turn among those of other threads")
        try:
            self._events.append((attributes, payload, receipt))
            if not self._is_pumping:
                self._is_pumping = True
                self._thread.loop.call_soon_threadsafe(self._pump)
            self._window.put(receipt)
            if (mark := self._window.next()) is not None:
                self._wait_for(mark.receipt, deadline)  # Other threads wait, too.
        finally:
            self._publishing.release()
        return receipt

    def _wait_for(self, receipt: Receipt, deadline: float | None) -> None:
        try:
            receipt.wait(left(deadline))
        except TimedOutError:
            raise
        except (SternaError, ValueError):
            pass  # Its own publisher gets the error.
        self._window.arrived()

    async def drain(self) -> None:
        """Wait until all are accepted; raise the error if one of them could not be published."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        await self._client.drain()

    def pump_all(self) -> None:
        """Pass on all events that were published."""
        while self._events:
            self._pass_on()

    def _pump(self) -> None:
        """Pass on a batch of the events that were published."""
        self._is_pumping = False
        for _ in range(BATCH_EVENTS):  # The event loop has other things to do as well.
            if not self._events:
                return
            self._pass_on()
        self._is_pumping = True
        self._thread.loop.call_soon(self._pump)

    def _pass_on(self) -> None:
        attributes, payload, receipt = self._events.popleft()
        try:
            receipt._receipt = self._client.publish(attributes, payload)
        except (SternaError, ValueError) as problem:
            receipt._problem = problem
            self._problem = self._problem or problem
