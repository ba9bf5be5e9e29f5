"""What a broker is given of the devices that are connected to it."""

from sterna.core.inputs import Input
from sterna.core.names import HOSTED, NodeId
from sterna.mqtt.packets import Connect, Packet, Version

PREFIX = HOSTED
"""The names of devices begin with it, so that no broker and no other client has the same one."""


def device_name(client_id: str) -> NodeId:
    """The name of a device in the network."""
    return PREFIX + client_id


def client_id_of(device: NodeId) -> str:
    """The client identifier of a device."""
    return device.removeprefix(PREFIX)


class DeviceConnected(Input, frozen=True, kw_only=True):
    """A device has connected; a connection that it had here before is over."""

    device: NodeId
    connect: Connect
    is_assigned: bool = False
    """Whether the broker has chosen its client identifier."""


class DeviceSaid(Input, frozen=True, kw_only=True):
    """Packets have come from a device that is connected."""

    device: NodeId
    version: Version
    packets: tuple[Packet, ...]


class DeviceLost(Input, frozen=True, kw_only=True):
    """The connection of a device is over, and no DISCONNECT came that ended it."""

    device: NodeId
    grace_s: int = 0
    """For how long its will waits at least: it was sent to another broker, which may have it soon.
    """
