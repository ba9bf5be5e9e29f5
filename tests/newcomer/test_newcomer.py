"""A newcomer types every command of README, quick start and how-tos, in order, and compares."""

import json
import random
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.newcomer.pages import Command, CtrlC, PageError, Screen, read, steps_of

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "docs/quick-start.md", *sorted(ROOT.glob("docs/how-to/*.md"))]
PLAY_S = 1200

Play = Callable[..., dict[str, Any]]


def has_own_network() -> bool:
    """Whether this user may make a network of its own, in which all ports are free."""
    unshare = shutil.which("unshare")
    if unshare is None:
        return False
    tried = subprocess.run([unshare, "-rn", "true"], capture_output=True, check=False)
    return tried.returncode == 0


def free_ports(count: int) -> int:
    """The first of some ports in a row that nobody uses, and that no system gives to clients."""
    for _ in range(1000):
        first = random.randrange(10_000, 30_000)  # noqa: S311 - any of them.
        try:
            for port in range(first, first + count):
                with socket.socket() as tried:
                    tried.bind(("127.0.0.1", port))
        except OSError:
            continue
        return first
    raise AssertionError("no free ports")


@pytest.fixture
def play(tmp_path: Path) -> Play:
    def play(*pages: Path, own_network: bool) -> dict[str, Any]:
        around = ["unshare", "-rn"] if own_network else []
        ports = [] if own_network else ["--ports", str(free_ports(9))]
        player = [*around, sys.executable, "-m", "tests.newcomer.play"]
        ended = subprocess.run(
            [*player, tmp_path, *pages, *ports],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
            timeout=PLAY_S,
        )
        assert ended.returncode == 0, ended.stderr
        report: dict[str, Any] = json.loads(ended.stdout)
        return report

    return play


def test_pages_do_what_they_say(play: Play, record_property: Callable[[str, object], None]) -> None:
    report = play(*PAGES, own_network=has_own_network())

    record_property("not run", report["skipped"])
    assert not report["deviations"], "\n\n".join(map(in_words, report["deviations"]))
    commands = [step for page in PAGES for step in steps_of(page) if isinstance(step, Command)]
    skipped = [command for command in commands if command.skip is not None]
    assert len(report["ran"]) == len(commands) - len(skipped)
    assert set(report["skipped"].values()) == {command.skip for command in skipped}


def in_words(deviation: dict[str, Any]) -> str:
    return "{page}:{line}: {command}\n{problem}\nIt printed:\n{printed}".format(**deviation)


def test_a_network_without_its_own_ports(tmp_path: Path, play: Play) -> None:
    """Where nobody may make a network, commands get other ports, and pages look the same."""
    page = tmp_path / "page.md"
    page.write_text("""
```sh
sterna up --brokers 2
```

```text
B1 sterna://127.0.0.1:7461
B2 sterna://127.0.0.1:7462
data in /tmp/sterna-5nlwbcq_; Ctrl-C stops it
```

```sh
sterna sub sterna://127.0.0.1:7462 "price < 3"
sterna pub sterna://127.0.0.1:7461 price=2
```

<!-- newcomer: output of terminal 2 -->
```text
listening at B2 (sterna://127.0.0.1:7462)
2026-11-17 16:10:50.949  client-b89ae78363f2  price=2
```

<!-- newcomer: terminal 2 -->
```sh
sterna status 127.0.0.1:7462 | head -1
```

```text
B2 sterna://127.0.0.1:7462 ready
```
""")

    report = play(page, own_network=False)

    assert report["deviations"] == []
    assert len(report["ran"]) == 4


WRONG = """
```console
$ echo right; echo "at 12:00:01 in 0.004 s, /var/sterna-abc; 1,234 events"
right
at 11:59:59 in 1,200 ms, /tmp/sterna-5nlwbcq_; … events
$ echo "at 12:00:01, 4 events"
at 12:00:01, 5 events
$ echo more; echo
more than that
$ false
```

<!-- newcomer: status 3 `(exit 3)` -->
```sh
(exit 3)
export PLACE=here; mkdir below
echo $PLACE | tee below/place; cat <<'END'
some
lines
END
```

```text
here
…
lines
```

<!-- newcomer: first `sterna sub "price <"` -->
<!-- newcomer: skip `make` because -->
```sh
make it
cat below/place
bash -c 'echo once; echo once; exit 5'
```
"""


def test_what_differs_is_found(tmp_path: Path, play: Play) -> None:
    page = tmp_path / "page.md"
    page.write_text(WRONG)

    report = play(page, own_network=False)

    found = [(each["command"].split(";")[0], each["problem"]) for each in report["deviations"]]
    assert found == [
        ('echo "at 12:00:01, 4 events"', "the page shows\nat 12:00:01, 5 events\n"),
        ("echo more", "the page shows\nmore than that\n"),
        ("false", "exit status 1 instead of 0"),
        ('sterna sub "price <"', "ended without listening at \\S+"),
        ("bash -c 'echo once", "exit status 5 instead of 0"),
    ]
    assert report["skipped"] == {"page.md: make it": "because"}


def test_a_page_is_read_in_order() -> None:
    steps = read("""
<!-- newcomer: terminal 2 -->
<!-- newcomer: skip `make` no time -->
```sh
make it
sterna sub \\
    x
```

```text
shown
```
<!-- newcomer: ctrl-c 2 -->
""")

    assert steps == [
        Command(5, "make it", terminal=2, skip="no time"),
        Command(6, "sterna sub \\\n    x", terminal=2),
        Screen(10, None, "shown"),
        CtrlC(13, 2),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("```\nsterna up\n```", "line 2: a command in a block that is not ```sh"),
        ("```text\n$ sterna up\n```", "line 2: a command in a block"),
        ("Do:\n\n    sterna up\n", "line 3: put commands between fences"),
        ("<!-- newcomer: skip -->\n```sh\nsterna up\n```", "no such comment"),
        ("<!-- newcomer: skip `sterna` -->\n```sh\nsterna up\n```", "say why"),
        ("<!-- newcomer: skip `make` slow -->\n```sh\nsterna up\n```", "no command begins with"),
        ("<!-- newcomer: terminal 2 -->\nWords.", "line 1: no block follows"),
        ("```console\nsterna up\n```", "line 2: a console block begins"),
    ],
)
def test_a_page_that_cannot_be_played_is_refused(text: str, problem: str) -> None:
    with pytest.raises(PageError) as refused:
        read(text)

    assert problem in str(refused.value)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_command_is_run_or_says_why_not(page: Path) -> None:
    reasons = [step.skip for step in steps_of(page) if isinstance(step, Command)]

    assert all(reason is None or len(reason.split()) >= 3 for reason in reasons)
