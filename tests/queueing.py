"""What queue policies keep, said as plainly as possible: from all events that have ever come."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from sterna.core.names import Time
from sterna.model.event import Scalar


class Came(NamedTuple):
    """An event that has come to a queue."""

    seq: int
    attributes: Mapping[str, Scalar]
    since: Time


POLICIES = ("", "ttl(10s)", "last_per(k)", "max(v)", "min(v + 1)", "ring(3)")


def kept(policy: str, came: Sequence[Came], now: Time) -> set[int]:
    """The numbers of the events that a queue with a policy has at a time."""
    name, _, inside = policy.rstrip(")").partition("(")
    every = {each.seq for each in came}
    if not policy:
        return every
    if name == "ttl":
        lifetime_us = int(inside.rstrip("s")) * 1_000_000
        return {each.seq for each in came if each.since + lifetime_us > now}
    if name == "ring":
        return {each.seq for each in came[-int(inside) :]}
    if name == "last_per":
        named = [each for each in came if inside in each.attributes]
        keys = [each.attributes[inside] for each in named]
        last = {(k is True, k): each for k, each in zip(keys, named, strict=True)}
        return every - {each.seq for each in named} | {each.seq for each in last.values()}
    numbers = [(each.attributes.get("v"), each.seq) for each in came]
    valued = [(v, seq) for v, seq in numbers if isinstance(v, int | float) and v is not True]
    best = min(((-v if name == "max" else v + 1), seq) for v, seq in valued) if valued else None
    return every - {seq for _, seq in valued} | ({best[1]} if best else set())
