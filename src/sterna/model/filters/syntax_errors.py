"""What the parser found and did not expect, in words that say what to write instead."""

from lark.exceptions import UnexpectedCharacters, UnexpectedToken

from sterna.model.filters.errors import FilterError
from sterna.model.filters.tree import KEYWORDS, Attribute, Node, write_scalar

_WORDS = {
    "NAME": "an attribute",
    "QUOTED": "an attribute",
    "VARIABLE": "a value",
    "STRING": "a string",
    "INTEGER": "a whole number",
    "FLOAT": "a number",
    "COMPARISON": "a comparison (= <> < <= > >=)",
    "LPAR": "'('",
    "RPAR": "')'",
    "COMMA": "','",
    "PLUS": "arithmetic",
    "MINUS": "arithmetic",
    "STAR": "arithmetic",
    "SLASH": "arithmetic",
    "$END": "the end of the filter",
}
_CONDITION_START = frozenset({"NOT", "NAME", "STRING", "LPAR"})
_VALUE_START = frozenset({"NAME", "STRING", "LPAR"})
_HINTS = {
    "==": "equality is written =",
    "!=": "inequality is written <>",
    "&&": "write AND",
    "||": "write OR",
    "!": "write NOT",
    "[": "a list is written with parentheses",
    "%": "there is no remainder operator",
    ";": "a filter is one condition, without a semicolon",
}


def unexpected_token(text: str, error: UnexpectedToken) -> FilterError:
    """Say what is wrong where a filter has something else than its grammar expects."""
    token = error.token
    start = token.start_pos if token.type != "$END" and token.start_pos is not None else len(text)
    expected = set(error.accepts or error.expected)
    found = "the end of the filter" if token.type == "$END" else shown(str(token))
    problem = f"expected {_expectation(expected)}, found {found}"
    before = text[:start].rstrip()
    if token.type == "NULL":
        problem += "; test for a missing attribute with IS NULL or IS NOT NULL"
    elif token.type == "MYLOC":
        problem += "; write location IN myloc"
    elif token.type == "COMPARISON" and before.endswith(("=", "<", ">")):
        problem += f"; {_HINTS['==']} and inequality <>"
    elif token.type == "QUOTED" and "STRING" in expected:
        problem += f"; a string is written in single quotes: {write_scalar(unquoted(token))}"
    elif token.type in KEYWORDS and "NAME" in expected:
        problem += f'; an attribute of that name is written "{token}"'
    elif token.type == "RPAR" and before.endswith("("):
        problem += "; there is nothing between the parentheses"
    return FilterError(problem, text, start, max(1, len(token) if token.type != "$END" else 1))


def _expectation(expected: set[str]) -> str:
    if expected >= _CONDITION_START:
        return "a condition"
    if expected >= _VALUE_START:
        return "a value"
    if "AND" in expected and "OR" in expected:
        return "AND, OR or " + ("')'" if "RPAR" in expected else "the end of the filter")
    if "COMPARISON" in expected:
        return "a comparison, BETWEEN, IN, LIKE, MATCHES or IS NULL"
    words = list(dict.fromkeys(_WORDS.get(name, name) for name in sorted(expected)))
    return " or ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def unexpected_character(text: str, error: UnexpectedCharacters) -> FilterError:
    """Say what is wrong with a character that begins nothing in a filter."""
    position: int = error.pos_in_stream  # type: ignore[assignment] # Lark declares it None.
    character = text[position]
    hint = _HINTS.get(text[position : position + 2]) or _HINTS.get(character)
    if character == "'":
        problem = "this string has no closing quote (a quote inside a string is written twice: '')"
    elif character == '"':
        problem = "this quoted attribute name has no closing quote"
    elif character in "‘’“”`´":
        problem = f"{character} is no quote here: strings take ' and attribute names take \""
    elif character == "$":
        problem = "a context variable is written $name"
    else:
        problem = f"unexpected {shown(character)}" + (f"; {hint}" if hint else "")
    return FilterError(problem, text, position)


def single_quotes_hint(node: Node) -> str:
    """How to write a name in double quotes, if it is one, as the string that was meant."""
    if not isinstance(node, Attribute) or not node.is_quoted:
        return ""
    return f"; a string is written in single quotes: {write_scalar(node.name)}"


def unquoted(token: str) -> str:
    """A quoted string or name without its quotes."""
    quote = token[0]
    return token[1:-1].replace(quote + quote, quote)


def shown(text: str) -> str:
    """A piece of a filter, quoted and not too long."""
    return (
        write_scalar(text if len(text) <= 30 else text[:30] + "…")
        if text.isprintable()
        else ascii(text)
    )
