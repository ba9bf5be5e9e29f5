"""Looks up events in the archive for a broker, one lookup after the other, in its own thread."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.core.actions import LookUp
from sterna.errors import ArchiveError
from sterna.model.event import Event
from sterna.net.config import BrokerConfig

if TYPE_CHECKING:
    from sterna.net.archive import Archive

log = logging.getLogger("sterna.broker")


class Historian:
    """Answers all lookups; with nothing, if there is no archive or it cannot be read."""

    def __init__(
        self, config: BrokerConfig, answer: Callable[[int, tuple[Event, ...]], None]
    ) -> None:
        self._answer = answer
        self._archive: Archive | None = None
        self.configure(config)
        self._thread = ThreadPoolExecutor(1, "historian")
        self._loop = asyncio.get_running_loop()

    def configure(self, config: BrokerConfig) -> None:
        """Look into the archive of this configuration from now on, if it has one."""
        folder = config.history.archive
        if not folder:
            self._archive = None
            return
        from sterna.net.archive import Archive  # noqa: PLC0415 - reading Parquet takes long to load.

        self._archive = Archive(
            Path(folder),
            events_max=config.history.events_max,
            bytes_max=config.limits.queue_bytes_per_client_max // 4,
        )
        if not Path(folder).is_dir():
            log.warning(
                "[history] archive: there is no folder %s yet; sterna pipeline run makes it", folder
            )

    @property
    def has_archive(self) -> bool:
        return self._archive is not None

    def look_up(self, asked: LookUp) -> None:
        """Look up events, and answer when the files have been read."""
        self._thread.submit(self._find, asked).add_done_callback(
            lambda done: self._tell(asked.question, done)
        )

    def stop(self) -> None:
        if self._archive is not None:
            self._archive.is_stopped = True
        self._thread.shutdown(cancel_futures=True)

    def _find(self, asked: LookUp) -> tuple[Event, ...]:
        archive = self._archive
        if archive is None:
            return ()
        try:
            return tuple(
                archive.past(
                    asked.filter,
                    events_max=asked.events_max,
                    since_us=asked.since_us,
                    until_us=asked.until_us,
                )
            )
        except ArchiveError as error:
            log.error("%s", error)
        except Exception:
            log.exception("the archive cannot be read")
        return ()

    def _tell(self, question: int, done: "Future[tuple[Event, ...]]") -> None:
        if not done.cancelled():
            self._loop.call_soon_threadsafe(self._answer, question, done.result())
