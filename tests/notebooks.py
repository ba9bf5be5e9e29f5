"""Notebooks without Jupyter: what may be in them, and how they are run and kept.

`python -m tests.notebooks`, which is `make notebooks`, runs the notebooks of the docs and stores
what they print and draw in them.
"""

import ast
import base64
import io
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

FOLDER = Path(__file__).parent.parent / "docs" / "tutorial"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))

VARIES = "varies"
"""The tag of cells whose output is another one each time."""


class Part(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Any part of a notebook."""


class Stream(Part, tag="stream", tag_field="output_type"):
    """What a cell has printed."""

    name: Literal["stdout"]
    text: list[str]


class Displayed(Part, tag="display_data", tag_field="output_type"):
    """What a cell has drawn."""

    data: dict[str, Any]
    metadata: dict[str, Any]


class Result(Part, tag="execute_result", tag_field="output_type"):
    """The value of the last expression of a cell."""

    data: dict[str, Any]
    execution_count: int
    metadata: dict[str, Any]


Output = Stream | Displayed | Result


class Metadata(Part, omit_defaults=True):
    """What else is known of a cell."""

    tags: list[str] = []


Id = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


class Text(Part, tag="markdown", tag_field="cell_type"):
    """A cell for people."""

    id: Id
    metadata: Metadata
    source: list[str]


class Code(Part, tag="code", tag_field="cell_type"):
    """A cell with a part of the program, and the output of one run."""

    execution_count: int | None
    id: Id
    metadata: Metadata
    outputs: list[Output]
    source: list[str]


class Kernel(Part):
    """The program that Jupyter would start."""

    display_name: str
    language: Literal["python"]
    name: Literal["python3"]


class Language(Part):
    """The language of the code."""

    name: Literal["python"]


class About(Part):
    """What is known of a notebook as a whole."""

    kernelspec: Kernel
    language_info: Language


class Notebook(Part):
    """Format 4.5, as far as it is used here."""

    cells: list[Text | Code]
    metadata: About
    nbformat: Literal[4]
    nbformat_minor: Literal[5]

    @property
    def code(self) -> list[Code]:
        """The cells that are run."""
        return [cell for cell in self.cells if isinstance(cell, Code)]


def load(path: Path) -> Notebook:
    """Read a notebook; an error says where its format is wrong."""
    return msgspec.json.decode(path.read_bytes(), type=Notebook)


def encoded(notebook: Notebook) -> bytes:
    """A notebook as Jupyter would write it."""
    return msgspec.json.format(msgspec.json.encode(notebook, order="sorted"), indent=1) + b"\n"


def run(notebook: Notebook) -> list[list[Output]]:
    """What each cell of code puts out, if all are run in this process, one after the other."""
    names: dict[str, Any] = {"__name__": "__main__"}
    return [_outputs(cell, names, number) for number, cell in enumerate(notebook.code, 1)]


def lines(text: str) -> list[str]:
    """Text as notebooks keep it."""
    return text.splitlines(keepends=True)


def _outputs(cell: Code, names: dict[str, Any], number: int) -> list[Output]:
    tree = ast.parse("".join(cell.source), filename := f"cell {cell.id}")
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    printed = io.StringIO()
    value = None
    with redirect_stdout(printed):
        exec(compile(tree, filename, "exec"), names)  # noqa: S102 - our own notebook.
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), filename, "eval"), names)  # noqa: S307
    found: list[Output] = []
    if printed.getvalue():
        found.append(Stream(name="stdout", text=lines(printed.getvalue())))
    found += _figures()
    if value is not None:
        data = {"text/plain": lines(repr(value))}
        found.append(Result(data=data, execution_count=number, metadata={}))
    return found


def _figures() -> list[Output]:
    """The open figures, which Jupyter shows at the end of a cell and closes."""
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is None:
        return []
    found: list[Output] = []
    for number in pyplot.get_fignums():
        figure, image = pyplot.figure(number), io.BytesIO()
        figure.savefig(
            image, format="png", dpi=90, bbox_inches="tight", metadata={"Software": None}
        )
        pyplot.close(figure)
        data = {
            "image/png": base64.b64encode(image.getvalue()).decode() + "\n",
            "text/plain": [repr(figure)],
        }
        found.append(Displayed(data=data, metadata={}))
    return found


def main() -> None:
    """Run the notebooks and store their output."""
    import matplotlib as mpl

    mpl.use("agg")
    for path in NOTEBOOKS:
        print(path.name)
        notebook = load(path)
        for number, (cell, outputs) in enumerate(zip(notebook.code, run(notebook), strict=True), 1):
            cell.execution_count, cell.outputs = number, outputs
        path.write_bytes(encoded(notebook))


if __name__ == "__main__":
    main()
