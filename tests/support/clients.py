"""Official clients, each in an environment of its own, built once and kept in the cache.

A client is a released package from the package index, unmodified. It must not share the environment of the
code under test: the test then proves what a user who installs the client sees, and several releases of the
same package can be tested in one run.

An environment counts as built when its stamp holds the list of requirements it was built from; the stamp is
written last, so an interrupted build is thrown away and redone. A lock keeps two runs from building at once.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.paths import CACHE, exclusive

TEST_TOOLS = ("pytest>=9.1.1,<10", "pytest-asyncio>=0.24,<2", "pytest-timeout>=2.3,<3")
BUILD_DEADLINE_S = 600


@dataclass(frozen=True, slots=True)
class OfficialClient:
    """A package with its version and the interpreter that can import it."""

    package: str
    version: str
    python: Path

    def __str__(self) -> str:
        return f"{self.package} {self.version}"

    def environment(self, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        """The caller's environment without what would lead to the caller's own packages."""
        hidden = ("IGGY_", "BORZOI_", "PYTEST", "PYTHONPATH", "VIRTUAL_ENV")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(hidden)}
        return {**kept, "PYTHONUNBUFFERED": "1", **(extra or {})}


def official_client(
    package: str = "apache-iggy", version: str = "0.9.0", tools: Sequence[str] = TEST_TOOLS
) -> OfficialClient:
    """Returns the client, building its environment first if that has not been done."""
    home = CACHE / "clients" / f"{package}-{version}"
    requirements = (f"{package}=={version}", *tools)
    stamp = home / "built-from"
    wanted = "\n".join(requirements) + "\n"
    with exclusive(home.with_name(f"{home.name}.lock")):
        if not stamp.exists() or stamp.read_text() != wanted:
            shutil.rmtree(home, ignore_errors=True)
            _run([sys.executable, "-m", "venv", str(home)])
            pip = [str(home / "bin" / "python"), "-m", "pip", "--disable-pip-version-check"]
            _run([*pip, "install", "--quiet", "--only-binary", package, *requirements])
            stamp.write_text(wanted)
    return OfficialClient(package, version, home / "bin" / "python")


def _run(command: Sequence[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_DEADLINE_S, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
