"""Runs that must be right; one that is not is kept, and the failure says how to replay it."""

import hashlib
import tempfile
from pathlib import Path

import pytest

from sterna.core.broker import Broker
from sterna.core.names import NodeId
from sterna.sim.run import Outcome, Simulation
from sterna.sim.script import Script
from sterna.wire.codec import to_json


def run_rightly(script: Script) -> Outcome:
    """Run a script whose every delivery must be right, and every table whenever it has settled."""
    try:
        outcome = Checked(script).run()
    except AssertionError as error:
        pytest.fail(f"{error}\n{_replay(script)}", pytrace=False)
    if outcome.findings:
        listed = "\n".join(str(finding) for finding in outcome.findings)
        pytest.fail(f"{listed}\n{_replay(script)}", pytrace=False)
    return outcome


class Checked(Simulation):
    """Looks at the tables each time the network has settled."""

    def settle(self) -> None:
        super().settle()
        brokers: dict[NodeId, Broker] = {
            id_: host.node
            for id_, host in self.network.hosts.items()
            if isinstance(host.node, Broker)
        }
        for a, b in self.script.topology.links:
            for teller, listener in ((a, b), (b, a)):
                told = brokers[teller].router.told_filters(listener)
                heard = brokers[listener].router.subscriptions.routes(teller)
                assert told == {id_: route.filter for id_, route in heard.items()}, (
                    f"{listener} knows something else than {teller} has told it"
                )


def _replay(script: Script) -> str:
    text = to_json(script)
    path = Path(tempfile.gettempdir()) / f"sterna-{hashlib.sha256(text).hexdigest()[:12]}.json"
    path.write_bytes(text)
    return f"replay: sterna sim replay {path}"
