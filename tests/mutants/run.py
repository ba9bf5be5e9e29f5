"""Whether the tests find bugs: `make mutants` plants each bug of the list in a copy and runs them.

A bug counts as caught if a test fails. One that is not must say why in the list (`survives`); at
least 95 % must be caught.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
LIST = Path(__file__).with_name("mutants.toml")
CAUGHT_MIN = 0.95
TIMEOUT_S = 900


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


def try_out(mutant: Mutant) -> Verdict:
    """Plant a bug in a copy and run the tests there."""
    with tempfile.TemporaryDirectory(prefix="sterna-mutant-") as folder:
        copy = Path(folder)
        # What Python and Numba have compiled is used again where the source is the same. But Numba
        # does not notice a change in a kernel that another one calls.
        stale = ("*.nbi", "*.nbc") if mutant.file.startswith("matching/") else ()
        for part in ("src", "tests", "docs", "pyproject.toml"):
            place = ROOT / part
            if place.is_dir():
                shutil.copytree(place, copy / part, ignore=shutil.ignore_patterns(*stale))
            else:
                shutil.copy(place, copy / part)
        victim = copy / "src" / "sterna" / mutant.file
        victim.write_text(mutated(mutant, victim.read_text(encoding="utf-8")), encoding="utf-8")
        environment = {
            **os.environ,
            "PYTHONPATH": str(copy / "src"),
            "STERNA_MUTANT": "1",  # Hypothesis does not look for the smallest example.
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*command, *mutant.tests],
                cwd=copy,
                env=environment,
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict(mutant, None)
    if ended.returncode == 0:
        return Verdict(mutant, None)
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    if ended.returncode != 1 or not failed:
        raise RuntimeError(f"{mutant.name}: the tests did not run\n{ended.stdout}{ended.stderr}")
    return Verdict(mutant, failed[0].split(" - ")[0].removeprefix("FAILED "))


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant bugs and see whether tests find them.")
    parser.add_argument("names", nargs="*", help="only these; without, all of them")
    names = parser.parse_args().names
    chosen = [mutant for mutant in mutants() if not names or mutant.name in names]
    if not chosen:
        sys.exit(f"no such mutant; see {LIST.name}")
    caught, unexplained = 0, []
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for verdict in pool.map(try_out, chosen):
            mutant = verdict.mutant
            if verdict.caught_by is not None:
                caught += 1
                print(f"caught    {mutant.name:32} {verdict.caught_by}", flush=True)
            else:
                print(f"SURVIVED  {mutant.name:32} {mutant.survives or 'unexplained'}", flush=True)
                if mutant.survives is None:
                    unexplained.append(mutant.name)
    print(f"{caught} of {len(chosen)} caught ({caught / len(chosen):.0%})")
    if caught < CAUGHT_MIN * len(chosen) or unexplained:
        sys.exit(f"at least {CAUGHT_MIN:.0%} must be caught, and survivors explained")


if __name__ == "__main__":
    main()
