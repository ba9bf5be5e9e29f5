"""The simulator: the core under virtual time, on a network with faults, with an oracle."""
