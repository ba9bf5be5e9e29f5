"""Writes the tables of the journal's reference page: `python -m sterna.journal.reference PAGE`."""

import inspect
import re
import sys
from pathlib import Path

import pyarrow as pa

from sterna.core.protocol import fact_types
from sterna.journal.columns import MEANINGS, form_of
from sterna.journal.rows import SCHEMA


def written(page: str) -> str:
    """A page with its tables as they are now; each follows a comment with its name."""
    for name, table in {"columns": _columns(), "kinds": _kinds()}.items():
        page, count = re.subn(
            rf"(?<=<!-- {name}, by make docs -->\n\n).*?\n\n",
            lambda _, table=table: f"{table}\n\n",  # type: ignore[misc]
            page,
            flags=re.DOTALL,
        )
        if count != 1:
            raise ValueError(f"the page has {count} places for the table of {name}, not one")
    return page


def _columns() -> str:
    rows = (
        f"| `{field.name}` | {_type(field.type)} | {MEANINGS[field.name]} |" for field in SCHEMA
    )
    return "\n".join(["| column | type | meaning |", "|---|---|---|", *rows])


def _kinds() -> str:
    rows = (
        f"| `{kind.__name__}` | {_first_paragraph(kind)} | "
        f"{', '.join(f'`{column}`' for column in form_of(kind).filled)} |"
        for kind in fact_types()
        if kind.__module__.startswith("sterna.")
    )
    return "\n".join(["| kind | what happened | columns that it fills |", "|---|---|---|", *rows])


def _type(type_: pa.DataType) -> str:
    return f"list of {type_.value_type}" if pa.types.is_list(type_) else str(type_)


def _first_paragraph(kind: type) -> str:
    return " ".join((inspect.getdoc(kind) or "").partition("\n\n")[0].split())


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
