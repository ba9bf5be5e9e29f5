"""Parts of strings: a row that asks for a pattern is filed under three letters that must occur."""

from collections.abc import Iterator

from sterna.model.filters import patterns, values
from sterna.model.filters.normal_form import Term
from sterna.model.filters.tree import Attribute, Like, Matches
from sterna.model.filters.values import STRINGS_RANK, ValueSet

LENGTH = 3


def grams_of(text: str) -> Iterator[str]:
    """All parts of three letters."""
    return (text[i : i + LENGTH] for i in range(len(text) - LENGTH + 1))


def required_grams(term: Term) -> Iterator[tuple[str, str]]:
    """Attributes, each with a part that its value has in every event that the term accepts."""
    for name, accepted in term.constraints.items():
        yield from ((name, gram) for gram in grams_of(_common_prefix(accepted)))
    for residual in term.residuals:
        match residual:
            case Like(Attribute(name)):
                texts = _literals(patterns.like_segments(residual.pattern, residual.escape))
            case Matches(Attribute(name)):
                texts = _topic_literals(residual.topic)
            case _:
                continue
        yield from ((name, gram) for text in texts for gram in grams_of(text))


def _common_prefix(accepted: ValueSet) -> str:
    """What all accepted values begin with, if those are strings given by their beginnings."""
    cuts = accepted.cuts
    if not cuts or cuts[0][0] != STRINGS_RANK:
        return ""
    common: str = cuts[0][1]
    listed = True
    for start, end in accepted.stretches():
        text: str = start[1]
        if ValueSet((start, end)) == values.starting_with(text):
            listed = False
        elif end != values.cut_after(text):
            return ""
        while not text.startswith(common):
            common = common[:-1]
    return "" if listed else common


def _literals(segments: list[patterns.Segment]) -> Iterator[str]:
    """The runs of plain letters in the segments of a LIKE pattern, where None is any letter."""
    for segment in segments:
        run = ""
        for letter in (*segment, None):
            if letter is None:
                yield run
                run = ""
            else:
                run += letter


def _topic_literals(topic: str) -> Iterator[str]:
    """The runs of plain levels in a topic filter; what `#` stands for may be missing."""
    levels = topic.removesuffix("/#").split("/")
    run = ""
    for place, level in enumerate(levels):
        slash = "/" if place else ""
        if level in {"+", "#"}:
            yield run + slash if level == "+" else run
            run = ""
        else:
            run += slash + level
    yield run
