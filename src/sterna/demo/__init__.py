"""The product at work: a city with brokers that die, clients that roam, and an audit."""

from sterna.extras import require

require("broker", "the demo")
