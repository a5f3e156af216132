"""What every suite shares.

`tests` is on the import path, so that every suite can say `from support...`. Pytest would do the same by
itself because this file is here; scripts and editors that follow the imports get it said.

The command line keeps contexts and tokens in the user's home; whoever runs the tests has their own, and those
must neither be used nor changed.
"""

import sys
from pathlib import Path

import pytest

TESTS = str(Path(__file__).parent)
if TESTS not in sys.path:
    sys.path.insert(0, TESTS)


@pytest.fixture(autouse=True)
def _home_of_the_command_line(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("IGGY_HOME", str(tmp_path_factory.getbasetemp() / "iggy-home"))
