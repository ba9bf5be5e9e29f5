"""Hooks of mkdocs: notebooks become pages, and so does what pages link to outside of docs/."""

import json
import logging
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files, InclusionLevel
from mkdocs.structure.pages import Page

log = logging.getLogger("mkdocs.hooks.sterna")  # A warning here fails a strict build.

ROOT = Path(__file__).parent.parent
NEWS = "CHANGELOG.md"
"""A page of the site that is not below docs/."""
OUTSIDE = "repository"
"""Where the site has the files that pages link to outside of docs/."""
NOTEBOOK = ".ipynb"

_LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
_BLOCK = re.compile(r"^ *(```|~~~).*?^ *\1 *$", re.MULTILINE | re.DOTALL)


def on_config(config: MkDocsConfig) -> None:
    """Complete the navigation: `folder/*` becomes the folder's other pages, notebooks pages."""
    pages = Path(config.docs_dir)
    named = set(_named(config.nav))

    def expanded(entry: Any) -> Iterator[Any]:
        if isinstance(entry, dict):
            yield {
                title: [each for child in below for each in expanded(child)]
                if isinstance(below, list)
                else _page_of(below)
                for title, below in entry.items()
            }
        elif entry.endswith("/*"):
            found = sorted((pages / entry).parent.glob("*.md"))
            paths = [path.relative_to(pages).as_posix() for path in found]
            yield from (path for path in paths if path not in named)
        else:
            yield _page_of(entry)

    config.nav = [each for entry in config.nav or [] for each in expanded(entry)]


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages that are not Markdown below docs/."""
    news = (ROOT / NEWS).read_text(encoding="utf-8")
    files.append(File.generated(config, NEWS, content=_with_links(news, _from_root)))
    for file in [file for file in files if file.src_uri.endswith(NOTEBOOK)]:
        content = page_of_notebook(json.loads(file.content_string), Path(file.src_uri).name)
        files.append(File.generated(config, _page_of(file.src_uri), content=content))
    for file in [file for file in files.documentation_pages() if file.src_uri != NEWS]:
        for path in _left(file):
            shown = File.generated(
                config,
                _page_outside(path),
                content=page_of_file(path),
                inclusion=InclusionLevel.NOT_IN_NAV,
            )
            if shown.src_uri not in files.src_uris:
                files.append(shown)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links lead to the pages that `on_files` has added."""
    here = page.file.src_uri
    if here == NEWS or here.startswith(f"{OUTSIDE}/"):
        return markdown

    def led(text: str, target: str) -> tuple[str, str] | None:
        path = _outside(here, target)
        if path is None:
            is_own = target == Path(here).with_suffix(NOTEBOOK).name  # Its file, to download.
            return text, target if is_own else _page_of(target)
        if (ROOT / path).is_file():
            return text, posixpath.relpath(_page_outside(path), posixpath.dirname(here))
        if not (ROOT / path).exists():
            log.warning(f"Doc file '{here}' contains a link '{target}' to nothing")
        return None  # A directory.

    return _with_links(markdown, led)


def page_of_notebook(notebook: dict[str, Any], name: str) -> str:
    """A notebook as Markdown: its text, its code and the output that is stored in it."""
    title, *parts = [part for cell in notebook["cells"] for part in _parts(cell)]
    return "\n\n".join(
        [title, f"*This page is a notebook: [{name}]({name}), with the output of one run.*", *parts]
    )


def page_of_file(path: str) -> str:
    """A file of the repository as a page."""
    language = {".py": "python", ".json": "json", ".toml": "toml"}.get(Path(path).suffix, "text")
    text = (ROOT / path).read_text(encoding="utf-8").rstrip("\n")
    return f"# {path}\n\n````{language}\n{text}\n````\n"


def _parts(cell: dict[str, Any]) -> Iterator[str]:
    text = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        yield text
        return
    yield f"```python\n{text}\n```"
    for output in cell["outputs"]:
        data = output.get("data", {})
        if "image/png" in data:
            yield f"![{data['text/plain']}](data:image/png;base64,{data['image/png'].strip()})"
        else:
            shown = "".join(output.get("text") or data["text/plain"])
            yield f"```text\n{shown.rstrip()}\n```"


def _named(nav: Any) -> Iterator[str]:
    """The paths in a navigation."""
    if isinstance(nav, str):
        yield nav
    else:
        for entry in nav.values() if isinstance(nav, dict) else nav:
            yield from _named(entry)


def _page_of(target: str) -> str:
    """The page of a notebook; of anything else, itself."""
    return target.removesuffix(NOTEBOOK) + ".md" if target.endswith(NOTEBOOK) else target


def _page_outside(path: str) -> str:
    return f"{OUTSIDE}/{path}.md"


def _outside(page: str, target: str) -> str | None:
    """The path in the repository to which a link leads, if that is not below docs/."""
    if ":" in target or target.startswith("/"):
        return None
    path = posixpath.normpath(posixpath.join("docs", posixpath.dirname(page), target))
    return None if path.startswith("docs/") else path


def _left(file: File) -> Iterator[str]:
    """The files outside of docs/ to which a page links."""
    for _, _, target, _ in _LINK.findall(_BLOCK.sub("", file.content_string)):
        path = _outside(file.src_uri, target)
        if path is not None and (ROOT / path).is_file():
            yield path


def _from_root(text: str, target: str) -> tuple[str, str] | None:
    """A link from a page at the root of the repository."""
    if ":" in target:
        return text, target
    return (text, _page_of(target.removeprefix("docs/"))) if target.startswith("docs/") else None


def _with_links(markdown: str, led: Any) -> str:
    """Markdown whose links lead elsewhere; those that lead nowhere become plain text."""

    def replaced(match: re.Match[str]) -> str:
        mark, text, target, anchor = match.groups(default="")
        link = led(text, target)
        return f"{mark}[{link[0]}]({link[1]}{anchor})" if link else text

    kept, end = [], 0
    for block in _BLOCK.finditer(markdown):  # Code stays as it is.
        kept += [_LINK.sub(replaced, markdown[end : block.start()]), block[0]]
        end = block.end()
    return "".join([*kept, _LINK.sub(replaced, markdown[end:])])
