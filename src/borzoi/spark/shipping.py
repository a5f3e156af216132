"""How the package reaches the Python processes of a cluster's workers.

Borzoi is pure Python, so one zip archive on the workers' import path is enough for its own modules. What it
imports is not: numpy, pyarrow, msgspec and xxhash contain machine code and have to be installed on the
workers (with pandas for `pipe`), as pyspark itself has to be.

Spark hands the session's archives to every Python process that works for it, those of sources included, so
nothing has to be registered.
"""

import importlib.util
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import borzoi
from borzoi.spark.java import SparkSetupError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGES = ("borzoi", "pyspark_borzoi")
# The oldest time an archive can hold: the same sources make the same bytes, whenever they were written.
_NO_TIME = (1980, 1, 1, 0, 0, 0)


def build_archive(directory: Path) -> Path:
    """Write `borzoi-<version>.zip` with every module of the package into `directory`; returns its path."""
    path = directory / f"borzoi-{borzoi.__version__}.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in PACKAGES:
            root = _root_of(package)
            for file in sorted(root.rglob("*.py")):
                name = Path(package, file.relative_to(root)).as_posix()
                archive.writestr(
                    zipfile.ZipInfo(name, _NO_TIME), file.read_bytes(), compress_type=zipfile.ZIP_DEFLATED
                )
    return path


def ship(spark: "SparkSession", directory: Path) -> Path:
    """Give the session's workers this package, in an archive that is written into `directory`."""
    path = build_archive(Path(directory))
    spark.sparkContext.addPyFile(str(path))
    return path


def _root_of(package: str) -> Path:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise SparkSetupError(f"the package {package}, a part of Borzoi, is not installed here")
    root = Path(spec.submodule_search_locations[0])
    if not root.is_dir():
        raise SparkSetupError(
            f"{package} is not installed as files ({root}), so it cannot be sent to workers; "
            "install it there and call session(..., ship=False)"
        )
    return root
