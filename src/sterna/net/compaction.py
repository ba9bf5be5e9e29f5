"""The second process of a broker: it makes a snapshot from the log while the broker goes on.

It reads the log up to a position, replays it, and writes the state that this leads to. It ends with
the process that started it, which then takes the snapshot in or discards it.
"""

import contextlib
import gc
import os
import sys
from functools import partial
from pathlib import Path
from threading import Thread

from sterna.errors import SternaError
from sterna.net.depot import beside
from sterna.net.engine import Listener, loading, recover_old, replay
from sterna.net.nodes import OLDER_KINDS, STATE_KIND, broker_of
from sterna.net.state import encode_state
from sterna.net.storage.disk import REAL
from sterna.net.storage.errors import LogError
from sterna.net.storage.format import encode_snapshot
from sterna.net.storage.recovery import read
from sterna.net.storage.snapshots import write_snapshot


def compact(directory: Path, position: int, path: Path) -> int:
    """Write the state that the first so many records of a log lead to; return its size in bytes."""
    make = partial(broker_of, depot=beside(directory))
    recovery = read(REAL, directory, (STATE_KIND, *OLDER_KINDS), loading(make), position)
    recovered = recover_old(directory, recovery, make)
    if recovered is None:
        raise LogError(f"{directory} is empty")
    time = replay(recovered, Listener())[1]
    state = encode_state(recovered.node, recovered.began, time)
    write_snapshot(REAL, path, encode_snapshot(state, position, STATE_KIND), state)
    return len(state)


def main(arguments: list[str]) -> int:
    """Make a snapshot for the process at the other end of standard input."""
    directory, position, path, niceness = arguments
    Thread(target=_end_with_the_input, daemon=True).start()
    os.setpriority(os.PRIO_PROCESS, 0, int(niceness))
    _go_first_for_want_of_memory()
    gc.disable()  # A replay makes no cycles, and much that stays.
    try:
        size = compact(Path(directory), int(position), Path(path))
    except (SternaError, OSError, MemoryError) as error:
        sys.stdout.write(f"{str(error) or type(error).__name__}\n")
        return 1
    sys.stdout.write(f"{size}\n")
    sys.stdout.flush()
    os._exit(0)  # Freeing all that memory piece by piece would take long.


def _end_with_the_input() -> None:
    while os.read(sys.stdin.fileno(), 1):
        pass
    os._exit(1)


def _go_first_for_want_of_memory() -> None:
    """If the system runs out of memory, have it end this process rather than the broker."""
    with contextlib.suppress(OSError):  # Linux only.
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
