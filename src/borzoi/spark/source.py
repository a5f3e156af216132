"""The data source "borzoi", as Spark finds it: what its options mean, and who reads and writes.

Spark imports it to find out what sources there are, in sessions that never use it too, and makes it in
short-lived processes; so everything is imported when it is needed. Readers and writers are pickled from here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

if TYPE_CHECKING:
    from borzoi.spark.fetch import Fetcher
    from borzoi.spark.rows import Rows
    from borzoi.spark.source_options import SourceOptions


class BorzoiDataSource(DataSource):
    """`spark.read.format("borzoi")`, and all its kin. docs/spark.md tells what the options are."""

    @classmethod
    def name(cls) -> str:
        return "borzoi"

    def schema(self) -> StructType | str:
        from borzoi.spark.source_schema import source_schema  # noqa: PLC0415 - see the module's docstring
        from borzoi.spark.workers import settle  # noqa: PLC0415

        settle()
        return source_schema(self._source_options())

    def reader(self, schema: StructType) -> DataSourceReader:
        from borzoi.spark.batch_reader import BorzoiReader, FilteringReader  # noqa: PLC0415
        from borzoi.spark.source_schema import rows_of  # noqa: PLC0415

        options = self._source_options().for_batch(self._given)
        rows = rows_of(options, self._given, schema)
        fetcher = fetcher_of(options, rows)
        if options.takes_filters:
            return FilteringReader(options, fetcher, rows.metadata)
        return BorzoiReader(options, fetcher)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        from borzoi.model.errors import BorzoiError  # noqa: PLC0415
        from borzoi.spark.source_schema import rows_of  # noqa: PLC0415
        from borzoi.spark.stream_reader import BorzoiStreamReader, RefusingReader  # noqa: PLC0415

        try:
            options = self._source_options().for_stream(self._given)
            return BorzoiStreamReader(options, fetcher_of(options, rows_of(options, self._given, schema)))
        except BorzoiError as error:
            return RefusingReader(error)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from borzoi.spark.sink import batch_writer  # noqa: PLC0415

        return batch_writer(self._given, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802
        from borzoi.spark.sink import stream_writer  # noqa: PLC0415

        return stream_writer(self._given, schema, overwrite)

    def _source_options(self) -> "SourceOptions":
        from borzoi.spark.source_options import SourceOptions  # noqa: PLC0415

        return SourceOptions.of(self._given)

    @property
    def _given(self) -> dict[str, str]:
        given: Mapping[str, str] = self.options
        return dict(given)


def fetcher_of(options: "SourceOptions", rows: "Rows") -> "Fetcher":
    """Who turns splits into rows; the one place that chooses."""
    from borzoi.spark.fetch import BrokerFetcher  # noqa: PLC0415

    from_server = BrokerFetcher(options.target, rows, options.fail_on_data_loss)
    if options.data_directory is None:
        return from_server
    from borzoi.spark.direct import DirectFetcher  # noqa: PLC0415

    tail = from_server if options.has_server else None
    return DirectFetcher(options.target, options.data_directory, rows, tail, options.fail_on_data_loss)
