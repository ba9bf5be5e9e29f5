"""Replication: several brokers watch the same subscriptions for one application.

Huang and Garcia-Molina 2001, section 5. Each broker has a client of its own, a *session*, which
knows nothing of the others; `merging.py` makes one sequence of events out of theirs.
"""
