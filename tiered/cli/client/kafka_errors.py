"""Kafka's error codes in words that say what to do.

Owns the words. The codes' names come from kio; the broker's own message, where it sends one, is the better
reason.
"""

NONE = 0
OFFSET_OUT_OF_RANGE = 1
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
MESSAGE_TOO_LARGE = 10
INVALID_TOPIC_EXCEPTION = 17
TOPIC_ALREADY_EXISTS = 36
POLICY_VIOLATION = 44
GROUP_NOT_EMPTY = 68
GROUP_NOT_FOUND = 69

_ADVICE = {
    UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; `tiered topics list` shows those that exist",
    LEADER_NOT_AVAILABLE: "the partition has no leader now; try again in a moment",
    NOT_LEADER_OR_FOLLOWER: "the partition's leader has just changed; try again in a moment",
    GROUP_NOT_EMPTY: "the group has members; stop them first (`tiered groups describe` shows them)",
    GROUP_NOT_FOUND: "there is no such group; `tiered groups list` shows those that exist",
    14: "the group's coordinator is still loading; try again in a moment",
    15: "the group's coordinator is not available, mostly because SQL is away; try again in a moment",
    16: "the group's coordinator has just changed; try again in a moment",
    24: "a group's name must not be empty",
    23: "the group's members use another protocol, or share no assignor with this one (range)",
    25: "the group has members; stop them first (`tiered groups describe` shows them)",
    81: "the group has as many members as group.max.size allows",
    86: "the group's members are subscribed to the topic; stop them first",
    7: "the broker took too long; try again",
    MESSAGE_TOO_LARGE: "a batch is larger than the topic's max.message.bytes; raise that, or send smaller records",
    INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither . nor ..",
    19: "too few replicas are in sync; nothing was appended",
    29: "this is not allowed to you",
    POLICY_VIOLATION: "the broker does not allow this: a snapshot holds the records, or it is a read replica",
    TOPIC_ALREADY_EXISTS: "a topic of this name exists",
    37: "the number of partitions is out of range, or not larger than now",
    38: "there are not as many brokers as replicas were asked for",
    56: "the broker's disk refuses writes; see the broker's log",
    74: "the partition's leader has just changed; try again in a moment",
}


def error_name(code: int) -> str:
    """Kafka's name of the code, as in its documentation."""
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


def advice(code: int) -> str | None:
    """What the code means and what to do about it, where we know more than its name."""
    return _ADVICE.get(code)


def reason(code: int, message: str | None) -> str:
    """The broker's message, else ours, and Kafka's name to search for."""
    told = message or advice(code)
    return f"{told} ({error_name(code)})" if told else error_name(code)


def is_retriable(code: int) -> bool:
    """True when Kafka's clients would try again."""
    from kio.schema.errors import ErrorCode

    try:
        return ErrorCode(code).retriable
    except ValueError:
        return False
