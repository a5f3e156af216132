"""Compares the metadata with the directories on disk, and rebuilds one from the other if told so.

Directories are made before the metadata names them and removed after it forgets them, so:

- a known partition without a directory is damage: start-up is refused, or the directory is made
  again (empty) with `recreate_missing_state`;
- a directory nobody knows is a leftover, or all that is left of a lost catalog: with
  `recreate_missing_state` it is taken back under a made-up name, otherwise it is set aside.
"""

from collections import defaultdict
from pathlib import Path
from typing import Protocol

from borzoi.broker import events as ev
from borzoi.broker.catalog import Catalog
from borzoi.broker.metadata import Metadata, MetadataError
from borzoi.log.directory import DataDirectory
from borzoi.log.offsets import group_ids


class Logger(Protocol):
    def warning(self, event: str, **fields: object) -> object: ...


def rebuild_catalog(metadata: Metadata, directory: DataDirectory, logger: Logger, now_us: int) -> None:
    """Give every partition directory on disk a place in the catalog."""
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    next_group_ids: dict[tuple[int, int], int] = defaultdict(int)
    for place in directory.found():
        key = place.stream_id, place.topic_id
        found[key].append(place.partition_id)
        # Offsets of groups that are forgotten must not become those of new ones.
        next_group_ids[key] = max([next_group_ids[key], *(number + 1 for number in group_ids(place.path))])
    for (stream_id, topic_id), partitions in found.items():
        stream = metadata.catalog.find_stream(stream_id)
        if stream is None:
            name = _free_name(f"stream-{stream_id}", metadata.catalog.stream_ids)
            metadata.record(ev.StreamCreated(stream_id=stream_id, name=name, at_us=now_us))
            stream = metadata.catalog.stream(stream_id)
            logger.warning("stream recreated from its directory", stream=name)
        count = max(partitions) + 1
        topic = stream.find_topic(topic_id)
        if topic is None:
            name = _free_name(f"topic-{topic_id}", stream.topic_ids)
            metadata.record(
                ev.TopicCreated(
                    stream_id=stream_id,
                    topic_id=topic_id,
                    name=name,
                    partitions=[now_us] * count,
                    options={},
                    at_us=now_us,
                    next_group_id=next_group_ids[stream_id, topic_id],
                )
            )
            logger.warning("topic recreated from its directory", stream=stream.name, topic=name)
        elif count > len(topic.partitions):
            added = count - len(topic.partitions)
            metadata.record(
                ev.PartitionsAdded(stream_id=stream_id, topic_id=topic_id, count=added, at_us=now_us)
            )
            logger.warning("partitions recreated from their directories", topic=topic.name, count=added)


def check_directories(
    catalog: Catalog, directory: DataDirectory, logger: Logger, *, may_create: bool
) -> None:
    for stream_id, path in list(directory.found_streams()):
        if stream_id not in catalog.streams:
            _set_aside(directory, path, logger)
    for stream_id, topic_id, path in list(directory.found_topics()):
        if topic_id not in catalog.streams[stream_id].topics:
            _set_aside(directory, path, logger)
    on_disk: set[tuple[int, int, int]] = set()
    for place in list(directory.found()):
        topic = catalog.streams[place.stream_id].topics[place.topic_id]
        if place.partition_id < len(topic.partitions):
            on_disk.add((place.stream_id, place.topic_id, place.partition_id))
        else:
            _set_aside(directory, place.path, logger)
    for partition in catalog.partitions():
        topic = partition.topic
        if (topic.stream.id, topic.id, partition.id) in on_disk:
            continue
        path = directory.partition(topic.stream.id, topic.id, partition.id)
        if not may_create:
            raise MetadataError(
                f"{path} is missing: partition {partition.id} of topic {topic.name} in stream "
                f"{topic.stream.name}. Restore it, or set system.recovery.recreate_missing_state to start "
                "with an empty one."
            )
        path.mkdir(parents=True)
        logger.warning("empty partition created in place of a missing one", path=str(path))


def _set_aside(directory: DataDirectory, path: Path, logger: Logger) -> None:
    target = directory.set_aside(path)
    logger.warning("directory without metadata set aside", path=str(path), target=str(target))


def _free_name(wanted: str, taken: dict[str, int]) -> str:
    name, number = wanted, 1
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name
