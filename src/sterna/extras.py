"""What the base installation leaves out: which extra brings it, and the error that says so."""

from importlib.util import find_spec

from sterna.errors import MissingExtraError

LIBRARIES = {
    "archive": ("deltalake", "pyarrow"),
    "broker": ("numba", "numpy", "prometheus_client", "pyarrow"),
    "pipeline": ("numpy", "pandas", "pyarrow", "pyspark"),
    "plots": ("matplotlib",),
}
"""For each extra, the modules that nothing works without. It may install more than those."""


def require(extra: str, user: str, *libraries: str) -> None:
    """Raise MissingExtraError unless the libraries of an extra are installed.

    `user` is what needs them, as the error's first words: "a journal". If it needs some of them
    only, `libraries` names those.
    """
    missing = [name for name in libraries or LIBRARIES[extra] if find_spec(name) is None]
    if missing:
        *others, last = missing
        names = f"{', '.join(others)} and {last}" if others else last
        raise MissingExtraError(f"{user} needs {names}: pip install 'sterna[{extra}]'", extra=extra)
