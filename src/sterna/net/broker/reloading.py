"""Changes the configuration of a running broker."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence

import msgspec

from sterna.core.location.options import PlacesOptions
from sterna.core.names import Peer
from sterna.errors import SternaError
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.doors import Change, Door, Parts
from sterna.net.config import (
    INT_MAX,
    BrokerConfig,
    ConfigError,
    all_keys,
    changed_keys,
    contradictions_in,
    with_start_keys_of,
)
from sterna.net.logs import set_up_logging

log = logging.getLogger("sterna.broker")

NOTHING_TO_READ = (
    "this broker was not started from a configuration file; restart it with other settings"
)

UNTIL_A_RESTART = "as the broker keeps some keys until it is restarted: restart it"

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
                new, needs_restart = await asyncio.to_thread(self._read)
            except ConfigError as error:
                report = Report(name=name, error="; ".join(error.problems))
            except (SternaError, OSError) as error:
                report = Report(name=name, error=str(error))
            except Exception as error:  # Such as one in the code of a protocol.
                log.exception("%s cannot read its configuration", name)
                report = Report(name=name, error=f"{type(error).__name__} ({error})")
            else:
                report = self._apply(new, needs_restart)
        level = logging.INFO if report.error is None else logging.ERROR
        log.log(level, "%s reloads its configuration: %s", name, report)
        return report

    def _read(self) -> tuple[Configuration, tuple[str, ...]]:
        """A new configuration that is tried out, and the keys that need a restart."""
        if self._reread is None:
            raise SternaError(NOTHING_TO_READ)
        running = self._parts.configuration
        read = self._reread()
        config = with_start_keys_of(running.config, read)
        self._check(config)
        new = Configuration(config)
        new.try_out(running.settings)
        return new, changed_keys(config, read)

    def _check(self, config: BrokerConfig) -> None:
        """ConfigError if it contradicts what the broker was started with, its neighbours, or what
        its log takes.
        """
        problems = [
            f"{key}: {problem}, {UNTIL_A_RESTART}" for key, problem in contradictions_in(config)
        ]
        problems.extend(self._problems_with_parent(config))
        if problems:
            raise ConfigError(problems)
        kept, bytes_max = self._parts.driver.log, config.durability.bytes_max
        if kept is None or not 0 < bytes_max < (kept.options.bytes_max or INT_MAX):
            return
        least = kept.bytes_on_disk + config.durability.snapshot_bytes
        if bytes_max < least:
            problem = (
                f"durability.bytes_max: is {bytes_max}, and the log takes {kept.bytes_on_disk} "
                f"bytes now: needs at least {least}, for it grows by snapshot_bytes before it can "
                "shrink"
            )
            raise ConfigError([problem])

    def _problems_with_parent(self, config: BrokerConfig) -> Iterator[str]:
        parent, before = config.network.parent, self._parts.configuration.config.network.parent
        if parent is not None and parent != before:
            peers = self._parts.driver.node.peers.items()
            neighbours = [name for name, peer in peers if peer is Peer.BROKER]
            if parent not in neighbours:
                known = ", ".join(neighbours) or "none yet"
                yield f"network.parent: is {parent!r}, which is no neighbour; there are {known}"

    def _apply(self, new: Configuration, needs_restart: tuple[str, ...]) -> Report:
        configuration, config, settings = self._parts.configuration, new.config, new.settings
        keys = changed_keys(configuration.config, config)
        before, before_digest = configuration.settings, configuration.digest
        configuration.adopt(new)
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
