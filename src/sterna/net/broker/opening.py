"""Opens what a broker left on disk: its log, and with it the node as it was."""

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

from sterna.core.broker import Broker
from sterna.core.inputs import Configured
from sterna.errors import StartError
from sterna.net.broker.configuration import Configuration
from sterna.net.broker.journaling import Journalist
from sterna.net.broker.spilling import Spill
from sterna.net.config import BrokerConfig, Durability
from sterna.net.engine import Driver, Engine, Recovered, loading, recover
from sterna.net.nodes import OLDER_KINDS, STATE_KIND, broker_of, new_broker
from sterna.net.records import Began
from sterna.net.storage import Log, LogOptions
from sterna.net.storage.locking import lock_directory
from sterna.net.storage.recovery import Recovery

log = logging.getLogger("sterna.broker")

LOG = "log"
"""The directory of the log, in that of the broker."""


def open_engine(
    configuration: Configuration, driver: Driver, journalist: Journalist, spill: Spill
) -> tuple[Engine[Broker], Log | None]:
    """A broker's engine and log, with its node restored; nothing stays open on an error."""
    config, make = configuration.config, partial(broker_of, depot=spill.depot)
    new = new_broker(config.name, configuration.settings)
    if config.durability.level is Durability.NONE:
        journalist.open(config, log_end=None)
        engine = Engine(make(new), driver, new)
        if journalist.journal is not None:
            engine.inputs = journalist.journal.last_position.position
        return engine, None
    opened, recovery = Log.open(
        Path(config.data) / LOG,
        kind=STATE_KIND,
        older=OLDER_KINDS,
        load=loading(make),
        options=log_options(config),
    )
    try:
        found = recover(opened, recovery, new, make)
        spill.loaded(found.node, found.position)
        return _recover(opened, recovery, found, new, configuration, driver, journalist), opened
    except BaseException:
        opened.close()
        raise


def lock(config: BrokerConfig) -> Callable[[], None]:
    """Keep other brokers out of the directory of one that has no log; the result lets them in."""
    if config.durability.level is not Durability.NONE:
        return lambda: None  # The log does that.
    directory = Path(config.data) / LOG
    try:
        return lock_directory(directory)
    except OSError as error:
        if not config.journal.enabled:
            return lambda: None  # Nothing is written there.
        reason = error.strerror or str(error)
        raise StartError(
            f"cannot write to {directory}: {reason}; choose another directory (`data`)"
        ) from None


def configure(engine: Engine[Broker], configuration: Configuration) -> None:
    """Have a node work by the settings of the configuration, if it does not yet."""
    if engine.node.settings != configuration.settings:
        engine.give(Configured(settings=configuration.settings))


def log_options(config: BrokerConfig) -> LogOptions:
    """The options of a broker's log."""
    durability = config.durability
    return LogOptions(
        segment_bytes=durability.segment_bytes,
        snapshot_bytes=durability.snapshot_bytes,
        snapshot_records=durability.snapshot_inputs,
        bytes_max=durability.bytes_max or None,
        salvage=durability.salvage,
    )


def _recover(
    opened: Log,
    recovery: Recovery,
    found: Recovered[Broker],
    new: Began,
    configuration: Configuration,
    driver: Driver,
    journalist: Journalist,
) -> Engine[Broker]:
    config = configuration.config
    if found.began.node != config.name:
        raise StartError(
            f"the data in {config.data} is of broker {found.began.node!r}, not of "
            f"{config.name!r}; give each broker a directory of its own (`data`)"
        )
    if found.began is not new:
        log.info("%s", recovery.report)
    journalist.open(config, log_end=opened.appended)
    level = config.durability.level
    engine = Engine(found.node, driver, found.began, level=level, log=opened, compacts=True)
    engine.recover(found)
    return engine
