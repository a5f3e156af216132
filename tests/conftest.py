"""Puts `tests` on the import path, so that every suite can say `from support...`.

Pytest would do the same by itself because this file is here; scripts and editors that follow the imports get
it said.
"""

import sys
from pathlib import Path

TESTS = str(Path(__file__).parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)
