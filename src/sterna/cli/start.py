"""The start of the `sterna` command."""

import gc


def run() -> None:
    """Entry point of the installed command.

    Imports make many objects, and all of them stay: looking for those that are no longer needed
    would take a fourth of the time that a short command has.
    """
    gc.disable()
    from sterna.cli import main  # noqa: PLC0415 - only now.

    gc.freeze()
    gc.enable()
    main.run()
