"""Protocols of other packages, each in a file of its own, as users would write them."""
