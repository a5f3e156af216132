"""Partition logs for tests: batches of known content, and reading back which offsets a log serves."""

from pathlib import Path

from borzoi.log.files import OpenFiles
from borzoi.log.partition import LogSettings, PartitionLog
from borzoi.log.recovery import Repair, open_partition
from borzoi.wire.batch import NewMessage, build, frames, prove, read_header, split, verify_header

NOW_US = 1_700_000_000_000_000


def make_batch(sizes, first_id=1, fill=None):
    """One batch with a message per size; the payload of message id n is made of that id."""
    return memoryview(
        build(
            [
                NewMessage(payload_of(first_id + index, size, fill), id=first_id + index)
                for index, size in enumerate(sizes)
            ]
        )
    )


def payload_of(message_id, size, fill=None):
    unit = message_id.to_bytes(8, "little") if fill is None else fill
    return (unit * (size // len(unit) + 1))[:size]


def append(log, sizes, now_us=NOW_US):
    """Append a batch whose message ids are their offsets plus one."""
    batch = make_batch(sizes, log.next_offset + 1)
    return log.append(batch, prove(batch), now_us)


def served(result):
    """(offset, id, payload) of every message of a read, after checking each batch against its checksum."""
    messages = []
    for batch in split(memoryview(b"".join(result.buffers))):
        header = read_header(batch)
        found = list(frames(batch))
        assert found[0].offset_delta + len(found) - 1 == found[-1].offset_delta
        if found[0].offset_delta == 0:
            verify_header(batch, prove(batch))
        messages += [(header.base_offset + each.offset_delta, each.id, bytes(each.payload)) for each in found]
    return messages


def offsets_of(log, offset=0, count=10**9, bytes_max=10**12):
    """Offsets served from `offset` on; the messages must be those that `append` put there."""
    result = log.read(offset, count, bytes_max)
    messages = served(result)
    assert [each[0] for each in messages] == [each[1] - 1 for each in messages]
    assert all(payload == payload_of(found, len(payload)) for _, found, payload in messages)
    assert result.count == len(messages)
    assert result.size_bytes == sum(map(len, result.buffers))
    if messages:
        assert (result.first_offset, result.last_offset) == (messages[0][0], messages[-1][0])
    return [each[0] for each in messages]


class Opened:
    """A log that recovery opened, and what it reported."""

    def __init__(self, directory: Path, settings: LogSettings | None = None, partition_id: int = 0) -> None:
        self.repairs: list[Repair] = []
        self.log: PartitionLog = open_partition(
            directory, partition_id, settings or LogSettings(), OpenFiles(), self.repairs.append
        )

    @property
    def reported(self) -> list[str]:
        return [repair.what for repair in self.repairs]


def reopen(directory, settings=None):
    return Opened(directory, settings)


def flip_bit(path, position, bit=0):
    data = bytearray(path.read_bytes())
    data[position] ^= 1 << bit
    path.write_bytes(data)


def log_files(directory, suffix="log"):
    return sorted(directory.glob(f"*.{suffix}"))
