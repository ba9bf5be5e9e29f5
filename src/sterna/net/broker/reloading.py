"""Changes the configuration of a running broker."""

import asyncio
import logging
from collections.abc import Callable, Sequence

import msgspec

from sterna import plugins
from sterna.core.location.options import PlacesOptions
from sterna.core.settings import Settings
from sterna.errors import SternaError
from sterna.net.broker.doors import Change, Door, Parts
from sterna.net.config import BrokerConfig, ConfigError, all_keys, changed_keys, with_start_keys_of
from sterna.net.logs import set_up_logging
from sterna.net.nodes import settings_of

log = logging.getLogger("sterna.broker")

NOTHING_TO_READ = (
    "this broker was not started from a configuration file; restart it with other settings"
)

Reread = Callable[[], BrokerConfig]
"""Reads the configuration again from where it was read at the start; may raise ConfigError."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The outcome of a reload. Keys are written as `section.key`."""

    name: str
    """The name of the broker."""
    error: str | None = None
    """Why nothing has changed, if the configuration cannot be used."""
    applied: tuple[str, ...] = ()
    """Keys that have changed and take effect now."""
    needs_restart: tuple[str, ...] = ()
    """Keys that have changed and take effect when the broker is restarted."""
    unchanged: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.error is not None:
            return f"nothing has changed: {self.error}"
        parts = [
            f"{what}: {', '.join(keys)}"
            for what, keys in (("applied", self.applied), ("needs a restart", self.needs_restart))
            if keys
        ]
        return "; ".join(parts) or "nothing has changed"


class Reloader:
    """Reads the configuration again, and has all parts use it."""

    def __init__(self, parts: Parts, doors: Sequence[Door], reread: Reread | None) -> None:
        self._parts = parts
        self._doors = doors
        self._reread = reread
        self._reloading = asyncio.Lock()

    async def reload(self) -> Report:
        """Apply what has changed and can be applied; if anything is wrong, nothing changes."""
        name = self._parts.configuration.name
        async with self._reloading:
            try:
                # It may take long to read a large graph.
                config, settings = await asyncio.to_thread(self._read)
            except ConfigError as error:
                report = Report(name=name, error="; ".join(error.problems))
            except (SternaError, OSError) as error:
                report = Report(name=name, error=str(error))
            else:
                report = self._apply(config, settings)
        level = logging.INFO if report.error is None else logging.ERROR
        log.log(level, "%s reloads its configuration: %s", name, report)
        return report

    def _read(self) -> tuple[BrokerConfig, Settings]:
        if self._reread is None:
            raise SternaError(NOTHING_TO_READ)
        config = self._reread()
        settings = settings_of(config)
        plugins.require(settings)
        return config, settings

    def _apply(self, read: BrokerConfig, settings: Settings) -> Report:
        configuration = self._parts.configuration
        config = with_start_keys_of(configuration.config, read)
        keys = changed_keys(configuration.config, config)
        needs_restart = changed_keys(config, read)
        before, before_digest = configuration.settings, configuration.digest
        configuration.adopt(config, settings)
        if settings.mobility != before.mobility:
            keys = _with(keys, "mobility.model")
        if config.places.graph and _is_graph_new(settings.places, before.places, keys):
            keys = _with(keys, "places.graph")
        change = Change(
            keys=frozenset(keys),
            is_digest_new=configuration.digest != before_digest,
            is_advertising_new=settings.routing.by_advertisements
            != before.routing.by_advertisements,
        )
        self._pass_on(change)
        unchanged = [
            key for key in all_keys(BrokerConfig) if key not in keys and key not in needs_restart
        ]
        return Report(
            name=configuration.name,
            applied=tuple(keys),
            needs_restart=needs_restart,
            unchanged=tuple(unchanged),
        )

    def _pass_on(self, change: Change) -> None:
        parts = self._parts
        if any(_is_in(key, "log") for key in change.keys):
            set_up_logging(parts.configuration.config.log)
        parts.driver.configure(
            is_journal_new=any(_is_in(key, "journal") for key in change.keys),
            is_archive_new=any(_is_in(key, "history") for key in change.keys),
        )
        parts.limits.configure(is_heartbeat_new="heartbeat.every_s" in change.keys)
        parts.pausing.look_again()
        for door in self._doors:
            door.configure(change)


def _is_in(key: str, section: str) -> bool:
    return key.startswith(f"{section}.")


def _with(keys: tuple[str, ...], key: str) -> tuple[str, ...]:
    """The keys with one more, whose file has another content, even under the same name."""
    return keys if key in keys else (*keys, key)


def _is_graph_new(
    new: PlacesOptions | None, old: PlacesOptions | None, keys: Sequence[str]
) -> bool:
    """Whether a graph has other edges, or places have changed for no other reason."""
    if new is None or old is None or new.edges != old.edges:
        return new != old
    is_explained = any(_is_in(key, "places") or _is_in(key, "mobility") for key in keys)
    return new != old and not is_explained
