"""Brokers and clients as pure machines: inputs and the time go in, actions and facts come out."""
