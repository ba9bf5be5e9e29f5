"""What the paper says of the variants, whether it came out, and which variant is cheapest where."""

from collections.abc import Callable, Mapping
from typing import Any

from sterna.core.history.options import Search
from sterna.experiments.cilia_variants.settings import (
    BUFFER,
    DISTANCE,
    PAYLOAD_BYTES,
    PUBLISHERS,
    Measures,
    Points,
    Setting,
    by_variant,
)
from sterna.experiments.experiment import Claim, Point

ORDERED = tuple(search for search in Search if search is not Search.NONE)
"""The variants that ask others; each is expected to find at least what the one before does."""

Variants = Mapping[Search, Point[Setting, Measures]]


def claims(points: Points) -> list[Claim]:
    """What the paper's text says, beside what came out; it has no figures."""
    places = by_variant(points)
    usual = next(place for place in places if in_short(place) == "")
    smallest = min(
        (place for place in places if not place.prepares), key=lambda place: place.buffer
    )
    return [
        _none_has_a_gap(points),
        _each_finds_more(places),
        _complete_lacks_nothing(places),
        _nearest_has_too_little(places[smallest]),
        _others_ask_everybody(places[usual]),
        _list_pays(places),
        _who_has_enough_asks_nobody(places),
    ]


def summary(points: Points) -> dict[str, Any]:
    """Which variant is cheapest at each place, and whether the list of known events pays there."""
    return {
        "cheapest": [
            {
                "place": in_short(place) or "the usual settings",
                "prepares": place.prepares,
                "variant": str(best := cheapest(variants)),
                "bytes": variants[best].median.bytes,
                "complete_bytes": variants[Search.COMPLETE].median.bytes,
            }
            for place, variants in by_variant(points).items()
        ],
        "list": [
            {
                "place": in_short(place) or "the usual settings",
                "prepares": place.prepares,
                "list_bytes": variants[Search.SEQUENCES].median.list_bytes,
                "answer_bytes_saved": answer_bytes_saved(variants),
                "net_bytes_saved": bytes_saved(variants),
            }
            for place, variants in by_variant(points).items()
        ],
    }


def in_short(place: Setting) -> str:
    """How a place differs from the usual settings, but for whether brokers prepare."""
    differing = {
        "buffer": (place.buffer, BUFFER),
        "distance": (place.distance, DISTANCE),
        "publishers": (place.publishers, PUBLISHERS),
        "payload": (place.payload_bytes, PAYLOAD_BYTES),
    }
    return ", ".join(f"{name} {now}" for name, (now, usual) in differing.items() if now != usual)


def cheapest(variants: Variants) -> Search:
    """The variant with the fewest bytes of those that find as much as the complete algorithm."""
    enough = variants[Search.COMPLETE].median.found
    good = [search for search in ORDERED if variants[search].median.found >= enough]
    return min(good, key=lambda search: variants[search].median.bytes)


def bytes_saved(variants: Variants) -> float:
    """What it saves to name what is known already: answers get shorter, questions longer."""
    return variants[Search.JUNCTIONS].median.bytes - variants[Search.SEQUENCES].median.bytes


def answer_bytes_saved(variants: Variants) -> float:
    """By how much answers get shorter."""
    without, with_ = variants[Search.JUNCTIONS].median, variants[Search.SEQUENCES].median
    return without.answer_bytes - with_.answer_bytes


def _sum(points: Points, measure: Callable[[Measures], float]) -> float:
    return sum(measure(each) for point in points for each in point.measured)


def _none_has_a_gap(points: Points) -> Claim:
    searched = [point for point in points if point.setting.search is not Search.NONE]
    alone = [point for point in points if point.setting.search is Search.NONE]
    gapped, searches = _sum(searched, lambda m: m.gapped), _sum(searched, lambda m: m.searches)
    believed, asked = _sum(alone, lambda m: m.gapped), _sum(alone, lambda m: m.searches)
    return Claim(
        "Past events come before new ones, and none is missing between them (5.3)",
        f"a gap after {gapped:,.0f} of {searches:,.0f} searches, in all variants; without a search "
        f"after {believed:,.0f} of {asked:,.0f}, where a broker believes its own buffer",
        holds=not gapped,
    )


