"""The analytical model (Eqs. 1-5) and the simulation, measured in the same runs."""

import statistics
from collections.abc import Sequence
from typing import ClassVar

import msgspec

from sterna.core.broker import Broker
from sterna.core.inputs import Attach, Input
from sterna.core.names import NodeId, Peer, Time
from sterna.core.routing.options import Strategy
from sterna.experiments.burcea.city import broker, subscription
from sterna.experiments.burcea.journeys import People
from sterna.experiments.burcea.measuring import transferred_events
from sterna.experiments.burcea.model import Model, subscription_cost, t2_us, t4_us, total_cost
from sterna.experiments.burcea.script import START_US
from sterna.experiments.burcea.settings import Setting, work
from sterna.experiments.burcea.simulation import Watch, run
from sterna.experiments.experiment import Experiment, Point
from sterna.experiments.papers import BURCEA


class ModelMeasures(msgspec.Struct, frozen=True, kw_only=True):
    """Messages between border brokers for each move, by the model and counted in a run."""

    moves: float
    subscriptions_model: float
    """Eq. 2, with `coverage` from the routing tables of the run."""
    subscriptions_run: float
    events_model: float
    """Eqs. 3 to 5."""
    events_run: float
    total_model: float
    """Eq. 1."""
    total_run: float
    others_run: float
    """Messages of the protocol that the model does not know."""
    subscriptions_error: float
    events_error: float
    """How far the model is off, relatively."""
    coverage_old: float
    """How often the old broker must unsubscribe, on average."""
    coverage_new: float
    """How often the new broker must subscribe."""
    t2_ms: float
    """How long prefetching takes, by the model; this and the following on average."""
    t3_min: float
    """How long subscribers are without connection."""
    t4_ms: float
    """How long the old broker goes on keeping events after the arrival, by the model."""
    t4_run_ms: float
    """From the arrival to the last replayed event, in the run."""


Points = Sequence[Point[Setting, ModelMeasures]]


class Coverage(Watch):
    """Looks at the routing tables when subscribers arrive: is what they want covered there?"""

    def __init__(self, everybody: People, setting: Setting) -> None:
        self.found: list[tuple[int, int]] = []
        """For each move, whether the old broker must unsubscribe, and the new one subscribe."""
        self._at = {each.client: broker(each.leaf) for each in everybody.subscribers}
        self._wanted = {each.client: each.subscription for each in everybody.subscribers}
        self._end_us = START_US + setting.length_us

    def given(self, node: NodeId, given: Input, now: Time) -> None:
        if type(given) is Attach:
            old, self._at[node] = self._at[node], given.broker
            if old != given.broker and now < self._end_us:
                self.found.append((self._must_tell(old, node), self._must_tell(given.broker, node)))

    def _must_tell(self, at: NodeId, client: NodeId) -> int:
        """The paper's `coverage`: 0 if another subscription at a broker covers the client's."""
        node = self.hosts[at].node
        assert isinstance(node, Broker)  # noqa: S101 - for the type checker.
        if node.settings.routing.strategy is Strategy.SIMPLE:
            return 1
        mine, table = subscription(self._wanted[client]), node.router.subscriptions
        return int(
            not any(
                route.filter.covers(mine)
                for link in table.links()
                if link != client and node.peers[link] is Peer.CLIENT
                for route in table.routes(link).values()
            )
        )


class ModelExperiment(Experiment[Setting, ModelMeasures]):
    """An experiment that compares the model with the simulation."""

    paper: ClassVar[str] = BURCEA

    def measure(self, setting: Setting, seed: int) -> ModelMeasures:
        coverage: list[Coverage] = []

        def watch(everybody: People) -> Coverage:
            coverage.append(Coverage(everybody, setting))
            return coverage[0]

        done = run(setting, seed, watch)
        model = Model(setting, done.everybody)
        moves = len(model.changes)
        inner = done.tally.inner
        announced = sum(count.messages for count in inner.of_subscriptions())
        everything = sum(count.messages for count in inner.transfer())
        events = transferred_events(inner)
        found = coverage[0].found
        moved = setting.strategy != "home"
        by_model = subscription_cost(found) / len(found) if moved else 0.0
        kept = [stay.complete_us for stay in done.deliveries.stays if stay.complete_us is not None]
        return ModelMeasures(
            moves=moves,
            subscriptions_model=by_model,
            subscriptions_run=announced / moves,
            events_model=model.events() / moves,
            events_run=events / moves,
            total_model=total_cost(by_model, model.events() / moves),
            total_run=(announced + events) / moves,
            others_run=(everything - announced - events) / moves,
            subscriptions_error=_error(by_model, announced / moves),
            events_error=_error(model.events(), events),
            coverage_old=statistics.fmean(old for old, _ in found),
            coverage_new=statistics.fmean(new for _, new in found),
            t2_ms=statistics.fmean(t2_us(each, setting) for each in model.changes) / 1_000,
            t3_min=statistics.fmean(each.t3_us for each in model.changes) / 60e6,
            t4_ms=statistics.fmean(t4_us(each, setting) for each in model.changes) / 1_000,
            t4_run_ms=statistics.fmean(kept) / 1_000 if kept else 0.0,
        )

    def work(self, setting: Setting) -> float:
        """About how many frames a run has: what takes longest is begun first."""
        return work(setting)


def _error(model: float, counted: float) -> float:
    return model / counted - 1 if counted else float(model != 0)
