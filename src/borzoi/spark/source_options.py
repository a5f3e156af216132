"""Options of the Spark source: which messages of which topic, in which form, and how many at a time.

All are checked when the source is made, before a query runs. `docs/spark.md` has the table for users.
Batch and streaming read the same options, except that a stream has no end and a batch no triggers.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from borzoi.client.values import identifier
from borzoi.model.errors import BorzoiError, InvalidOptionValue
from borzoi.spark.formats import FORMAT_OPTIONS, FORMATS
from borzoi.spark.offsets import Bound, Word, ending_bound, starting_bound
from borzoi.spark.options import TARGET_OPTIONS, Options, Target
from borzoi.spark.plan import Limits

RAW = "raw"
DEFAULT_GROUP = "spark"
DEFAULT_TRIGGER_BYTES = 128 << 20
DEFAULT_SPLIT_BYTES = 256 << 20
_TASKS_MAX = 100_000

_SHARED_OPTIONS = (
    *TARGET_OPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "failOnDataLoss",
    "group",
    "minPartitions",
    "maxSplitBytes",
    "direct",
    "dataDirectory",
    "columns",
    "format",
    "schema",
    *FORMAT_OPTIONS,
)
_STREAM_OPTIONS = ("maxBytesPerTrigger", "maxRowsPerTrigger", "publishOffsets")
_BATCH_OPTIONS = ("endingOffsets", "endingTimestamp", "pushFilters")
SOURCE_OPTIONS = (*_SHARED_OPTIONS, *_STREAM_OPTIONS, *_BATCH_OPTIONS)


@dataclass(frozen=True, slots=True)
class SourceOptions:
    target: Target
    starting: Bound
    ending: Bound
    fail_on_data_loss: bool
    group: str
    is_published: bool
    limits: Limits
    takes_filters: bool
    split_bytes_max: int | None
    splits_min: int | None
    columns: tuple[str, ...] | None
    format: str
    schema: str | None
    data_directory: str | None = None  # whose segment files are read directly

    @property
    def has_server(self) -> bool:
        return bool(self.target.connection)

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Self:
        """Raises `InvalidOptionValue` for the first option that is wrong, missing or unknown."""
        options = Options(given, SOURCE_OPTIONS)
        starting = starting_bound(options)
        if starting.word is Word.GROUP and "group" not in options:
            raise InvalidOptionValue('option "startingOffsets" is "group": name it with the option "group"')
        if options.choice("format", FORMATS, RAW) == RAW:
            for name in ("schema", *FORMAT_OPTIONS):
                if name in options:
                    raise options.fault(name, 'it is about payloads: say of which "format" they are')
        data_directory = _data_directory(options)
        target = Target.of(options, needs_server=data_directory is None)
        return cls(
            target=target,
            starting=starting,
            ending=ending_bound(options),
            fail_on_data_loss=options.flag("failOnDataLoss", True),
            group=_group(options),
            is_published=options.flag("publishOffsets", True) and bool(target.connection),
            limits=Limits(
                options.size_bytes("maxBytesPerTrigger", DEFAULT_TRIGGER_BYTES),
                options.limit("maxRowsPerTrigger"),
            ),
            takes_filters=options.flag("pushFilters", False),
            split_bytes_max=options.size_bytes("maxSplitBytes", DEFAULT_SPLIT_BYTES),
            splits_min=options.number("minPartitions", minimum=1, maximum=_TASKS_MAX),
            columns=options.words("columns"),
            format=options.choice("format", FORMATS, RAW),
            schema=options.text("schema"),
            data_directory=data_directory,
        )

    def for_stream(self, given: Mapping[str, str]) -> Self:
        """The same, if nothing is asked for that a stream cannot have."""
        return self._without(given, _BATCH_OPTIONS, "it concerns reads that end: use it with spark.read")

    def for_batch(self, given: Mapping[str, str]) -> Self:
        return self._without(given, _STREAM_OPTIONS, "it concerns streams: use it with spark.readStream")

    def _without(self, given: Mapping[str, str], names: tuple[str, ...], reason: str) -> Self:
        options = Options(given, SOURCE_OPTIONS)
        for name in names:
            if name in options:
                raise options.fault(name, reason)
        return self


def _data_directory(options: Options) -> str | None:
    path = options.text("dataDirectory")
    if not options.flag("direct", False):
        if path is not None:
            raise options.fault("dataDirectory", 'it is for reading files: set the option "direct" to true')
        return None
    return options.required("dataDirectory", "/var/lib/borzoi") if path is None else path


def _group(options: Options) -> str:
    name = options.text("group", DEFAULT_GROUP) or DEFAULT_GROUP
    try:
        identifier(name)
    except BorzoiError as error:
        raise options.fault("group", str(error)) from None
    if name.isascii() and name.isdecimal():
        raise options.fault("group", "a group is named here; a number would be an id")
    return name
