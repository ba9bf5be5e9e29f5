"""No client may hold an event for longer than the settings say, whatever happens."""

from sterna.core.facts import Fact
from sterna.core.history.recall import Recall
from sterna.core.names import Peer
from sterna.sim.network import Network, Observer


class Holds(Observer):
    """Looks at what every client holds, whenever anybody states anything."""

    network: Network | None = None
    """Set when there is one."""
    held = 0
    """How often there was something to look at."""

    def fact(self, fact: Fact) -> None:
        del fact
        self.check()

    def check(self) -> None:
        """Every event that waits has not waited for too long."""
        if self.network is None:
            return
        now = self.network.kernel.now
        for id_, host in self.network.hosts.items():
            if host.peer is Peer.CLIENT:
                recall = host.node.part(Recall.name)
                assert isinstance(recall, Recall)
                for each in recall._held:
                    assert each.since + recall._hold_us >= now, (id_, now, each)
                    self.held += 1
