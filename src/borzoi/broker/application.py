"""Appends the batches of a decided epoch to their logs, each exactly once, over any number of tries.

A try may end anywhere: the process is killed, the disk is full. The next one first finds out which batches
are in their logs. `borzoi.log.places` says where each was going to be put, and a batch is there if the log
holds its very frames at that offset. The frames are what a producer made; only the header of a batch
changes when it is appended. What the log holds was recovered before (`borzoi.log.recovery`), so a batch
that was half written is not there.

If the machine itself went down in between, the file of places may lack entries whose batches reached the
device. Then, and only then, batches without an entry are looked for by content in what each log has gained
since the decision. A batch of another producer with the same frames and times could be taken for one of
ours there.

Three things may happen to a log between two tries:

- retention deletes old segments. They are deleted oldest first, so a batch whose place lies before the first
  retained offset was there. None are deleted while a start finishes its epochs: nothing runs beside it.
- a purge starts the log again; it settles the topic's epochs at once (`Transactions.settle`).
- the partition is deleted: then its messages would be gone as well, and are left out.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from xxhash import xxh3_64_intdigest

from borzoi.broker.catalog import Topic
from borzoi.broker.pending import Steps
from borzoi.log.partition import PartitionLog
from borzoi.log.places import Place, PlacesFile
from borzoi.log.reader import LogDamaged
from borzoi.log.staging import StagedBatch, StagedDamageError, StagedFile
from borzoi.model.errors import CannotAppendMessage, RemoteProtocolError
from borzoi.model.limits import U32_MAX
from borzoi.wire.batch import HEADER_BYTES, Layout, prove, read_header, split

if TYPE_CHECKING:
    from borzoi.broker.broker import Broker

# How much is done before others have their turn: a few milliseconds of work.
STEP_BYTES = 4 << 20
STEP_BATCHES = 128


class Item(NamedTuple):
    """One batch of an epoch; `number` is its place in the order in which they are appended."""

    number: int
    file: StagedFile
    sequence: int

    @property
    def staged(self) -> StagedBatch:
        return self.file.batches[self.sequence]


class _Loaded(NamedTuple):
    item: Item
    batch: memoryview
    layout: Layout


def put_in_logs(
    broker: "Broker",
    topic: Topic,
    items: Sequence[Item],
    places: PlacesFile,
    is_wanted: Callable[[], bool],
    now_us: int,
) -> Steps[None]:
    """Append those items that have no sound place yet. Ends early if `is_wanted` says so.

    Raises CannotAppendMessage if the disk does; what was appended stays, and another call goes on from there.
    """
    position = 0
    while position < len(items) and is_wanted():
        step = _step(items, position)
        position += len(step)
        loaded = [each for item in step if (each := _load(broker, topic, item)) is not None]
        missing = [each for each in loaded if not _is_there(broker, topic, places, each)]
        _append(broker, topic, missing, places, now_us)
        yield []


def find_by_content(
    broker: "Broker",
    topic: Topic,
    items: Sequence[Item],
    places: PlacesFile,
    next_offsets: Sequence[tuple[int, int]],
) -> Steps[None]:
    """Give places to items that have none but are in their logs, behind the offsets of the decision."""
    for partition_id, next_offset in next_offsets:
        if partition_id >= len(topic.partitions):
            continue
        log = topic.partitions[partition_id].log
        taken = {place.offset for place in places.known.values() if place.partition_id == partition_id}
        wanted: list[tuple[Item, tuple[int, ...]]] = []
        for item in items:
            if item.staged.partition_id == partition_id and item.number not in places.known:
                loaded = _load(broker, topic, item)
                if loaded is not None:
                    wanted.append((item, _content(loaded.batch)))
                yield []
        is_cut = log.first_offset > next_offset
        found: list[Place] = []
        for offset, batch in _batches(broker, log, next_offset):
            if not wanted:
                break
            if offset not in taken:
                content = _content(batch)
                # They are there in order, so the next one is looked for; unless some are deleted already.
                reach = len(wanted) if is_cut else 1
                hit = next((at for at in range(reach) if wanted[at][1] == content), None)
                if hit is not None:
                    found += [Place(item.number, partition_id, next_offset) for item, _ in wanted[:hit]]
                    found.append(Place(wanted[hit][0].number, partition_id, offset))
                    del wanted[: hit + 1]
            yield []
        places.known.update((place.batch, place) for place in found)


def _step(items: Sequence[Item], position: int) -> list[Item]:
    step: list[Item] = []
    size_bytes = 0
    for item in items[position : position + STEP_BATCHES]:
        step.append(item)
        size_bytes += item.staged.length
        if size_bytes >= STEP_BYTES:
            break
    return step


def _load(broker: "Broker", topic: Topic, item: Item) -> _Loaded | None:
    """The batch of an item; None if there is nowhere to put it, or nothing to put."""
    if item.staged.partition_id >= len(topic.partitions):
        return None
    try:
        batch = item.file.read(item.sequence)
        return _Loaded(item, batch, prove(batch, item.staged.message_count))
    except (StagedDamageError, RemoteProtocolError) as error:
        broker.logger.error(
            "messages of a committed epoch lost: a staged batch is damaged",
            topic=topic.name,
            reason=str(error),
            messages=item.staged.message_count,
        )
        return None


def _append(broker: "Broker", topic: Topic, step: list[_Loaded], places: PlacesFile, now_us: int) -> None:
    """Note where these batches go, then put them there, with nobody in between."""
    if not step:
        return
    next_offsets: dict[int, int] = {}
    noted: list[Place] = []
    for item, _, layout in step:
        partition_id = item.staged.partition_id
        offset = next_offsets.get(partition_id, topic.partitions[partition_id].log.next_offset)
        noted.append(Place(item.number, partition_id, offset))
        next_offsets[partition_id] = offset + layout.message_count
    done = 0
    try:
        places.note(noted)
        for item, batch, layout in step:
            log = topic.partitions[item.staged.partition_id].log
            log.append(batch, layout, now_us, is_verified=item.staged.is_verified)
            done += 1
    except OSError as error:
        broker.logger.error("epoch not applied yet", topic=topic.name, reason=str(error))
        _revoke(broker, places, noted[done:])
        raise CannotAppendMessage(error.strerror or str(error)) from error


def _revoke(broker: "Broker", places: PlacesFile, noted: list[Place]) -> None:
    try:
        places.revoke(noted)
    except OSError as error:
        broker.logger.warning("places of batches not taken back", path=str(places.path), reason=str(error))


def _is_there(broker: "Broker", topic: Topic, places: PlacesFile, loaded: _Loaded) -> bool:
    place = places.known.get(loaded.item.number)
    if place is None:
        return False
    log = topic.partitions[place.partition_id].log
    if place.offset + loaded.layout.message_count > log.next_offset:
        return False
    if place.offset < log.first_offset:
        return True
    try:
        found = log.read(place.offset, loaded.layout.message_count, 1).buffers
    except LogDamaged as error:
        broker.logger.error(
            "damaged data taken for a batch of an epoch", path=str(error.path), reason=str(error)
        )
        return True
    # A batch that is larger than ours is served as two buffers: a new header and some of its frames.
    return len(found) == 1 and _content(memoryview(found[0])) == _content(loaded.batch)


def _content(batch: memoryview) -> tuple[int, ...]:
    """What of a batch its producer decided."""
    header = read_header(batch)
    return (
        header.message_count,
        header.length,
        header.origin_timestamp_us,
        xxh3_64_intdigest(batch[HEADER_BYTES:]),
    )


def _batches(broker: "Broker", log: PartitionLog, offset: int) -> Iterator[tuple[int, memoryview]]:
    """Every batch from an offset on that begins at or behind it."""
    offset = max(offset, log.first_offset)
    while offset < log.next_offset:
        try:
            result = log.read(offset, U32_MAX, STEP_BYTES)
        except LogDamaged as error:
            broker.logger.error("damaged data not searched", path=str(error.path), reason=str(error))
            return
        if not result.count:
            return
        for buffer in result.buffers:
            for batch in split(memoryview(buffer)):
                yield read_header(batch).base_offset, batch
        offset = result.last_offset + 1
