"""The errors that brokers answer with, and those on the way to them.

Owns the translation of Kafka's codes into kinds of error, for a client. Must never wait or send.
"""

from collections.abc import Sequence
from typing import Any, TypeVar

from tiered import errors
from tiered.wire.error_codes import (
    CORRUPT_MESSAGE,
    LEADER_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    error_name,
    is_retriable,
)


class ConnectionLost(errors.Retriable):
    """The broker cannot be reached, or went away. Whether it did what it was asked is unknown."""


class CorruptAnswer(errors.Corrupt):
    """A broker answered with bytes that do not parse, or to a request that was not made."""


class OutcomeUnknown(errors.Retriable):
    """The connection was lost, or time ran out, after a Produce was sent: it may have been appended.

    Repeating it may store its records twice, unless the batch carries a producer id and a sequence.
    """


class BrokerError(errors.TieredError):
    """A broker answered with an error code. Raised as one of the subclasses below.

    `code` is Kafka's number, `name` Kafka's name for it (UNKNOWN_TOPIC_OR_PARTITION).
    """

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{message}: {name} ({code})")
        self.code = code
        self.name = name
        self.message = message


class RetriableBrokerError(BrokerError, errors.Retriable):
    """The same request may succeed later."""


class FencedBrokerError(BrokerError, errors.Fenced):
    """Somebody newer took over."""


class InvalidBrokerError(BrokerError, errors.Invalid):
    """The request can never succeed as it stands."""


class UnreadableTopic(InvalidBrokerError):
    """This client lacks the right READ on `topic`."""

    def __init__(self, topic: str, message: str) -> None:
        super().__init__(TOPIC_AUTHORIZATION_FAILED, error_name(TOPIC_AUTHORIZATION_FAILED), message)
        self.topic = topic


class OutOfRangeBrokerError(BrokerError, errors.OffsetOutOfRange):
    """The offset is not in the log."""


class CorruptBrokerError(BrokerError, errors.Corrupt):
    """The broker found its data, or ours, corrupt."""


_KINDS: dict[int, type[BrokerError]] = {
    OFFSET_OUT_OF_RANGE: OutOfRangeBrokerError,
    CORRUPT_MESSAGE: CorruptBrokerError,
    47: FencedBrokerError,  # INVALID_PRODUCER_EPOCH
    77: FencedBrokerError,  # STALE_BROKER_EPOCH
    82: FencedBrokerError,  # FENCED_INSTANCE_ID
    90: FencedBrokerError,  # PRODUCER_FENCED
    110: FencedBrokerError,  # FENCED_MEMBER_EPOCH
}

# No such topic or partition, or not yet.
UNKNOWN_HERE = frozenset({UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID})

# Nothing was appended, and the same request may succeed with newer metadata or a little later: LEADER_NOT_AVAILABLE,
# NOT_LEADER_OR_FOLLOWER, REPLICA_NOT_AVAILABLE, NOT_ENOUGH_REPLICAS, KAFKA_STORAGE_ERROR, LISTENER_NOT_FOUND,
# FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_NOT_AVAILABLE, THROTTLING_QUOTA_EXCEEDED.
NOT_APPENDED = UNKNOWN_HERE | {LEADER_NOT_AVAILABLE, 6, 9, 19, 56, 72, 74, 75, 78, 89}


T = TypeVar("T")


def the_only(items: Sequence[T] | None, of_what: str) -> T:
    """The one item of an answer to a question about one thing. Raises CorruptAnswer for none or several."""
    if items is None or len(items) != 1:
        raise CorruptAnswer(f"a broker was asked about one {of_what} and answers about {len(items or ())}")
    return items[0]


def require_success(answer: Any, otherwise: str) -> None:
    """Raises the BrokerError of an answer whose code is not 0, in the broker's words, else in those of `otherwise`.

    Some APIs have neither code nor words in their old versions.
    """
    if code := getattr(answer, "error_code", 0):
        raise broker_error(code, getattr(answer, "error_message", None) or otherwise)


def broker_error(code: int, message: str) -> BrokerError:
    """The error for a code that is not 0; `message` says what was asked."""
    kind = _KINDS.get(code, RetriableBrokerError if is_retriable(code) else InvalidBrokerError)
    return kind(code, error_name(code), message)
