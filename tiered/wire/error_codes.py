"""Kafka's error codes: their numbers, whether clients try again, and in words what to do.

Owns the numbers and the words; all names come from kio. Which error of ours has which code, the server says.
"""

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
LEADER_NOT_AVAILABLE = 5
NOT_LEADER_OR_FOLLOWER = 6
BROKER_NOT_AVAILABLE = 8
MESSAGE_TOO_LARGE = 10
COORDINATOR_LOAD_IN_PROGRESS = 14
COORDINATOR_NOT_AVAILABLE = 15
NOT_COORDINATOR = 16
INVALID_TOPIC_EXCEPTION = 17
ILLEGAL_GENERATION = 22
UNKNOWN_MEMBER_ID = 25
REBALANCE_IN_PROGRESS = 27
TOPIC_AUTHORIZATION_FAILED = 29
GROUP_AUTHORIZATION_FAILED = 30
CLUSTER_AUTHORIZATION_FAILED = 31
UNSUPPORTED_SASL_MECHANISM = 33
ILLEGAL_SASL_STATE = 34
UNSUPPORTED_VERSION = 35
TOPIC_ALREADY_EXISTS = 36
INVALID_REQUEST = 42
POLICY_VIOLATION = 44
INVALID_TRANSACTION_TIMEOUT = 50
CONCURRENT_TRANSACTIONS = 51
TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
SECURITY_DISABLED = 54
OPERATION_NOT_ATTEMPTED = 55
KAFKA_STORAGE_ERROR = 56
LOG_DIR_NOT_FOUND = 57
NON_EMPTY_GROUP = 68
GROUP_ID_NOT_FOUND = 69
FETCH_SESSION_ID_NOT_FOUND = 70
MEMBER_ID_REQUIRED = 79
ELECTION_NOT_NEEDED = 84
THROTTLING_QUOTA_EXCEEDED = 89
INVALID_UPDATE_VERSION = 95
UNKNOWN_TOPIC_ID = 100
TRANSACTIONAL_ID_NOT_FOUND = 105
UNKNOWN_SERVER_ERROR = -1

AUTHORIZATION_FAILED = frozenset(
    {
        TOPIC_AUTHORIZATION_FAILED,
        GROUP_AUTHORIZATION_FAILED,
        CLUSTER_AUTHORIZATION_FAILED,
        TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

_ADVICE = {
    UNKNOWN_TOPIC_OR_PARTITION: "there is no such topic or partition; `tiered topics list` shows those that exist",
    LEADER_NOT_AVAILABLE: "the partition has no leader now; try again in a moment",
    NOT_LEADER_OR_FOLLOWER: "the partition's leader has just changed; try again in a moment",
    NON_EMPTY_GROUP: "the group has members; stop them first (`tiered groups describe` shows them)",
    GROUP_ID_NOT_FOUND: "there is no such group; `tiered groups list` shows those that exist",
    COORDINATOR_LOAD_IN_PROGRESS: "the group's coordinator is still loading; try again in a moment",
    COORDINATOR_NOT_AVAILABLE: "the group has no coordinator, mostly because SQL is away; try again in a moment",
    NOT_COORDINATOR: "the group's coordinator has just changed; try again in a moment",
    24: "a group's name must not be empty",
    23: "the group's members use another protocol, or share no assignor with this one (range)",
    UNKNOWN_MEMBER_ID: "the group has members; stop them first (`tiered groups describe` shows them)",
    81: "the group has as many members as group.max.size allows",
    86: "the group's members are subscribed to the topic; stop them first",
    7: "the broker took too long; try again",
    MESSAGE_TOO_LARGE: "a batch is larger than the topic's max.message.bytes; raise that, or send smaller records",
    INVALID_TOPIC_EXCEPTION: "a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ - and is neither . nor ..",
    19: "too few replicas are in sync; nothing was appended",
    TOPIC_AUTHORIZATION_FAILED: "this is not allowed to you",
    POLICY_VIOLATION: "the broker does not allow this: a snapshot holds the records, or it is a read replica",
    TOPIC_ALREADY_EXISTS: "a topic of this name exists",
    37: "the number of partitions is out of range, or not larger than now",
    38: "there are not as many brokers as replicas were asked for",
    KAFKA_STORAGE_ERROR: "the broker's disk refuses writes; see the broker's log",
    74: "the partition's leader has just changed; try again in a moment",
}


def error_name(code: int) -> str:
    """Kafka's name of the code, as in its documentation."""
    from kio.schema.errors import ErrorCode  # Only here: it is big.

    try:
        return ErrorCode(code).name.upper()
    except ValueError:
        return f"error {code}"


def advice(code: int) -> str | None:
    """The meaning of the code and advice, where we know more than its name."""
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
