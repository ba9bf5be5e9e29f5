"""What is known of long texts, so that no pattern begins anew where another one was before.

Testing a long text may take long. It can be interrupted, and goes on from there when it is tried
again: verdicts, and what led to them, are kept as long as the object that was given to the tests.
"""

from collections.abc import Callable, Generator, Mapping
from typing import Protocol

from sterna.model.event import Scalar

Segment = tuple[str | None, ...]
"""Adjacent characters; None is any one character."""

Event = Mapping[str, Scalar | None]

LONG = 1024
"""So many characters make a text long."""

VERDICTS_MAX = 100_000
"""How many verdicts are kept. No filter has as many patterns, so each comes to its end."""

PLACES_BYTES_MAX = 16 << 20
"""About how many bytes the places of characters in a text may take."""


class Interrupted(Exception):  # noqa: N818 - it is no error: what was found so far is kept.
    """The time is up; try the same again."""


class TextTest(Protocol):
    """A test that asks `LongTexts` for its verdict, and is called if that is new."""

    def __call__(self, text: str, known: "LongTexts", /, *, is_new: bool) -> bool: ...


class LongTexts:
    """Verdicts on long texts, and the places of characters in the last of them.

    `is_time_up` is asked now and then. A test that is interrupted has always come further than the
    one before it.
    """

    __slots__ = ("_has_learnt", "_is_time_up", "_places", "_verdicts")

    def __init__(self, is_time_up: Callable[[], bool] | None = None) -> None:
        self._is_time_up = is_time_up
        self._has_learnt = False
        self._places: Places | None = None
        self._verdicts: dict[tuple[str, str], bool] = {}

    def verdict(self, text: str, key: str, test: "TextTest") -> bool:
        """What a test says about a text; tests with the same key say the same."""
        found = self._verdicts.get((key, text))
        if found is None:
            self.pause()
            found = test(text, self, is_new=True)
            if len(self._verdicts) >= VERDICTS_MAX:
                self._verdicts.clear()
            self._verdicts[key, text] = found
            self._has_learnt = True
        return found

    def places(self, text: str) -> "Places":
        """The places of characters in a text; those in the text before it are forgotten."""
        if self._places is None or self._places.text != text:
            self._places = Places(text)
        return self._places

    def learnt(self) -> None:
        """Something was found out that is kept: this is a good place to be interrupted."""
        self._has_learnt = True
        self.pause()

    def pause(self) -> None:
        """Interrupt the tests if their time is up."""
        if self._has_learnt and self.is_time_up:
            self._has_learnt = False
            raise Interrupted

    @property
    def is_time_up(self) -> bool:
        """Whether tests are interrupted now."""
        return self._is_time_up is not None and self._is_time_up()

    def finish(self) -> None:
        """Interrupt nothing any more."""
        self._is_time_up = None


def checked(
    test: Callable[[Event, LongTexts], bool], event: Event, texts: LongTexts
) -> Generator[None, None, bool]:
    """What a test says about an event; it yields whenever it is interrupted, and goes on."""
    while True:
        try:
            return test(event, texts)
        except Interrupted:
            yield


class Places:
    """Where the characters of a text are, each as a number that has a bit for every place.

    Where several characters follow each other in given distances is then found for 64 places or so
    at a time: shift the numbers by their distances, and take the bits that all of them have.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._of: dict[str | tuple[int, int], int] = {}
        """The places of a character, or of a byte of its code."""
        self._of_max = PLACES_BYTES_MAX * 8 // (len(text) + 1) + 2
        self._found: dict[tuple[Segment, int], int] = {}
        """What was found, by what was looked for from which place on."""
        self._begun: dict[tuple[Segment, int], tuple[int, int]] = {}
        """Searches that were interrupted: how many characters were looked at, and what is left."""
        # The first place is the lowest bit, and the last digit.
        backwards = text[::-1]
        try:
            self._digits = [backwards.encode("latin-1")]
        except UnicodeEncodeError:
            wide = backwards.encode("utf-32-le", "surrogatepass")
            self._digits = [wide[byte::4] for byte in range(3)]

    def find(self, segment: Segment, start: int, known: LongTexts) -> int:
        """The first place from `start` on that has these characters in a row, or -1.

        None is any character. `known` is what may interrupt it.
        """
        key = segment, start
        found = self._found.get(key)
        if found is None:
            found = self._found[key] = self._search(segment, start, key, known)
            self._begun.pop(key, None)
        return found

    def _search(
        self, segment: Segment, start: int, key: tuple[Segment, int], known: LongTexts
    ) -> int:
        first, left = self._begun.get(key, (0, -1))
        for distance in range(first, len(segment)):
            character = segment[distance]
            if character is None:
                continue
            left &= self._places_of(character, known) >> (start + distance)
            if not left:
                return -1
            self._begun[key] = distance + 1, left
            known.learnt()
        return start + _lowest_bit(left)

    def _places_of(self, character: str, known: LongTexts) -> int:
        found = self._of.get(character)
        if found is None:
            found = 0
            if character in self.text:
                found = self._places_of_byte(0, ord(character) & 255)
                for byte in range(1, len(self._digits)):  # Most texts have few of these.
                    value = ord(character) >> 8 * byte & 255
                    places = self._of.get((byte, value))
                    if places is None:
                        places = self._places_of_byte(byte, value)
                        self._keep((byte, value), places)
                    found &= places
            self._keep(character, found)
            known.learnt()
        return found

    def _places_of_byte(self, byte: int, value: int) -> int:
        is_it = bytearray(b"0" * 256)
        is_it[value] = ord("1")
        return int(self._digits[byte].translate(is_it), 2)

    def _keep(self, what: str | tuple[int, int], places: int) -> None:
        if len(self._of) >= self._of_max:
            del self._of[next(iter(self._of))]
        self._of[what] = places


def _lowest_bit(number: int) -> int:
    """The place of the lowest bit of a positive number."""
    width = 64
    low = number & (1 << width) - 1
    while not low:  # A negation of all of it would cost more than the search.
        width *= 4
        low = number & (1 << width) - 1
    return (low & -low).bit_length() - 1
