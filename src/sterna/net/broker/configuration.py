"""The configuration that a broker uses now."""

import secrets

from sterna.core.assembly import client_settings, make_broker
from sterna.core.inputs import Configured
from sterna.core.settings import Settings
from sterna.errors import SternaError
from sterna.net.config import BrokerConfig, LimitsConfig, Overlay
from sterna.net.nodes import settings_of
from sterna.net.records import encode_record
from sterna.wire.frames import FEATURES, VERSION, Hello, Role, control, digest


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
        self.config = config
        self.settings = settings_of(config)
        self.client_settings = client_settings(self.settings)
        self.digest = digest(self.client_settings)
        self.run = secrets.token_hex(8)
        """Different for each start of the broker."""

    def adopt(self, new: "Configuration") -> None:
        """Use another configuration from now on."""
        self.config = new.config
        self.settings = new.settings
        self.client_settings = new.client_settings
        self.digest = new.digest

    def try_out(self, before: Settings | None = None) -> None:
        """Do all that may fail with these settings, for a node that nobody uses.

        A node changes to them from the settings `before`, if there were any. SternaError if
        something fails, which is most likely the code of a protocol from another package.
        """
        try:
            make_broker(self.name, self.settings)
            given = Configured(settings=self.settings)
            if before is not None:
                make_broker(self.name, before).handle(given, 0)
            encode_record(given, 0)
            control(self.hello(""))
        except Exception as error:
            raise SternaError(
                f"a broker cannot work with these settings: {type(error).__name__} ({error})"
            ) from error

    def hello(self, address: str) -> Hello:
        """The handshake frame of the broker, which others reach at this address."""
        return Hello(
            versions=(VERSION, VERSION),
            role=Role.BROKER,
            node=self.name,
            features=FEATURES,
            address=address,
            settings=self.client_settings,
            digest=self.digest,
            frame_bytes_max=self.limits.frame_bytes_max,
            advertises=self.settings.routing.by_advertisements,
            run=self.run,
            candidates=self.config.network.neighbours if self.clients_seek else (),
        )

    @property
    def clients_seek(self) -> bool:
        """Whether clients look for a broker by themselves, among devices alone."""
        return self.config.network.overlay is Overlay.AD_HOC

    @property
    def name(self) -> str:
        """The name of the broker, which never changes."""
        return self.config.name

    @property
    def limits(self) -> LimitsConfig:
        """How much peers may ask of the broker."""
        return self.config.limits
