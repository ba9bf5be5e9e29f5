"""Match parking offers against many subscriptions, one by one and in batches.

Run it:  python examples/matching.py
"""

import random

from sterna import Filter
from sterna.matching import MatchIndex

rng = random.Random(7)  # noqa: S311 - an example, not a secret.
index: MatchIndex[str] = MatchIndex()

# Five hundred drivers, each with a street, a budget and perhaps a car that does not fit everywhere.
for driver in range(500):
    street = f"street-{rng.randrange(40)}"
    text = f"service = 'parking' AND street = '{street}' AND price <= {rng.randrange(1, 8)}"
    if driver % 3 == 0:
        text += " AND (size = 'van' OR size IS NULL)"
    index.add(f"driver-{driver}", Filter(text))

offer = {"service": "parking", "street": "street-7", "price": 2.5, "size": "van"}
wanted = index.match(offer)
print(f"{len(wanted)} of {len(index)} drivers want {offer}")

# Columns, as they come from a log or from Spark; None where an offer says nothing.
positions, drivers = index.match_batch(
    {
        "service": ["parking"] * 4,
        "street": ["street-7", "street-7", "street-8", "nowhere"],
        "price": [2.5, 6.0, 1.0, 1.0],
        "size": ["van", None, "compact", "van"],
    }
)
for offer_number in range(4):
    print(f"offer {offer_number}: {(positions == offer_number).sum()} drivers")

# Drivers leave; the index forgets them.
for driver_name in wanted:
    index.remove(driver_name)
print("Now", len(index.match(offer)), "want that offer.")
print(f"{len(wanted)} have parked, {len(index)} are still looking")
