"""Experiments: what the papers measured, on the simulator, with a figure and a table each."""
