"""What Spark's Python workers are told before they work, and when there is no more work.

Spark runs a full garbage collection after every task, and after every query or micro-batch in the processes
that make sources and writers and commit. In a process that has imported NumPy, Arrow and PySpark this takes
tens of milliseconds, as long as reading ten thousand messages, and finds nothing: what is there when a worker
begins is there to stay, and so is what its first task imported. So the collector is told, both times, not to
look at it again.
"""

import gc
import sys
from itertools import count
from types import TracebackType

from borzoi.client.incoming import keep_freed_memory

_tasks = count(1)
_LAST_TASK = 2


def settle() -> None:
    """Called when a task begins, and by what runs on the driver's side when a query or micro-batch does."""
    task = next(_tasks)
    if task == 1:
        keep_freed_memory()
        gc.collect()
    if task <= _LAST_TASK:
        gc.freeze()


def hang_up_quietly() -> None:
    """Called when Spark has closed its side: when a query ends, it does so without a word.

    Spark's own code then tries to tell it that, fails, and would print what looks like a fault.
    """
    tell = sys.excepthook

    def keep_quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not isinstance(error, BrokenPipeError):
            tell(kind, error, trace)

    sys.excepthook = keep_quiet
