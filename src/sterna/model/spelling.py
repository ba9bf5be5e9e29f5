"""Which of the names that there are may be meant by one that is not there."""

import difflib
from collections.abc import Sequence

COMPARED_MAX = 5_000
"""Among more names than this, only those that differ in case are looked for."""
LISTED_MAX = 8
"""Up to so many names are all listed if none is like the one given."""


def hint(name: object, known: Sequence[str]) -> str:
    """What to write instead of a name, as the end of an error; empty if nobody can guess."""
    near = near_names(name, known) if isinstance(name, str) else []
    if near:
        return f"; is it {' or '.join(map(repr, near))}?"
    if known and len(known) <= LISTED_MAX:
        return f"; there {'is' if len(known) == 1 else 'are'} {', '.join(map(repr, known))}"
    return ""


def near_names(name: str, known: Sequence[str]) -> list[str]:
    """The names that are most like this one, at most three."""
    folded = name.strip().casefold()
    same = [each for each in known if each.strip().casefold() == folded]
    if same or len(known) > COMPARED_MAX or len(name) > 100:
        return same[:3]
    by_folded = {each.casefold(): each for each in known}
    return [by_folded[each] for each in difflib.get_close_matches(folded, by_folded, 3)]
