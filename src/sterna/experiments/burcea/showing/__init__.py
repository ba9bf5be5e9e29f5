"""The paper's figures: their settings, and what is claimed, shown and drawn of them."""
