"""Topics that belong to the brokers: what they tell there of themselves nobody else can publish."""

from sterna.devices.locating import LOCATION

RESERVED = ("$SYS", "$sterna")
"""The first levels of these topics."""

FOR_DEVICES = (LOCATION,)
"""The topics among them to which devices publish."""


def why_reserved(topic: str) -> str | None:
    """Why a device cannot publish to a topic; None if it can."""
    if not topic.startswith("$") or topic in FOR_DEVICES:
        return None
    first = topic.partition("/")[0]
    if first not in RESERVED:
        return None
    return (
        f"topics that begin with {first}/ are for brokers only, except {' and '.join(FOR_DEVICES)}"
    )
