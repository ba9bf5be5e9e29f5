"""What a snapshot of a broker holds of its devices."""

from typing import TYPE_CHECKING

import msgspec

from sterna.core.keeping import Reader, Writer
from sterna.core.names import NEVER, NodeId, Time
from sterna.devices.device import Device
from sterna.devices.group import KeptGroup
from sterna.devices.kept import KeptSession
from sterna.devices.retained import KeptRetained
from sterna.devices.search import KeptSearch
from sterna.devices.sharing import GroupHost
from sterna.wire.snapshots import encode_node

if TYPE_CHECKING:
    from sterna.devices.hosting import Devices


class KeptDevice(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a device."""

    name: NodeId
    session: KeptSession
    client: bytes
    is_attached: bool
    is_over: bool
    will_at: Time
    ends_at: Time
    time: Time = 0


class KeptGroupHost(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a group."""

    name: NodeId
    group: KeptGroup
    client: bytes
    is_attached: bool
    is_over: bool
    time: Time = 0


class KeptDevices(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot holds of a broker's devices."""

    devices: list[KeptDevice]
    groups: list[KeptGroupHost]
    lives: dict[NodeId, int]
    search: KeptSearch
    retained: KeptRetained


def keep(devices: "Devices", writer: Writer) -> KeptDevices:
    """What a snapshot has to hold."""
    writer.more(len(devices.devices))
    return KeptDevices(
        devices=[_device(each) for each in devices.devices.values()],
        groups=[_group(each) for each in devices.groups.values()],
        lives=dict(devices.clients.lives),
        search=devices.search.keep(),
        retained=devices.retained_messages.keep(writer),
    )


def _device(device: Device) -> KeptDevice:
    return KeptDevice(
        name=device.name,
        session=device.session.keep(),
        client=encode_node(device.client),
        is_attached=device.is_attached,
        is_over=device.session.is_over,
        will_at=device.will_at,
        ends_at=device.ends_at,
        time=device.time,
    )


def _group(host: GroupHost) -> KeptGroupHost:
    return KeptGroupHost(
        name=host.name,
        group=host.group.keep(),
        client=encode_node(host.client),
        is_attached=host.is_attached,
        is_over=host.group.is_over,
        time=host.time,
    )


def restore(devices: "Devices", kept: KeptDevices, reader: Reader) -> None:
    """Go on with what a snapshot has held."""
    devices.retained_messages.restore(kept.retained, reader)
    devices.clients.lives = dict(kept.lives)
    devices.search.restore(kept.search)
    for each in kept.devices:
        _restore_device(devices, each)
    for group in kept.groups:
        _restore_group(devices, group)


def _restore_device(devices: "Devices", kept: KeptDevice) -> None:
    client = devices.clients.restored(kept.name, kept.client)
    device = devices.devices[kept.name] = Device(devices, client, devices.options)
    device.session.restore(kept.session)
    device.session.is_over = kept.is_over
    device.is_attached, device.time = kept.is_attached, kept.time
    device.will_at, device.ends_at = kept.will_at, kept.ends_at
    if kept.is_attached:
        device.restore_transit(devices.broker.on_its_way(kept.name))
    for time in (kept.will_at, kept.ends_at):
        if time != NEVER:
            devices.visits.look_at(device.name, time)


def _restore_group(devices: "Devices", kept: KeptGroupHost) -> None:
    client = devices.clients.restored(kept.name, kept.client)
    host = devices.groups[kept.name] = GroupHost(devices, client, devices.options)
    host.group.restore(kept.group)
    host.group.is_over = kept.is_over
    host.is_attached, host.time = kept.is_attached, kept.time
    if kept.is_attached:
        host.restore_transit(devices.broker.on_its_way(kept.name))
