"""A Spark session that works from PyPI packages alone, with settings that fit streams.

`session()` finds a Java, tells Spark to run this interpreter in its workers, and starts a session with the
settings of `default_settings`; what the caller gives wins over all of them. On a cluster's master it sends
the package to the workers. If the process has a session already, that one is returned, because Spark has one
per process; a warning says which wishes it does not meet.

What is changed outside of the session: `PYSPARK_PYTHON` and `PYSPARK_DRIVER_PYTHON` are set in this process's
environment if they are not, and a temporary directory is made that is removed when the process ends. Nothing
here knows topics or messages.
"""

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import psutil

from borzoi.spark.java import SparkSetupError, find_java
from borzoi.spark.shipping import ship as ship_package

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Name, first version that will do, first that will not. The readers use hooks that came with pyspark 4.2;
# with pandas 3 parts of pyspark cannot be imported.
_REQUIRED: Final = (("pyspark", (4, 2), (5,)), ("pyarrow", (18,), None), ("pandas", (2, 2), (3,)))

_STREAMING = "org.apache.spark.sql.execution.streaming"
_LATENCY: Final = {
    "spark.sql.streaming.checkpointFileManagerClass": (
        f"{_STREAMING}.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}
_LOCAL = re.compile(r"local(?:\[\s*(?P<threads>\d+|\*)\s*(?:,\s*\d+\s*)?\])?")
_LOCAL_CLUSTER = re.compile(r"local-cluster\[\s*(?P<workers>\d+)\s*,\s*(?P<cores>\d+)\s*,\s*\d+\s*\]")
_LOG_LEVELS: Final = ("ALL", "DEBUG", "ERROR", "FATAL", "INFO", "OFF", "TRACE", "WARN")
_JVM_OPTIONS: Final = "spark.driver.extraJavaOptions"
_MEBIBYTE = 1 << 20

# Lines that every local session would print and that nobody can act on: no native Hadoop library, a hostname
# that means the loopback, adaptive execution that streams do not use.
_LOGGING = """\
rootLogger.level = {level}
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{{HH:mm:ss}} %p %c{{1}}: %m%n%ex
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.names.name = org.apache.spark.util.Utils
logger.names.level = error
logger.adaptive.name = org.apache.spark.sql.execution.streaming.runtime.ResolveWriteToStream
logger.adaptive.level = error
"""


# The path of a socket has at most 107 bytes, of which Spark's names take about 45.
_SOCKET_DIRECTORY_BYTES_MAX = 60


class SessionWarning(UserWarning):
    """A session exists already and does not have what was asked for."""


def session(
    app_name: str = "borzoi",
    master: str = "local[*]",
    *,
    config: Mapping[str, object] | None = None,
    latency: bool = False,
    log_level: str = "WARN",
    ship: bool | None = None,
) -> "SparkSession":
    """Start a Spark session, or return the one that this process has.

    `config` holds Spark's own settings and wins over the defaults; a value of None removes a default.
    `latency` saves some 50 to 90 ms of every micro-batch with a checkpoint writer whose renames are less sure
    than the default's: for queries whose checkpoint may be lost with the machine.
    `ship` sends this package to the workers; without it, that is done if `master` is a cluster.
    """
    _require_packages()
    if log_level.upper() not in _LOG_LEVELS:
        raise SparkSetupError(f"log_level is one of {', '.join(_LOG_LEVELS)}, not {log_level!r}")
    wanted = _texts(config or {})
    from pyspark.sql import SparkSession  # noqa: PLC0415 - pyspark may be missing, which is checked first

    if (existing := _existing()) is not None:
        wishes = {"spark.master": master, "spark.app.name": app_name, **(_LATENCY if latency else {})}
        _warn_of_differences(existing, wishes | wanted)
        return existing

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    environment = dict(find_java().environment)
    if _is_on_this_machine(master):
        environment["SPARK_LOCAL_IP"] = os.environ.get("SPARK_LOCAL_IP", "127.0.0.1")
    directory = _temporary_directory()
    settings: dict[str, str | None] = {**default_settings(master, directory)}
    if latency:
        settings.update(_LATENCY)
    settings.update(wanted)
    _add_logging(settings, directory, log_level.upper())
    builder: Any = SparkSession.builder
    builder = builder.appName(app_name).master(master)
    for name, value in settings.items():
        if value is not None:
            builder = builder.config(name, value)
    with _environment(environment):
        started: SparkSession = builder.getOrCreate()
    try:
        if ship if ship is not None else _is_cluster(master):
            ship_package(started, directory)
    except BaseException:
        started.stop()
        raise
    return started


def default_settings(master: str, directory: Path) -> dict[str, str]:
    """The settings that `session` makes for a master; tables that are saved by name go into `directory`."""
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.memory": f"{_driver_memory_bytes() // _MEBIBYTE}m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(directory / "warehouse"),
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.python.filterPushdown.enabled": "true",
        "spark.sql.streaming.stateStore.providerClass": f"{_STREAMING}.state.RocksDBStateStoreProvider",
    }
    if _is_on_this_machine(master):
        settings["spark.driver.bindAddress"] = "127.0.0.1"
        settings["spark.driver.host"] = "127.0.0.1"
        if len(os.fsencode(directory)) <= _SOCKET_DIRECTORY_BYTES_MAX:
            # Rows come from Python with less work than over TCP. Whoever can open the sockets can talk to
            # the workers, and the directory is ours alone.
            settings["spark.python.unix.domain.socket.enabled"] = "true"
            settings["spark.python.unix.domain.socket.dir"] = str(directory)
    if (cores := cores_of(master)) is not None:
        settings["spark.sql.shuffle.partitions"] = str(cores)
    return settings


def cores_of(master: str) -> int | None:
    """How many tasks a master on this machine runs at a time; None if only the cluster knows."""
    if match := _LOCAL.fullmatch(master):
        threads = match["threads"] or "1"
        return len(os.sched_getaffinity(0)) if threads == "*" else int(threads)
    if match := _LOCAL_CLUSTER.fullmatch(master):
        return int(match["workers"]) * int(match["cores"])
    return None


def _is_on_this_machine(master: str) -> bool:
    return cores_of(master) is not None


def _is_cluster(master: str) -> bool:
    return _LOCAL.fullmatch(master) is None


def _driver_memory_bytes() -> int:
    """An eighth of what the machine or the container has, but one gibibyte at least and two at most.

    The rows of a stream pass through the heap in small batches; more of it goes to waste, because Python's
    workers and RocksDB live outside of it.
    """
    total = psutil.virtual_memory().total
    with contextlib.suppress(OSError, ValueError):  # "max", or no such file: there is no limit
        total = min(total, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(1024 * _MEBIBYTE, min(2048 * _MEBIBYTE, total // 8))


def _require_packages() -> None:
    for name, first, beyond in _REQUIRED:
        needed = f"{name}>={_dotted(first)}" + (f",<{_dotted(beyond)}" if beyond else "")
        advice = f"install it with: pip install 'borzoi[spark]' (it needs {needed})"
        try:
            found = version(name)
        except PackageNotFoundError:
            raise SparkSetupError(f"the package {name} is not installed; {advice}") from None
        numbers = tuple(int(number) for number in re.findall(r"\d+", found)[:3])
        if numbers < first or (beyond is not None and numbers >= beyond):
            raise SparkSetupError(f"{name} {found} does not fit; {advice}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _texts(config: Mapping[str, object]) -> dict[str, str | None]:
    """Settings as Spark takes them: all texts, with its spelling of truth."""
    texts: dict[str, str | None] = {}
    for name, value in config.items():
        if name in ("spark.master", "spark.app.name"):
            raise SparkSetupError(f"{name} is an argument of session(), not a setting in its config")
        if value is None or isinstance(value, str):
            texts[name] = value
        elif isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, int | float | os.PathLike):
            texts[name] = str(value)
        else:
            raise SparkSetupError(
                f"the setting {name} is a text, a number or a boolean, not {type(value).__name__}"
            )
    return texts


def _existing() -> "SparkSession | None":
    from pyspark.sql import SparkSession  # noqa: PLC0415 - see session()

    active: SparkSession | None = SparkSession.getActiveSession()
    if active is not None:
        return active
    from pyspark import SparkContext  # noqa: PLC0415

    # A context that was made without a session, as older programs do: a session on top of it costs nothing.
    return SparkSession.builder.getOrCreate() if SparkContext._active_spark_context is not None else None


def _warn_of_differences(existing: "SparkSession", wishes: Mapping[str, str | None]) -> None:
    # Ours follow the caller's in the options of the JVM, see _add_logging.
    differences = [
        f"{name} is {found!r}, not {value!r}"
        for name, value in wishes.items()
        if value is not None
        and (found := existing.conf.get(name, None)) != value
        and not (name == _JVM_OPTIONS and found is not None and found.startswith(value))
    ]
    if differences:
        warnings.warn(
            "this process has a Spark session already, which is returned as it is: "
            + "; ".join(differences)
            + ". Stop it first (spark.stop()) to start another.",
            SessionWarning,
            stacklevel=3,
        )


def _temporary_directory() -> Path:
    directory = Path(tempfile.mkdtemp(prefix="borzoi-spark-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    return directory


def _add_logging(settings: dict[str, str | None], directory: Path, level: str) -> None:
    """Let Spark's drivers log little, unless its own configuration says how it is to log."""
    given = settings.get(_JVM_OPTIONS) or ""
    configured = os.environ.get("SPARK_CONF_DIR")
    if "log4j" in given or (configured and (Path(configured) / "log4j2.properties").exists()):
        return
    file = directory / "log4j2.properties"
    file.write_text(_LOGGING.format(level=level.lower()))
    settings[_JVM_OPTIONS] = f"{given} -Dlog4j2.configurationFile={file.as_uri()}".strip()


@contextlib.contextmanager
def _environment(changes: Mapping[str, str | None]) -> Iterator[None]:
    """Set variables for the JVM that is being started and put the old ones back; None unsets one."""
    before = {name: os.environ.get(name) for name in changes}
    _set_environment(changes)
    try:
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