def _each_finds_more(places: Mapping[Setting, Variants]) -> Claim:
    """In each run, not only in the median."""
    totals = [
        _sum([variants[search] for variants in places.values()], lambda m: m.found)
        for search in ORDERED
    ]
    seen = " ≤ ".join(
        f"{search} {total:,.0f}" for search, total in zip(ORDERED, totals, strict=True)
    )
    rising, runs = _rising(places, lambda m: m.found)
    by_answers, _ = _rising(places, lambda m: m.past)
    return Claim(
        "Each refinement finds at least as much as the one before (5.4)",
        f"{seen} events in all runs; in this order in {rising:,} of {runs:,} runs (in "
        f"{by_answers:,} without the events that came as usual while the search went on)",
        holds=rising == runs,
        why="A search also tells brokers from when on they have everything, so searches that go "
        "less far leave less behind for those that follow.",
    )


def _rising(
    places: Mapping[Setting, Variants], measure: Callable[[Measures], float]
) -> tuple[int, int]:
    """In how many runs no variant has less than the one before, and how many runs there are."""
    rising = runs = 0
    for variants in places.values():
        measured = [[measure(each) for each in variants[search].measured] for search in ORDERED]
        for values in zip(*measured, strict=True):
            runs += 1
            rising += list(values) == sorted(values)
    return rising, runs


def _complete_lacks_nothing(places: Mapping[Setting, Variants]) -> Claim:
    complete = [variants[Search.COMPLETE] for variants in places.values()]
    lack = _sum(complete, lambda m: m.lacking)
    held, found = _sum(complete, lambda m: m.held), _sum(complete, lambda m: m.found)
    return Claim(
        "The complete algorithm finds the latest events that the publishers' brokers have (5.4)",
        f"{lack:,.0f} of {held:,.0f} are missing; {found:,.0f} were found",
        holds=not lack,
    )


def _nearest_has_too_little(variants: Variants) -> Claim:
    near, all_ = variants[Search.NEAREST], variants[Search.COMPLETE]
    place = in_short(near.setting) or "the usual settings"
    return Claim(
        "The desired number may not be available at the nearest buffer (5.3)",
        f"{place}: {_share(near.median):.0%} of what is wanted, and {_share(all_.median):.0%} of "
        "it with the complete algorithm",
        holds=near.median.found < all_.median.found,
    )


def _others_ask_everybody(variants: Variants) -> Claim:
    near, far = variants[Search.NEAREST].median, variants[Search.LARGEST].median
    return Claim(
        "Looking for a larger buffer involves communication costs (5.4, Merged Histories)",
        f"{far.messages / far.searches:.0f} messages for each search, not "
        f"{near.messages / near.searches:.0f}, and {far.bytes / near.bytes:.1f} times the bytes",
        holds=far.messages > near.messages,
    )


def _list_pays(places: Mapping[Setting, Variants]) -> Claim:
    unprepared = {place: each for place, each in places.items() if not place.prepares}
    costly = [
        in_short(place) or "the usual settings"
        for place, each in unprepared.items()
        if bytes_saved(each) <= 0
    ]
    usual = next(each for place, each in unprepared.items() if not in_short(place))
    cost = usual[Search.SEQUENCES].median.list_bytes
    seen = (
        f"the list costs {cost / 1000:.1f} kB and saves {answer_bytes_saved(usual) / 1000:.0f} kB "
        "of answers with the usual settings"
    )
    if costly:
        seen += f"; it costs more than it saves with {'; '.join(costly)}"
    return Claim(
        "Sequence numbers eliminate duplicate sending (5.4, Sequences)",
        seen,
        holds=not costly,
        why="Every question names each publisher of which something is known, and goes to each "
        "publisher's broker: with many publishers of few and small events that is more than what "
        "it saves.",
    )


def _who_has_enough_asks_nobody(places: Mapping[Setting, Variants]) -> Claim:
    unprepared = {place: each for place, each in places.items() if not place.prepares}
    less = [
        place
        for place, each in unprepared.items()
        if each[Search.COMPLETE].median.messages < each[Search.SEQUENCES].median.messages
    ]
    never = [
        place
        for place, each in places.items()
        if each[Search.COMPLETE].median.bytes > each[Search.SEQUENCES].median.bytes
    ]
    better = {
        in_short(place) or "the usual settings": best
        for place, each in unprepared.items()
        if (best := cheapest(each)) is not Search.COMPLETE
    }
    elsewhere = ", ".join(f"{best} with {where}" for where, best in better.items())
    return Claim(
        "Others are asked only if more past events are needed (5.4, Putting it all together)",
        f"fewer messages than with sequences at {len(less)} of {len(unprepared)} places, and "
        f"nowhere more bytes"
        * (not never)
        + f"more bytes at {len(never)} places" * bool(never)
        + f"; another variant finds as much with fewer bytes: {elsewhere}" * bool(better),
        holds=bool(less) and not never,
    )


def _share(measures: Measures) -> float:
    return measures.found / measures.wanted
