"""Small networks of each routing strategy, with advertisements and without, and other settings."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from sterna.core.routing.options import Strategy
from tests.data.making_0_1.content import AFTERWARDS, FILTERS, publications
from tests.data.making_0_1.recording import Recording

VARIANTS: dict[str, Mapping[str, Any]] = {
    **{str(strategy): {"strategy": str(strategy)} for strategy in Strategy},
    **{
        f"{strategy}-advertisements": {"strategy": str(strategy), "advertisements": True}
        for strategy in Strategy
        if strategy is not Strategy.FLOODING  # It needs none.
    },
    "quenching": {"quenching": True},
    "handover-naive": {"handover": "naive"},
    "handover-none": {"handover": "none"},
}
"""What stands in the table `network` of the configuration."""

WORDS = {
    "quenching": "Publishers discard what nobody wants; `p1` has discarded some of its events.",
    "handover-naive": "A client that disconnects is forgotten at once, so nothing is kept for it.",
    "handover-none": "Clients do not move, and what is not delivered waits on the link to them.",
}


async def make(directory: Path, case: Path) -> None:
    """One variant, named by the directory of its case."""
    network = VARIANTS[case.name]
    said = ", ".join(f"{name} = {value!r}" for name, value in network.items())
    about = f"Two brokers with {said}, stopped in good order. {WORDS.get(case.name, '')}".strip()
    journal = {"enabled": False}
    recording = Recording(
        directory, f"strategies/{case.name}", about, brokers=2, network=network, journal=journal
    )
    async with recording:
        for name, at in (("p1", "B1"), ("p2", "B2"), ("here", "B1"), ("away", "B2")):
            await recording.join(name, at)
        for name in ("p1", "p2"):
            recording.goes_on(name, advertises="n >= 0" if network.get("advertisements") else None)
        for where in (*FILTERS[::2], *_overlapping()):
            await recording.subscribe("away", where)
        for where in _overlapping():
            await recording.subscribe("here", where, called=f"here: {where}")
        await recording.settle()
        await recording.publish("p1", publications(4))
        await recording.settle()
        await recording.take("here", "here: n >= 0 AND n < 16", 2)
        await recording.leave("away")
        await recording.settle()
        recording.members["away"].is_owed = network.get("handover") != "naive"
        await recording.publish("p1", publications(4, first=4))
        await recording.publish("p2", publications(5, first=8))
        if case.name == "quenching":
            unwanted = [({"nobody": "wants this"}, b"")]
            await recording.publish("p1", unwanted)
        await recording.settle()
        recording.afterwards(AFTERWARDS)
        await recording.end(killed=False)
        if network.get("handover") == "naive":  # Clients are not there when it starts again.
            for broker in recording.manifest.brokers.values():
                broker.guests = {}
    recording.keep(case)


def _overlapping() -> list[str]:
    """Filters that are equal, cover each other, and can be merged."""
    return [
        *(f"n >= 0 AND n < {limit}" for limit in (2, 4, 8, 16)),
        *(f"kind = '{kind}' AND price > 0" for kind in ("car", "bus", "tram")),
        *(f"price BETWEEN {low} AND {low + 4}" for low in range(-4, 12, 4)),
        "kind = 'car' AND price > 0 AND flag = TRUE",
    ]
