"""What can go wrong, sorted by what the caller can do about it.

Five kinds: `Retriable` (try again later), `Fenced` (somebody newer took over: stop), `Invalid` (change
the request), `OutOfRange` (ask for other offsets), `Corrupt` (the bytes are not what was written).
Owns no error codes: Kafka's are given in `server.kafka.error_mapping` alone. Every message says what to do.
"""


class TieredError(Exception):
    """The root of every error that this project raises about the world. Bugs raise AssertionError."""


class Retriable(TieredError):
    """The same request may succeed later; nothing was changed, or repeating it is harmless."""


class Fenced(TieredError):
    """A newer leader, producer or owner exists; the caller must stop acting on old authority."""


class Invalid(TieredError):
    """The request can never succeed as it stands."""


class OutOfRange(TieredError):
    """The offsets asked for are not in the log (any more, or yet)."""


class Corrupt(TieredError):
    """Bytes at rest or in flight fail their own checks. Never answered with the bytes."""


# Retriable


class UnknownTopicOrPartition(Retriable):
    """No such topic or partition here; it may be about to appear."""


class UnknownTopicId(Retriable):
    """No topic has this id: it was deleted, or recreated under another id."""


class NotLeader(Retriable):
    """This broker does not lead the partition."""


class UnknownLeaderEpoch(Retriable):
    """The caller knows a newer leader epoch than this broker does."""


class NotEnoughReplicas(Retriable):
    """Fewer in-sync replicas than `min.insync.replicas`: nothing was appended."""


class OffsetNotAvailable(Retriable):
    """A new leader has not yet learnt how far its log is committed."""


class LogDirFailed(Retriable):
    """The local disk refused a write (full, or an I/O error). Nothing was acknowledged."""


class MetadataUnavailable(Retriable):
    """The SQL database did not answer in time, or its answer is unknown."""


class MetadataOutcomeUnknown(MetadataUnavailable):
    """COMMIT was sent and its answer is missing: settle it by repeating the conditional update."""


class StoreUnavailable(Retriable):
    """The object store did not answer in time, slowed us down or failed."""


class ShuttingDown(Retriable):
    """The broker is stopping."""


class RequestTimedOut(Retriable):
    """The wait that the request allowed has passed."""


class Throttled(Retriable):
    """A bound (connections, bytes in flight, cold reads) is reached."""


# Fenced


class FencedLeaderEpoch(Fenced):
    """The caller's leader epoch is older than the partition's."""


class StaleProducerEpoch(Fenced):
    """A newer instance of this producer is active."""


class StaleBrokerEpoch(Fenced):
    """This broker process was replaced by a newer registration."""


class LostRace(Fenced):
    """A conditional update found other values than expected: somebody else was first."""


class ObjectExists(Fenced):
    """A create-only put found an object of this key: somebody else stored it first."""


# Invalid


class MalformedRequest(Invalid):
    """The bytes do not parse as the request they claim to be. Ends the connection."""


class UnsupportedVersion(Invalid):
    """The API, or this version of it, is not served."""


class InvalidRequest(Invalid):
    """The request parses but contradicts itself."""


class InvalidTopic(Invalid):
    """The topic name is not `[a-zA-Z0-9._-]{1,249}`, or is `.` or `..`."""


class TopicExists(Invalid):
    """A topic of this name exists."""


class InvalidPartitions(Invalid):
    """The number of partitions is out of range, or not larger than the present one."""


class InvalidReplicationFactor(Invalid):
    """More replicas than brokers, or none."""


class InvalidReplicaAssignment(Invalid):
    """A manual assignment names unknown brokers or is incomplete."""


class InvalidConfig(Invalid):
    """A setting is unknown or its value is out of range; the message names it."""


class InvalidRecord(Invalid):
    """A record batch that this broker must not store (wrong magic, contradictory counts, ...)."""


class MessageTooLarge(Invalid):
    """A batch is larger than `max.message.bytes` allows."""


class InvalidTimestamp(Invalid):
    """A record's timestamp is outside what the topic allows."""


class UnsupportedCompression(Invalid):
    """The codec is unknown, or not allowed in this version of the request."""


class InvalidRequiredAcks(Invalid):
    """acks is none of 0, 1, -1."""


class InvalidTransactionState(Invalid):
    """A transactional request that does not fit the transaction's state, or transactions are not served."""


class OutOfOrderSequence(Invalid):
    """A batch of an idempotent producer does not follow its last one: something in between is missing."""


class UnknownProducerId(Invalid):
    """No state is kept for this producer."""


class PolicyViolation(Invalid):
    """The request is well formed, but this broker's settings forbid it."""


class AlreadyRunning(Invalid):
    """Another process serves this data folder."""


# Out of range


class OffsetOutOfRange(OutOfRange):
    """The offset is below `log_start_offset` or above `log_end_offset`."""


# Corrupt


class CorruptBatch(Corrupt):
    """A record batch fails its length, magic or CRC check."""


class CorruptObject(Corrupt):
    """An object in the store is truncated, swapped, altered or missing. Names topic, partition, offsets, key."""


class ObjectMissing(Corrupt):
    """The store holds no object of this key, although something that was committed says it does."""


class CorruptFile(Corrupt):
    """A local file of ours fails its check and cannot be rebuilt."""


class CorruptMetadata(Corrupt):
    """Rows in SQL contradict an invariant."""
