"""The documentation site: it builds, every page is in the navigation, it needs no other host."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.notebooks import NOTEBOOKS, load

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"

LOADED = {("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src"), ("link", "href")}
"""What a browser fetches by itself."""

MARKS = re.compile(r"^\s*(?:[-*+] |\d+\. |\||```|#+ )", re.MULTILINE)
"""How a list, a table, a block of code or a heading begins in Markdown."""


def build(root: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", site],
        cwd=root,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    ended = build(ROOT, folder)
    assert ended.returncode == 0, ended.stderr
    return folder


class Page(HTMLParser):
    """What a page of the site loads and links to, its anchors, and its running text."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.links: list[str] = []
        self.navigation: list[str] = []
        self.anchors: set[str] = set()
        self.paragraphs: list[str] = []
        self._open: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        self.loads += [given[name] for kind, name in LOADED if kind == tag and name in given]
        if tag == "a" and "href" in given:
            is_navigation = "md-nav__link" in given.get("class", "")
            (self.navigation if is_navigation else self.links).append(given["href"])
        if tag in {"p", "pre", "script"}:
            self._open.append(tag)
            self.paragraphs.append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            self._open.remove(tag)

    def handle_data(self, data: str) -> None:
        if self._open == ["p"]:
            self.paragraphs[-1] += data


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {path: Page(path) for path in sorted(site.rglob("*.html")) if path.name != "404.html"}


def sources() -> Iterator[Path]:
    """Every page, as the path of its HTML below the site."""
    for path in [*DOCS.rglob("*.md"), *NOTEBOOKS]:
        page = path.relative_to(DOCS).with_suffix(".html")
        yield page.with_name("index.html") if page.stem == "README" else page


def test_every_page_is_reached_through_the_navigation(site: Path, pages: dict[Path, Page]) -> None:
    home = pages[site / "index.html"]
    reached = {(site / link.partition("#")[0]).resolve() for link in home.navigation}

    assert {site / page for page in sources()} <= reached
    assert site / "CHANGELOG.html" in reached


def test_every_link_and_anchor_leads_somewhere(pages: dict[Path, Page]) -> None:
    lost = []
    for path, page in pages.items():
        for link in [*page.links, *page.navigation]:
            target, _, anchor = link.partition("#")
            if re.match(r"[a-z]+:", target):
                continue
            led = (path.parent / target).resolve() if target else path
            if not led.is_file() or (anchor and anchor not in pages[led].anchors):
                lost.append(f"{path.name}: {link}")

    assert not lost


def test_no_page_loads_anything_from_another_host(pages: dict[Path, Page]) -> None:
    assert all(page.loads for page in pages.values())
    assert not [
        (path.name, address)
        for path, page in pages.items()
        for address in page.loads
        if re.match(r"//|(?!data:)[a-z]+:", address)
    ]


def test_the_search_knows_every_page(site: Path) -> None:
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    found = {entry["location"].partition("#")[0] for entry in index["docs"]}

    assert {page.as_posix() for page in sources()} - {"index.html"} <= found


def test_markdown_means_the_same_as_on_a_git_host(pages: dict[Path, Page]) -> None:
    """A list, or the rest of a table that was split, is no running text."""
    split = [
        f"{path.name}: {text}"
        for path, page in pages.items()
        for text in page.paragraphs
        if MARKS.search(text)
    ]

    assert not split


def test_notebooks_are_pages_with_their_output(site: Path) -> None:
    for path in NOTEBOOKS:
        folder = site / path.parent.relative_to(DOCS)
        page = (folder / path.with_suffix(".html").name).read_text(encoding="utf-8")
        assert (folder / path.name).read_bytes() == path.read_bytes()  # To download.
        assert page.count('<div class="language-python highlight">') == len(load(path).code)
        assert ("data:image/png;base64," in page) == ("image/png" in path.read_text("utf-8"))


WRONG = """# Home

[a page](nowhere.md), [an anchor](glossary.md#nowhere), [a file](../examples/nowhere.py)
"""


def test_a_strict_build_notices_what_is_wrong(tmp_path: Path) -> None:
    """A small site with our settings and hooks: links that lead nowhere, and a page in no list."""
    (tmp_path / "docs").mkdir()
    shutil.copytree(ROOT / "website", tmp_path / "website")
    settings = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:")[0]
    for name, text in {
        "mkdocs.yml": f"{settings}\nnav: [README.md, CHANGELOG.md, glossary.md]\n",
        "CHANGELOG.md": "# News\n",
        "docs/README.md": WRONG,
        "docs/glossary.md": "# Words\n",
        "docs/forgotten.md": "# Forgotten\n",
    }.items():
        (tmp_path / name).write_text(text, encoding="utf-8")

    ended = build(tmp_path, tmp_path / "site")

    assert ended.returncode == 1
    warnings = [line for line in ended.stderr.splitlines() if line.startswith("WARNING")]
    told = "\n".join(warnings)
    assert "'nowhere.md'" in told
    assert "'glossary.md#nowhere'" in told
    assert "'../examples/nowhere.py'" in told
    assert len(warnings) == 4, ended.stderr  # The fourth is about a page that is not in the nav.
    assert "forgotten.md" in ended.stderr
