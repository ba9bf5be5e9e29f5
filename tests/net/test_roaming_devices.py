"""Fifty MQTT clients roam between four brokers that are killed."""

from pathlib import Path

import pytest

from tests.net.roaming_devices import KILLED_EVERY, Campaign, brokers_of
from tests.scale import CAMPAIGN


@pytest.mark.spec("LV-4")
@pytest.mark.skipif(CAMPAIGN == 1, reason="takes minutes; test_mqtt.py has three brokers")
def test_nothing_is_lost_and_nothing_comes_twice(tmp_path: Path) -> None:
    rounds = 60
    with brokers_of("sterna", tmp_path) as brokers:
        count = Campaign(brokers, seed=CAMPAIGN).run(rounds)

    assert count.kills == rounds // KILLED_EVERY
    assert count.moves > rounds
    assert (count.lost, count.late, count.twice[2]) == (0, 0, 0), str(count)
