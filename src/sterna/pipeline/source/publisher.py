"""The client that publishes what Spark has staged, for code that is not asynchronous."""

import asyncio
import contextlib
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from sterna.core.names import LocalProtocolError
from sterna.errors import SternaError
from sterna.net.client import Client, connect
from sterna.net.loop import new_event_loop
from sterna.pipeline.errors import PipelineError
from sterna.pipeline.source.staged import Row
from sterna.pipeline.source.staging import PublishingClient

BROKERS_S = 60.0
"""How many seconds no broker may answer before a batch is given up. The next attempt goes on."""


class Publisher(PublishingClient):
    """A client with all calls that a commit needs."""

    def __init__(
        self, brokers: Sequence[str], *, client: str, state: Path | None, advertise: str | None
    ) -> None:
        self._brokers = brokers
        self._name = client
        self._state = state
        self._advertise = advertise
        self._runner = asyncio.Runner(loop_factory=new_event_loop)
        self._client: Client

    def __enter__(self) -> Self:
        try:
            self._client = self._runner.run(self._connected())
        except (SternaError, OSError) as error:
            self._runner.close()
            raise PipelineError(f"nothing is published: {error}") from error
        except BaseException:
            self._runner.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._runner:
            self._runner.run(self._client.close(timeout=5.0 if kind is None else 0.0))

    @property
    def published(self) -> int:
        return self._client.published

    @property
    def event_bytes_max(self) -> int:
        return self._client.event_bytes_max

    def publish_all(self, rows: Iterable[Row]) -> None:
        try:
            self._runner.run(self._publish_all(rows))
        except (SternaError, ValueError) as error:
            raise PipelineError(f"not all is published: {error}") from error

    async def _connected(self) -> Client:
        client = await connect(
            *self._brokers, client=self._name, state=self._state, timeout=BROKERS_S
        )
        if self._advertise is not None:
            with contextlib.suppress(LocalProtocolError):  # An earlier process has advertised.
                client.advertise(self._advertise)  # Named by its filter, so that a new one counts.
        return client

    async def _publish_all(self, rows: Iterable[Row]) -> None:
        publishing = asyncio.create_task(self._drain_and_publish(rows))
        until = time.monotonic() + BROKERS_S
        while not publishing.done():
            await asyncio.wait({publishing}, timeout=1.0)
            if self._client.is_connected:
                until = time.monotonic() + BROKERS_S
            elif time.monotonic() > until:
                publishing.cancel()
                raise SternaError(
                    f"none of {', '.join(self._brokers)} answers; start brokers, then the "
                    "query again: what is left will be published"
                )
        await publishing

    async def _drain_and_publish(self, rows: Iterable[Row]) -> None:
        # What an earlier process has left may fill the client's buffer, so it goes first.
        await self._client.drain()
        await self._client.publish_all(rows)
