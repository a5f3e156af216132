"""Where the suites find the repository and keep what they may build or fetch once.

Everything under `CACHE` can be deleted at any time; it is rebuilt when next needed. `exclusive` is the lock
that lets several test runs share it.
"""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
CACHE = REPOSITORY / ".cache"


@contextmanager
def exclusive(lock: Path) -> Iterator[None]:
    """Holds an inter-process lock; the kernel releases it when the holder dies."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
