"""Spark looks for modules named pyspark_* and asks them for `DefaultSource`: this is what it finds."""

from borzoi.spark.source import BorzoiDataSource as DefaultSource

__all__ = ["DefaultSource"]
