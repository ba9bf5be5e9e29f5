"""The product at work: a city with brokers that die, clients that roam, and an audit."""
