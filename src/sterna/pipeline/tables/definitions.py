"""How views follow from the tables that `INPUTS` names, in the same order."""

from collections.abc import Callable

from pyspark.sql import DataFrame

from sterna.pipeline.mining import graph
from sterna.pipeline.tables import bootstrap, movement, traffic

DEFINITIONS: dict[str, Callable[..., DataFrame]] = {
    "visits": movement.visits,
    "dwell": graph.dwell,
    "movement_graph": graph.transitions,
    "next_broker": movement.next_broker,
    "traffic": traffic.traffic,
    "bootstrap_latency": bootstrap.bootstrap_latency,
}
