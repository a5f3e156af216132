"""What a check of `borzoi doctor` finds."""

from dataclasses import dataclass
from enum import Enum


class State(Enum):
    """`WARNING`: works, or is needed by some only. `WRONG`: does not work."""

    OK = "ok"
    WARNING = "warning"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """`advice` says what to do, and is there whenever the state is not `OK`."""

    check: str
    state: State
    found: str
    advice: str = ""

    def __post_init__(self) -> None:
        if self.state is not State.OK and not self.advice:
            raise ValueError(f"{self.check}: a finding that is not ok says what to do")
