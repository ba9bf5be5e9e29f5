"""Routing among brokers that move themselves: Amozarrain and Larrea 2019."""
