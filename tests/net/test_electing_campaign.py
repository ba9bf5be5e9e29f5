"""Brokers on sockets that make their own tree, when leaders are killed and the network is split."""

import asyncio
from pathlib import Path
from statistics import median

import pytest

from tests.net.electing import ElectingCampaign
from tests.scale import CAMPAIGN

KILLS, SPLITS, PERIOD_S = (12, 2, 10.0) if CAMPAIGN > 1 else (2, 1, 0.0)
"""Two minutes in `make test-long`."""

WHOLE_BEATS = 3.0
"""So many heartbeats after a change, the network is whole again: half of the times at least, for
the machine may be busy. What the longest one took is printed."""


@pytest.mark.spec("MB-1", "MB-7", "LV-1")
def test_a_live_network_heals_itself_and_loses_nothing(tmp_path: Path) -> None:
    """Each leader is killed with SIGKILL and comes back from its log, links and datagrams are cut
    between two parts and pass again, and clients roam and publish: what a broker has acknowledged
    is with everyone who wants it, once and in order.
    """

    async def run() -> ElectingCampaign:
        campaign = ElectingCampaign(tmp_path, seed=CAMPAIGN)
        await campaign.run(KILLS, SPLITS, period_s=PERIOD_S)
        return campaign

    campaign = asyncio.run(run())

    assert (campaign.seen["kills"], campaign.seen["splits"]) == (KILLS, SPLITS)
    assert campaign.seen["moves"] > 0
    assert campaign.oracle.owed() > campaign.seen["published"] > 0
    took = [beats for each in campaign.took.values() for beats in each]
    print(f"whole again after so many heartbeats: {campaign.took}")
    assert len(took) == 2 * (KILLS + SPLITS)
    assert median(took) <= WHOLE_BEATS
