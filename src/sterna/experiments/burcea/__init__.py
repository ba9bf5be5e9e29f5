"""Burcea et al., "Disconnected Operation in Publish/Subscribe Middleware" (2004), simulated anew.

A city of 64 brokers in a row, which are the leaves of a hierarchy; 100 publishers that stay, and
subscribers that move. What does their mobility cost, and which handover strategy costs least?
"""
