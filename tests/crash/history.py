"""What the clients noted against what the server holds: the checks behind the kill -9 test.

Pure functions over journal lines (their format is described in `driver.py`) and a dump. Each check returns
sentences about what is wrong, so that a failing run names every broken promise at once.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

MANUAL, AUTOMATIC = "manual", "automatic"


@dataclass(frozen=True, slots=True, order=True)
class MessageId:
    """Which message of which send: no two messages of a run have the same."""

    producer: int
    seq: int
    index: int


@dataclass(frozen=True, slots=True)
class Attempt:
    """One send, and where the server said it went; `base_offset` is None when no answer came."""

    producer: int
    seq: int
    partition: int
    count: int
    base_offset: int | None = None


@dataclass(slots=True)
class Deliveries:
    """What one group was given and which commits it saw acknowledged, per partition."""

    messages: dict[int, list[tuple[int, MessageId]]] = field(default_factory=lambda: defaultdict(list))
    commits: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message as the server holds it at the end."""

    offset: int
    id: MessageId
    batch_count: int
    intact: bool


@dataclass(frozen=True, slots=True)
class StoredPartition:
    """A partition at the end: its messages in the order they were polled, and the groups' offsets."""

    log: tuple[StoredMessage, ...]
    committed: Mapping[str, int | None]


def read_attempts(producer: int, lines: Iterable[str]) -> list[Attempt]:
    attempts: dict[int, Attempt] = {}
    for line in lines:
        kind, _, rest = line.partition(" ")
        if kind == "S":
            seq, partition, count = map(int, rest.split())
            attempts[seq] = Attempt(producer, seq, partition, count)
        elif kind == "A":
            seq, partition, base_offset, count = map(int, rest.split())
            attempts[seq] = Attempt(producer, seq, partition, count, base_offset)
    return list(attempts.values())


def read_deliveries(journals: Iterable[Iterable[str]]) -> dict[str, Deliveries]:
    groups: dict[str, Deliveries] = {MANUAL: Deliveries(), AUTOMATIC: Deliveries()}
    for lines in journals:
        for line in lines:
            words = line.split(" ")
            if words[0] == "D":
                group, partition, offset = groups[words[1]], int(words[2]), int(words[3])
                ids = [MessageId(*map(int, each.split("."))) for each in words[4].split(",")]
                group.messages[partition] += [(offset + i, each) for i, each in enumerate(ids)]
            elif words[0] == "C":
                groups[words[1]].commits[int(words[2])].append(int(words[3]))
    return groups


def check_log(partition: int, stored: StoredPartition, attempts: Iterable[Attempt]) -> list[str]:
    """Offsets without a gap, nothing damaged, doubled or invented, acknowledged sends where they were put."""
    where = f"partition {partition}"
    wrong = []
    offsets = [message.offset for message in stored.log]
    if offsets != list(range(len(offsets))):
        first = next(i for i, offset in enumerate(offsets) if offset != i)
        wrong.append(f"{where}: offset {offsets[first]} stands where {first} belongs")
    wrong += [f"{where}: {m.id} at {m.offset} is damaged" for m in stored.log if not m.intact]
    doubled = [each for each, n in Counter(m.id for m in stored.log).items() if n > 1]
    wrong += [f"{where}: {each} is stored more than once" for each in doubled]

    sent = {(a.producer, a.seq): a for a in attempts if a.partition == partition}
    present: dict[tuple[int, int], list[StoredMessage]] = defaultdict(list)
    for message in stored.log:
        present[message.id.producer, message.id.seq].append(message)
    wrong += [f"{where}: nobody sent {key} here" for key in present if key not in sent]
    for key, attempt in sent.items():
        batch = present.get(key, [])
        if attempt.base_offset is None and not batch:
            continue
        base = batch[0].offset if batch and attempt.base_offset is None else attempt.base_offset
        expected = [(base + i, i) for i in range(attempt.count)] if base is not None else []
        if [(m.offset, m.id.index) for m in batch] != expected:
            kind = "unacknowledged" if attempt.base_offset is None else "acknowledged"
            wrong.append(
                f"{where}: {kind} {attempt} is stored as {[(m.offset, m.id.index) for m in batch][:5]}..."
                f" ({len(batch)} of {attempt.count} messages)"
            )
    return wrong + _check_order(where, stored)


def _check_order(where: str, stored: StoredPartition) -> list[str]:
    """A producer sends one batch after the other, so its sends stand in that order in every partition."""
    last: dict[int, MessageId] = {}
    wrong = []
    for message in stored.log:
        before = last.get(message.id.producer)
        if before is not None and message.id < before:
            wrong.append(f"{where}: {message.id} stands behind {before}")
        last[message.id.producer] = message.id
    return wrong


def check_group(
    group: str,
    deliveries: Deliveries,
    partition: int,
    stored: StoredPartition,
    *,
    kills: int,
    poll_messages: int,
) -> list[str]:
    """What a group got is what is stored; commits are neither lost nor ahead of the deliveries."""
    where = f"group {group}, partition {partition}"
    got = deliveries.messages.get(partition, [])
    ids = {message.offset: message.id for message in stored.log}
    wrong = [
        f"{where}: was given {each} at {offset}, stored there is {ids.get(offset)}"
        for offset, each in got
        if ids.get(offset) != each
    ]
    committed = stored.committed[group]
    highest = max((offset for offset, _ in got), default=-1)
    # A poll that commits does so before its answer leaves: a kill in between costs that one answer.
    ahead = poll_messages if group == AUTOMATIC else 0
    if committed is not None and committed > min(highest + ahead, len(stored.log) - 1):
        wrong.append(f"{where}: committed {committed}, but nothing beyond {highest} was delivered")
    acknowledged = max(deliveries.commits.get(partition, []), default=-1)
    if acknowledged > (-1 if committed is None else committed):
        wrong.append(f"{where}: commit {acknowledged} was acknowledged, but {committed} is stored")
    missed = sorted(ids.keys() - {offset for offset, _ in got})
    if group == MANUAL and missed:
        wrong.append(f"{where}: {len(missed)} messages were never delivered, the first at {missed[0]}")
    if group == AUTOMATIC and len(missed) > kills * poll_messages:
        wrong.append(f"{where}: {len(missed)} messages were never delivered, more than {kills} kills explain")
    return wrong
