"""How often and when something that failed is tried again: numbers only, nobody waits here."""

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`attempts` in all, the first one included; pauses grow from `backoff_s` by `factor` up to the longest.

    `jitter` is the share of a pause that is random: 0.2 makes 1 s anything from 0.8 to 1 s.
    """

    attempts: int = 3
    backoff_s: float = 0.1
    factor: float = 2.0
    longest_backoff_s: float = 30.0
    jitter: float = 0.2

    def __post_init__(self) -> None:
        if self.attempts < 1:
            raise ValueError(f"{self.attempts} attempts; at least one is made")
        if self.backoff_s < 0 or self.longest_backoff_s < 0 or self.factor < 1:
            raise ValueError("pauses are not negative and do not shrink")
        if not 0 <= self.jitter <= 1:
            raise ValueError(f"a jitter of {self.jitter} is no share")

    def pause_s(self, failures: int) -> float | None:
        """How long to wait after so many failures; None: do not try again."""
        if failures >= self.attempts:
            return None
        # The exponent is bounded because a float is; the pause is bounded by the longest anyway.
        pause_s = min(self.longest_backoff_s, self.backoff_s * self.factor ** min(failures - 1, 64))
        return pause_s * random.uniform(1 - self.jitter, 1)  # noqa: S311 - no secret
