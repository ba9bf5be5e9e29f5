"""How many examples a property is tried on."""

import os

from hypothesis import settings

CAMPAIGN = int(os.environ.get("STERNA_CAMPAIGN", "1"))
"""`make test-long` sets this to try so many times as many examples."""


def examples(count: int) -> settings:
    """The setting for a property that `make test` tries on so many examples."""
    return settings(max_examples=count * CAMPAIGN)
