"""The connector `format("sterna")`: journals and live brokers as tables, tables as publications."""

from sterna.extras import require

require("pipeline", "the Spark connector")

from sterna.pipeline.source.connector import SternaSource, register
from sterna.pipeline.source.errors import reason

__all__ = ["SternaSource", "reason", "register"]
