"""What Python workers of Spark are told: which objects the collector may forget, and to end quietly."""

import gc
import sys
from itertools import count

import pytest

from borzoi.spark import workers


@pytest.fixture
def new_worker(monkeypatch):
    """As if no task had run in this process."""
    monkeypatch.setattr(workers, "_tasks", count(1))
    yield
    gc.unfreeze()


def test_what_the_first_task_imported_is_not_collected_after_every_other_one(new_worker):
    gc.unfreeze()
    workers.settle()
    before = gc.get_freeze_count()
    assert before > 1000
    imported = [[] for _ in range(1000)]
    workers.settle()
    second = gc.get_freeze_count()
    assert second >= before + len(imported)
    of_a_task = [[] for _ in range(1000)]
    workers.settle()
    assert gc.get_freeze_count() <= second
    assert len(of_a_task) == 1000


@pytest.fixture
def told(monkeypatch):
    seen = []
    monkeypatch.setattr(sys, "excepthook", lambda kind, error, trace: seen.append(error))
    return seen


def test_only_a_closed_pipe_is_kept_quiet(told):
    workers.hang_up_quietly()
    fault = ValueError("no")
    for error in (BrokenPipeError(32, "Broken pipe"), fault):
        sys.excepthook(type(error), error, None)
    assert told == [fault]
