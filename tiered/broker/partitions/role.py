"""What a broker is for a partition."""

from enum import Enum, auto


class Role(Enum):
    """This broker's role for the partition now."""

    NONE = auto()
    """Nobody leads it, or not as this broker knows it."""
    FOLLOWER = auto()
    LEADER = auto()
