"""Whatever goes wrong in a live network: nothing is lost, nothing comes twice, the order holds."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from tests.net.campaign import Campaign
from tests.scale import CAMPAIGN

ROUNDS = 8
LONG_S = 85 * CAMPAIGN if CAMPAIGN > 1 else 0
"""About half an hour in `make test-long`."""


@pytest.mark.spec("LV-1", "LV-2", "LV-3", "LV-6")
def test_a_live_network_loses_nothing_under_faults(tmp_path: Path) -> None:
    """Brokers are killed, connections break and fall silent, disks fill, and clients roam; when all
    is mended, every event is with everyone who was subscribed, once and in order.
    """

    async def run() -> Counter[str]:
        campaign = Campaign(tmp_path, seed=CAMPAIGN)
        await campaign.run(ROUNDS, at_least_s=LONG_S)
        assert campaign.oracle.owed() > campaign.seen["published"]
        return campaign.seen

    seen = asyncio.run(run())
    assert seen["rounds"] >= ROUNDS
    assert min(seen["kills"], seen["moves"], seen["troubles"]) > 0  # It had something to survive.
