"""Errors in filters, with their position and what to do about them."""

from sterna.errors import SternaError

_EXCERPT = 72


class FilterError(SternaError, ValueError):
    """A filter that cannot be understood: what is wrong, where, and what was expected.

    `line` and `column` count from 1. `str()` of the error shows the line with a caret under the
    place.
    """

    def __init__(self, problem: str, text: str, position: int = 0, width: int = 1) -> None:
        self.problem = problem
        self.text = text
        self.position = min(position, len(text))
        self.width = width
        self.line = text.count("\n", 0, self.position) + 1
        self.column = self.position - text.rfind("\n", 0, self.position)
        super().__init__(f"line {self.line}, column {self.column}: {problem}\n{self._caret()}")

    def _caret(self) -> str:
        start = self.position - self.column + 1
        end = self.text.find("\n", start)
        line = self.text[start : end if end >= 0 else len(self.text)]
        column = self.column - 1
        if len(line) > _EXCERPT:  # Show only the neighbourhood of the error.
            cut = max(0, column - _EXCERPT // 2)
            more = "…" if len(line) > cut + _EXCERPT else ""
            line = ("…" if cut else "") + line[cut : cut + _EXCERPT] + more
            column -= cut - (1 if cut else 0)
        shown = "".join(c if c.isprintable() else "·" for c in line)
        carets = "^" * max(1, min(self.width, len(shown) - column))
        return f"  {shown}\n  {' ' * column}{carets}"


class UnboundError(SternaError, ValueError):
    """A filter that still has context variables or `myloc` was asked for a verdict."""
