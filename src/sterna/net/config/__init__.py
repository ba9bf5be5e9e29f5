"""The configuration of a broker: a TOML file, overridden by environment variables."""

from sterna.net.config.broker import BrokerConfig
from sterna.net.config.changes import all_keys, changed_keys, with_start_keys_of
from sterna.net.config.reading import ConfigError
from sterna.net.config.schema import (
    MIB,
    PREFIX,
    ConfigSection,
    choices,
    description,
    is_for_start,
    is_size,
    keys,
    sections,
    variable,
)
from sterna.net.config.sections import (
    Durability,
    DurabilityConfig,
    HeartbeatConfig,
    HistoryConfig,
    HttpConfig,
    JournalConfig,
    LimitsConfig,
    LogConfig,
    LogFormat,
    LogLevel,
    MobilityConfig,
    NetworkConfig,
    PlacesConfig,
    SlowConsumer,
)
from sterna.net.config.writing import value_as_toml

__all__ = [
    "MIB",
    "PREFIX",
    "BrokerConfig",
    "ConfigError",
    "ConfigSection",
    "Durability",
    "DurabilityConfig",
    "HeartbeatConfig",
    "HistoryConfig",
    "HttpConfig",
    "JournalConfig",
    "LimitsConfig",
    "LogConfig",
    "LogFormat",
    "LogLevel",
    "MobilityConfig",
    "NetworkConfig",
    "PlacesConfig",
    "SlowConsumer",
    "all_keys",
    "changed_keys",
    "choices",
    "description",
    "is_for_start",
    "is_size",
    "keys",
    "sections",
    "value_as_toml",
    "variable",
    "with_start_keys_of",
]
