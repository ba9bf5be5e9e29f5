"""A network on this machine: brokers that are killed come back where and as they were."""

from pathlib import Path

import pytest

import sterna
from sterna.net.local import LocalNetwork, wait_for


@pytest.mark.spec("LV-1")
def test_a_killed_broker_comes_back_with_what_it_has_acknowledged(tmp_path: Path) -> None:
    """B2 dies with an event for a client that is away, and has it at its old address again."""
    with LocalNetwork(2, directory=tmp_path) as network:
        url = network.url("B2")
        with sterna.blocking.connect(url, client="ann", state=tmp_path / "ann") as ann:
            ann.subscribe("price < 3")
        with sterna.blocking.connect(url, client="bob") as bob:
            bob.publish(price=2).wait()
            network.kill("B2")
            assert not network.is_running("B2")
            assert network.died() == {}, "whoever kills it knows"
            network.restart("B2")
            bob.publish(price=1).wait()

        with sterna.blocking.connect(url, client="ann", state=tmp_path / "ann") as ann:
            prices = ann.subscribe("price < 3")
            assert [prices.get().attributes["price"] for _ in range(2)] == [2, 1]
        network.wait_until_whole()


def test_a_network_has_the_links_it_is_given(tmp_path: Path) -> None:
    config = {"durability": {"level": "none"}, "journal": {"enabled": False}}
    line = {"B2": "B1", "B3": "B2"}
    with LocalNetwork(3, directory=tmp_path, config=config, links=line) as network:
        assert network.ask("B3", "topology")["links"] == [["B1", "B2"], ["B2", "B3"]]
        assert network.end("B3") == 0
        wait_for(lambda: network.ask("B2", "status")["neighbours"]["B3"] is False, "B3 is there")


def test_networks_at_the_same_time_have_different_ports(tmp_path: Path) -> None:
    """Ports are theirs before their brokers listen there, and while they are down."""
    networks = [LocalNetwork(120, directory=tmp_path / str(number)) for number in range(5)]
    ports = [address.port for network in networks for address in network.addresses.values()]
    for network in networks:
        network.stop()

    assert len(set(ports)) == 600


def test_each_broker_has_its_own_page(tmp_path: Path) -> None:
    network = LocalNetwork(3, directory=tmp_path, config={"http": {"listen": "127.0.0.1:9100"}})
    listening = [config.http.listen for config in network.configs.values()]
    network.stop()

    assert listening == ["127.0.0.1:9100", "127.0.0.1:9101", "127.0.0.1:9102"]
