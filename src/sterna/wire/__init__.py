"""How messages and snapshots become bytes, and how frames travel."""
