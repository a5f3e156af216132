"""The log of one partition: an ordered list of segments, the last of which grows.

Offsets are gapless from the first retained message to `next_offset`. There is always at least one
segment file once something was written, because an empty segment's name is what carries the next
offset over a restart after everything older was deleted.

Nothing here waits for the disk: an append is done when the operating system has the bytes. What has
to reach the device, and when, is decided by `unsynced_messages`/`unsynced_bytes` and carried out by
`borzoi.log.sync`.
"""

import errno
from bisect import bisect_right
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from borzoi.log.batch import stamp
from borzoi.log.files import OpenFiles
from borzoi.log.reader import ReadResult, first_offset_at_or_after, read_segment
from borzoi.log.scan import Report
from borzoi.log.segment import Segment
from borzoi.log.sync import SyncJob
from borzoi.model.limits import SEGMENT_BYTES_MAX, U64_MAX
from borzoi.wire.batch import Layout

RETIRED_SUFFIX = ".retired"
_retired_numbers = count()


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What a topic's options and the server's configuration say about its logs."""

    segment_bytes: int = SEGMENT_BYTES_MAX
    segment_age_us: int = U64_MAX  # roll when the active segment is older than this
    preallocate: bool = False
    verify_reads: bool = True


class PartitionLog:
    __slots__ = (
        "_bases",
        "appended_bytes",
        "appended_messages",
        "directory",
        "dirty",
        "files",
        "last_timestamp_us",
        "next_offset",
        "partition_id",
        "report",
        "segments",
        "settings",
        "size_bytes",
        "synced_bytes",
        "synced_messages",
    )

    def __init__(
        self,
        directory: Path,
        partition_id: int,
        settings: LogSettings,
        files: OpenFiles,
        segments: list[Segment] | None = None,
        next_offset: int = 0,
        report: Report | None = None,
    ) -> None:
        """`segments` are recovered ones in order; see `borzoi.log.recovery`.

        `report` hears of damage to an index that is found, and mended, while the log is in use.
        """
        self.directory = directory
        self.partition_id = partition_id
        self.settings = settings
        self.files = files
        self.report = report
        self.segments = segments or []
        self._bases = [segment.base_offset for segment in self.segments]
        self.next_offset = next_offset
        self.size_bytes = sum(segment.size_bytes for segment in self.segments)
        self.last_timestamp_us = self.segments[-1].last_timestamp_us() if self.segments else 0
        # Segments with bytes not synced yet. The counters only grow, also over a purge.
        self.dirty: dict[int, Segment] = {}
        self.appended_messages = self.synced_messages = 0
        self.appended_bytes = self.synced_bytes = 0

    @property
    def first_offset(self) -> int:
        return self._bases[0] if self._bases else 0

    @property
    def messages_count(self) -> int:
        return self.next_offset - self.first_offset

    @property
    def current_offset(self) -> int:
        """Offset of the last message; 0 also for an empty log, as the protocol has it."""
        return self.next_offset - 1 if self.next_offset else 0

    @property
    def segments_count(self) -> int:
        return max(1, len(self.segments))

    def append(self, batch: memoryview, layout: Layout, now_us: int, *, is_verified: bool = False) -> int:
        """Store a proven batch and return its base offset. If this raises, the log is as before.

        `is_verified` says that the messages' own checksums were found right, too.
        """
        segments = self.segments
        if not segments or self._must_roll(segments[-1], now_us):
            self.roll(now_us)
        segment = segments[-1]
        base_timestamp_us = max(self.last_timestamp_us, now_us)
        base_offset = self.next_offset
        stamp(batch, layout, self.partition_id, base_offset, base_timestamp_us)
        segment.append(batch, base_offset, base_timestamp_us, is_verified=is_verified)
        count, length, _, _ = layout
        self.next_offset = base_offset + count
        self.last_timestamp_us = base_timestamp_us
        self.size_bytes += length
        self.appended_messages += count
        self.appended_bytes += length
        self.dirty[segment.base_offset] = segment
        return base_offset

    def _must_roll(self, segment: Segment, now_us: int) -> bool:
        size_bytes = segment.size_bytes
        if not size_bytes:
            segment.created_at_us = now_us  # its age counts from the first message
            return False
        if size_bytes >= self.settings.segment_bytes:
            return True
        age_us = self.settings.segment_age_us
        return age_us != U64_MAX and now_us - segment.created_at_us >= age_us

    def roll(self, now_us: int) -> Segment:
        """Seal the active segment and start an empty one at the next offset. If this raises, neither."""
        if self.segments:
            if not self.segments[-1].size_bytes:
                return self.segments[-1]  # as good as new
            self.segments[-1].trim()
        preallocate_bytes = self.settings.segment_bytes if self.settings.preallocate else 0
        segment = Segment.create(
            self.directory,
            self.next_offset,
            self.files,
            now_us,
            preallocate_bytes,
            self.last_timestamp_us,
            self.report,
        )
        self.segments.append(segment)
        self._bases.append(segment.base_offset)
        return segment

    def read(self, offset: int, count_max: int, bytes_max: int, now_us: int = 0) -> ReadResult:
        """Messages from `offset` on; from the first retained one if `offset` is older than that.

        Messages before damaged ones are served; a read that starts at the damage raises LogDamaged. Given
        the time, large reads do not hash again what was found sound a moment ago (`borzoi.log.trust`).
        """
        result = ReadResult()
        if count_max <= 0 or offset >= self.next_offset:
            return result
        offset = max(offset, self.first_offset)
        slot = bisect_right(self._bases, offset) - 1
        verify = self.settings.verify_reads
        while slot < len(self.segments) and result.count < count_max and result.size_bytes < bytes_max:
            segment = self.segments[slot]
            if not read_segment(segment, offset, count_max, bytes_max, result, verify=verify, now_us=now_us):
                break
            slot += 1
        return result

    def offset_at_or_after(self, timestamp_us: int) -> int | None:
        """The first message with a broker time of at least `timestamp_us`; None if there is none."""
        if timestamp_us > self.last_timestamp_us:
            return None
        low, high = 0, len(self.segments)
        while low < high:  # the first segment whose last batch is late enough
            middle = (low + high) // 2
            if self.segments[middle].last_timestamp_us() < timestamp_us:
                low = middle + 1
            else:
                high = middle
        for segment in self.segments[low:]:
            offset = first_offset_at_or_after(segment, timestamp_us, verify=self.settings.verify_reads)
            if offset is not None:
                return offset
        return None

    def drop_oldest(self, count: int) -> list[Segment]:
        """Forget the `count` oldest sealed segments and return them, for `retire`."""
        count = min(count, len(self.segments) - 1)
        if count <= 0:
            return []
        dropped = self.segments[:count]
        del self.segments[:count], self._bases[:count]
        for segment in dropped:
            self.size_bytes -= segment.size_bytes
            self.dirty.pop(segment.base_offset, None)
            segment.close()
        return dropped

    def seal(self, now_us: int) -> None:
        """Seal the active segment, so that retention may delete it like any other."""
        if self.segments:
            self.roll(now_us)

    def purge(self) -> list[Segment]:
        """Forget everything and restart at offset 0; returns the segments for `retire`."""
        dropped = self.segments
        self.segments = []
        self._bases = []
        self.dirty.clear()
        self.next_offset = self.size_bytes = self.last_timestamp_us = 0
        for segment in dropped:
            segment.close()
        return dropped

    def sync_jobs(self, *, indexes: bool = False) -> list[SyncJob]:
        """What has to be synced to make everything appended so far durable. May raise OSError.

        Index files are included only if asked for: recovery makes them anew where they lag behind.
        """
        return [self._sync_job(segment, indexes=indexes) for segment in self.dirty.values()]

    def _sync_job(self, segment: Segment, *, indexes: bool) -> SyncJob:
        if segment.rewrite_needed:
            segment.rewrite_unsynced()
        if indexes:
            segment.flush_index()
        size_bytes, messages, total_bytes = segment.size_bytes, self.appended_messages, self.appended_bytes
        failures = segment.sync_failures

        def finish(error: OSError | None) -> OSError | None:
            if error is None and segment.sync_failures != failures:
                # A sync that began before this job's bytes were rewritten says nothing about them.
                error = OSError(errno.EIO, "an earlier sync of this file failed", str(segment.path))
            elif error is not None:
                segment.sync_failures += 1
            if error is not None:
                segment.rewrite_needed = True
                return error
            segment.directory_synced = True
            segment.synced_bytes = max(segment.synced_bytes, size_bytes)
            if segment.synced_bytes >= segment.size_bytes and self.dirty.get(segment.base_offset) is segment:
                del self.dirty[segment.base_offset]
            if not any(other.rewrite_needed for other in self.dirty.values()):
                self.synced_messages = max(self.synced_messages, messages)
                self.synced_bytes = max(self.synced_bytes, total_bytes)
            return None

        return SyncJob(
            key=(id(segment), indexes),  # a job without the index does less
            open_fds=lambda: segment.dup_for_sync(index=indexes),
            finish=finish,
            directory=None if segment.directory_synced else self.directory,
            paths=(segment.path, segment.index.path) if indexes else (segment.path,),
        )

    def close(self) -> None:
        """Give back descriptors, and what was preallocated but not used."""
        if self.segments and self.settings.preallocate:
            self.segments[-1].trim()
        for segment in self.segments:
            segment.close()


def retire(segments: list[Segment]) -> list[Path]:
    """Take dropped segments' files out of the log at once, oldest first; return what is left to unlink.

    Unlinking a large file takes long enough to be done elsewhere, and by then a purged log may have a
    new segment of the same name. Files that stay behind after a crash are removed by recovery.
    """
    retired: list[Path] = []
    for segment in segments:
        for path in (segment.path, segment.index.path):
            target = path.with_name(f"{path.name}.{next(_retired_numbers)}{RETIRED_SUFFIX}")
            with suppress(FileNotFoundError):
                path.rename(target)
                retired.append(target)
    return retired
