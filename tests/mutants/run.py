"""Whether the tests find bugs: `make mutants` plants each bug of the list in a copy and runs them.

A bug counts as caught if a test fails. One that is not must say why in the list (`survives`); at
least 95 % must be caught. The test that caught it is written to catchers.json and tried first the
next time; the others run only if that one does not find the bug any more.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).with_name("mutants.toml")
CATCHERS = Path(__file__).with_name("catchers.json")
"""The test that caught each bug the last time, by the name of the bug."""
CAUGHT_MIN = 0.95
TIMEOUT_S = 900

NOT_FOUND = 4
"""Pytest's exit status if there is no test of that name, or no longer."""


@dataclass(frozen=True)
class Mutant:
    """A small edit that breaks something."""

    name: str
    file: str
    before: str
    after: str
    tests: tuple[str, ...]
    survives: str | None = None
    """Why no test finds it, if none does."""


@dataclass(frozen=True)
class Verdict:
    """What became of a planted bug."""

    mutant: Mutant
    caught_by: str | None
    seconds: float


def mutants() -> Iterator[Mutant]:
    """The list, in its order."""
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))
    for entry in listed["mutant"]:
        yield Mutant(
            name=entry["name"],
            file=entry["file"],
            before=entry["before"],
            after=entry["after"],
            tests=tuple(entry.get("tests", listed["tests"])),
            survives=entry.get("survives"),
        )


def mutated(mutant: Mutant, source: str) -> str:
    """The source with the bug in it."""
    if source.count(mutant.before) != 1:
        raise ValueError(f"{mutant.name}: its text occurs {source.count(mutant.before)} times")
    return source.replace(mutant.before, mutant.after)


def try_out(mutant: Mutant, catcher: str | None = None) -> Verdict:
    """Plant a bug in a copy and run the tests there, beginning with the one that caught it last."""
    began = perf_counter()
    with tempfile.TemporaryDirectory(prefix=".mutant-", dir=ROOT) as folder:
        copy = Path(folder)
        plant(mutant, copy)
        caught_by = None
        if catcher is not None and (copy / catcher.split("::")[0]).exists():
            caught_by = failing_test(mutant, copy, [catcher])
        if caught_by is None:
            caught_by = failing_test(mutant, copy, mutant.tests)
    return Verdict(mutant, caught_by, perf_counter() - began)


def plant(mutant: Mutant, copy: Path) -> None:
    """Make a copy of the tree with a bug in it.

    All files but one are links: what Python and Numba have compiled is used again where the source
    is the same. But Numba does not notice a change in a kernel that another one calls.
    """
    stale = ("*.nbi", "*.nbc") if mutant.file.startswith("matching/") else ()
    for part in ("src", "tests", "docs"):
        shutil.copytree(
            ROOT / part,
            copy / part,
            ignore=shutil.ignore_patterns(*stale),
            copy_function=os.link,
        )
    shutil.copy(ROOT / "pyproject.toml", copy)
    victim = copy / "src" / "sterna" / mutant.file
    source = victim.read_text(encoding="utf-8")
    victim.unlink()
    victim.write_text(mutated(mutant, source), encoding="utf-8")


def failing_test(mutant: Mutant, copy: Path, tests: Sequence[str]) -> str | None:
    """The first of the tests that fails in a copy, if one does."""
    environment = {
        **os.environ,
        "PYTHONPATH": str(copy / "src"),
        "STERNA_MUTANT": "1",  # Hypothesis does not look for the smallest example.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
    try:
        ended = subprocess.run(
            [*command, *tests],
            cwd=copy,
            env=environment,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if ended.returncode in {0, NOT_FOUND}:
        return None
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ended.returncode != 1 or not failed:
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{ended.stdout}{ended.stderr}")
    return failed[0].split(" - ")[0].split(" ", 1)[1]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant bugs and see whether tests find them.")
    parser.add_argument("names", nargs="*", help="only these; without, all of them")
    names = parser.parse_args().names
    chosen = [mutant for mutant in mutants() if not names or mutant.name in names]
    if not chosen:
        sys.exit(f"no such mutant; see {LIST.name}")
    catchers = json.loads(CATCHERS.read_text("utf-8")) if CATCHERS.exists() else {}
    caught, unexplained = 0, []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        tried = [pool.submit(try_out, mutant, catchers.get(mutant.name)) for mutant in chosen]
        for done, verdict in enumerate((each.result() for each in as_completed(tried)), 1):
            mutant, took = verdict.mutant, f"{done:4}/{len(chosen)} {verdict.seconds:5.1f} s"
            if verdict.caught_by is not None:
                caught += 1
                catchers[mutant.name] = verdict.caught_by
                print(f"{took} caught    {mutant.name:32} {verdict.caught_by}", flush=True)
            else:
                catchers.pop(mutant.name, None)
                why = mutant.survives or "unexplained"
                print(f"{took} SURVIVED  {mutant.name:32} {why}", flush=True)
                if mutant.survives is None:
                    unexplained.append(mutant.name)
            if done % 20 == 0 or done == len(chosen):
                keep(catchers)
    print(f"{caught} of {len(chosen)} caught ({caught / len(chosen):.0%})")
    if caught < CAUGHT_MIN * len(chosen) or unexplained:
        sys.exit(
            f"at least {CAUGHT_MIN:.0%} must be caught, and survivors explained: {unexplained}"
        )


def keep(catchers: dict[str, str]) -> None:
    """Write down which test caught which bug, in the order of the list."""
    ordered = {each.name: catchers[each.name] for each in mutants() if each.name in catchers}
    CATCHERS.write_text(json.dumps(ordered, indent=0, ensure_ascii=False) + "\n", "utf-8")


if __name__ == "__main__":
    main()
