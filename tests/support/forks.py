"""Forked processes, for tests of what a client does in one."""

import os
import signal
import sys
import warnings

_ALARM_S = 20


def in_child(function):
    """The exit code of a forked process that runs a function."""
    with warnings.catch_warnings():
        # The server under test runs in a thread; a child that only uses its client does not mind.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        signal.alarm(_ALARM_S)
        try:
            function()
            os._exit(0)
        except BaseException as error:
            print(repr(error), file=sys.stderr, flush=True)
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
