"""Every strategy for disconnected operation in a live network: clients roam, brokers are killed,
and nothing is lost, nothing comes twice, the order holds. (Burcea et al., 3)
"""

import asyncio
from collections import Counter
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from tests.mobility import model_of
from tests.net.campaign import Campaign
from tests.scale import CAMPAIGN

VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "standard": ("standard", {}),
    "standard-device": ("standard", {"subscriptions": "device"}),
    "logging": ("logging", {}),
    "prefetching": ("prefetching", {"brokers_max": 2}),
    "home": ("home", {}),
}
"""The protocol and its options."""

BROKERS = ("B1", "B2", "B3", "B4")
ROUNDS = 2
LONG_S = 20 * CAMPAIGN if CAMPAIGN > 1 else 0


def tables_of(variant: str, directory: Path) -> dict[str, Any]:
    """The configuration of a hierarchy with a strategy; predictions are right by chance only."""
    protocol, options = VARIANTS[variant]
    tables: dict[str, Any] = {"network": {"handover": protocol, "hierarchy": True}}
    if options:
        tables["protocols"] = {protocol: options}
    if protocol == "prefetching":
        model = directory / "brokers.sterna-model"
        model_of({move: n for n, move in enumerate(permutations(BROKERS, 2), 1)}).save(model)
        tables["mobility"] = {"model": str(model)}
    return tables


class Disconnected(Campaign):
    """Mischief in a network with one of the strategies, which is a hierarchy below B1."""

    def __init__(self, directory: Path, variant: str, seed: int) -> None:
        self.protocol = VARIANTS[variant][0]
        tables = tables_of(variant, directory)
        super().__init__(directory / "network", seed, brokers=len(BROKERS), **tables)

    def judge(self) -> None:
        """All clients are connected: only their brokers know them, and home brokers."""
        super().judge()
        known: Counter[str] = Counter()
        for name in self.network.names:
            status = self.network.ask(name, "status")
            assert status["handover"] == self.protocol
            known.update(each["name"] for each in self.network.ask(name, "clients")["clients"])
        places_max = 2 if self.protocol == "home" else 1
        roaming = {name: known[name] for name in known if name.startswith("c")}
        assert len(roaming) == 6
        assert max(roaming.values()) <= places_max, roaming
        self.seen["visitors"] += sum(count == 2 for count in roaming.values())


@pytest.mark.spec("PM-4", "LV-1", "LV-2", "DO-1", "DO-2", "DO-3", "DO-4", "DO-5")
@pytest.mark.parametrize("variant", VARIANTS)
def test_disconnected_clients_of_live_brokers_lose_nothing(variant: str, tmp_path: Path) -> None:
    async def run() -> Counter[str]:
        campaign = Disconnected(tmp_path, variant, CAMPAIGN)
        await campaign.run(ROUNDS, at_least_s=LONG_S)
        assert campaign.oracle.owed() > campaign.seen["published"]
        return campaign.seen

    seen = asyncio.run(run())
    assert seen["rounds"] >= ROUNDS
    assert min(seen["kills"], seen["moves"], seen["troubles"]) > 0
    assert (seen["visitors"] > 0) == (variant == "home")
