"""What Spark's Python workers are told before they work.

Spark runs a full garbage collection after every task. In a process that has imported NumPy, Arrow and PySpark
this takes tens of milliseconds, as long as reading ten thousand messages, and finds nothing: what is there
when a worker begins is there to stay, and so is what its first task imported. So the collector is told, both
times, not to look at it again.
"""

import gc
from itertools import count

from borzoi.client.incoming import keep_freed_memory

_tasks = count(1)
_LAST_TASK = 2


def settle() -> None:
    """Called when a task begins."""
    task = next(_tasks)
    if task == 1:
        keep_freed_memory()
        gc.collect()
    if task <= _LAST_TASK:
        gc.freeze()
