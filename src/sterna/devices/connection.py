"""The connection of a device as its session sees it: whether there is one, and what goes out."""

from sterna.devices.frames import Deliveries, Delivery
from sterna.devices.options import DeviceOptions
from sterna.mqtt.packets import Connect, Disconnect, Packet, ReasonCode, Version


class Connection:
    """The present connection of a device, or the last one."""

    def __init__(self, options: DeviceOptions) -> None:
        self.options = options
        self.is_connected = False
        self.closes: bool = False
        """Whether the connection is to be closed behind what is in the `outbox`."""
        self.outbox: list[Packet | Delivery | Deliveries] = []
        self.version = Version.V5
        self.wants_problem_information = True

    def begin(self, connect: Connect) -> None:
        """A connection begins."""
        self.version = connect.version
        self.wants_problem_information = connect.wants_problem_information
        self.is_connected = True
        self.closes = False
        self.outbox.clear()

    def end(self) -> None:
        """The connection is over."""
        self.is_connected = False
        self.closes = False
        self.outbox.clear()

    def refuse(self, reason_code: ReasonCode, what: str) -> None:
        """End the connection and give the reason."""
        if self.is_connected and not self.closes:
            if self.version is Version.V5:
                self.outbox.append(Disconnect(reason_code, reason_string=self.reason(what)))
            self.closes = True

    def reason(self, what: str) -> str | None:
        """A reason string, if the device wants any.

        Whoever encodes it leaves it out if the packet would be larger than the device takes.
        """
        return what if what and self.wants_problem_information else None
