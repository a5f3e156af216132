"""Which runs of a segment were found sound lately, so that they need not be hashed for every reader.

Many consumers read the same bytes. Hashing a megabyte costs about as much as sending it, so a run that
was verified is trusted for a while: until the file changes, and for TRUST_US at most, which bounds how
long bytes that went bad on the device could go unnoticed. A file that was changed a moment ago is not
trusted at all, because a change right after it could have the same time stamp.
"""

TRUST_US = 60_000_000
_SETTLED_US = 1_000_000


class TrustedRuns:
    __slots__ = ("_changed_ns", "_since_us", "_sound")

    def __init__(self) -> None:
        self._sound: set[int] = set()
        self._changed_ns = -1
        self._since_us = 0

    def at(self, changed_ns: int, now_us: int) -> set[int]:
        """The runs to trust now, for the caller to add to; `changed_ns` is the file's time of change."""
        if now_us - changed_ns // 1000 < _SETTLED_US:
            return set()
        if changed_ns != self._changed_ns or now_us - self._since_us > TRUST_US:
            self._sound = set()
            self._changed_ns, self._since_us = changed_ns, now_us
        return self._sound
