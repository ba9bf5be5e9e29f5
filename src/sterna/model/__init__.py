"""What brokers, simulator and Spark share: events, filters and locations."""
