"""`python -m sterna.cli` is `sterna`, also where the command is not on the path."""

from sterna.cli.start import run

run()
