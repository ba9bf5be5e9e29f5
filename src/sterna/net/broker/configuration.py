"""The configuration that a broker uses now."""

from sterna.core.assembly import client_settings
from sterna.core.settings import Settings
from sterna.net.config import BrokerConfig, LimitsConfig
from sterna.net.nodes import settings_of
from sterna.wire.frames import digest


class Configuration:
    """The current configuration, and what follows from it.

    All parts of a broker share one and read it whenever they need it, for a reload replaces its
    content.
    """

    config: BrokerConfig
    settings: Settings
    """What the configuration means to the broker's node."""
    client_settings: Settings
    """What its clients have to know of those settings."""
    digest: str
    """The digest of the settings for clients."""

    def __init__(self, config: BrokerConfig) -> None:
        self.adopt(config, settings_of(config))

    def adopt(self, config: BrokerConfig, settings: Settings) -> None:
        """Use this configuration from now on."""
        self.config = config
        self.settings = settings
        self.client_settings = client_settings(settings)
        self.digest = digest(self.client_settings)

    @property
    def name(self) -> str:
        """The name of the broker, which never changes."""
        return self.config.name

    @property
    def limits(self) -> LimitsConfig:
        """How much peers may ask of the broker."""
        return self.config.limits
