"""Errors, sorted by what the caller can do about them.

Five kinds: `Retriable` (try again later), `Fenced` (a newer process took over: stop), `Invalid` (change the request),
`OutOfRange` (ask for other offsets), `Corrupt` (the bytes are not what was written). Owns no error codes: Kafka's are
given in `server.kafka.error_mapping` alone. Every message says what to do.
"""

from enum import Enum
from typing import Self


class TieredError(Exception):
    """The root of every error that this project raises about the world. Bugs raise AssertionError."""

    def without_frames(self) -> Self:
        """The error, to be kept beyond its `except`. Its frames hold what keeps it: a circle for the collector."""
        self.__cause__ = self.__context__ = None
        return self.with_traceback(None)


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


class NotEnoughReplicasAfterAppend(Retriable):
    """The batch was appended, then fewer in-sync replicas than `min.insync.replicas` were left: its fate is open."""


class OffsetMovedToTieredStorage(Retriable):
    """The leader has the offset in the object store alone: a follower begins where the store ends (KIP-405)."""


class ReplicaNotAvailable(Retriable):
    """This broker is to hold a replica of the partition, and does not have it open yet."""


class OffsetNotAvailable(Retriable):
    """A new leader has not yet learnt how far its log is committed."""


class EligibleLeadersNotAvailable(Retriable):
    """No replica that could be elected is alive."""


class PreferredLeaderNotAvailable(Retriable):
    """The preferred leader is not in sync, or not alive."""


class LogDirFailed(Retriable):
    """The local disk refused a write (full, or an I/O error), or a log cannot be opened. Nothing was acknowledged."""


class MetadataUnavailable(Retriable):
    """The SQL database did not answer in time, or its answer is unknown."""


class MetadataWentBack(MetadataUnavailable):
    """The database has less than what was seen in it: nothing may rest on it until somebody brings the rest back."""


class MetadataOutcomeUnknown(MetadataUnavailable):
    """COMMIT was sent and its answer is missing: settle it by repeating the conditional update."""


class StoreTrouble(Enum):
    """Why an object store does not do what it should, in the word that `/readyz` and `/metrics` have for it."""

    AWAY = "away"
    SLOW = "slow"
    EXPIRED = "expired"
    CREDENTIALS = "credentials"
    SKEWED = "skewed"
    DENIED = "denied"
    LOCKED = "locked"
    ARCHIVED = "archived"
    FULL = "full"
    NO_BUCKET = "no_bucket"


class StoreUnavailable(Retriable):
    """The object store did not answer in time, slowed us down or failed."""

    def __init__(self, message: str, trouble: StoreTrouble = StoreTrouble.AWAY) -> None:
        super().__init__(message)
        self.trouble = trouble

    @property
    def may_be_of_one_object(self) -> bool:
        """Whether the same request for another object may be carried out."""
        return self.trouble in (StoreTrouble.DENIED, StoreTrouble.LOCKED, StoreTrouble.ARCHIVED)


class StoreRefused(StoreUnavailable):
    """The object store has no such bucket, or lets us in no more: somebody must change that, or its settings."""

    def __init__(self, message: str, trouble: StoreTrouble = StoreTrouble.DENIED) -> None:
        super().__init__(message, trouble)


class UploadOverdue(StoreUnavailable):
    """An upload reached its deadline and ended. Its planned row stays, and the sweep removes what is there of it."""


class ShuttingDown(Retriable):
    """The broker is stopping."""


class RequestTimedOut(Retriable):
    """The wait that the request allowed has passed."""


class Throttled(Retriable):
    """A bound (connections, bytes in flight, cold reads) is reached."""


class CoordinatorNotAvailable(Retriable):
    """The group's coordinator cannot do this now, mostly because SQL is away. Nothing is known to have changed."""


class CoordinatorLoading(Retriable):
    """The coordinator is still reading what it must know of the group."""


class NotCoordinator(Retriable):
    """Another broker coordinates this group: find the coordinator again."""


class ConcurrentTransactions(Retriable):
    """The last transaction of this transactional id is being ended; the next request for it has to wait."""


class UnstableOffset(Retriable):
    """An open transaction may change this committed offset; `require_stable` reads wait for its end."""


class RebalanceInProgress(Retriable):
    """The group is rebalancing: join again."""


class StaleMemberEpoch(Retriable):
    """The member's epoch is behind or ahead of the group's: it learns its epoch with its next heartbeat (KIP-848)."""


# Fenced


class FencedLeaderEpoch(Fenced):
    """The caller's leader epoch is older than the partition's."""


class StaleProducerEpoch(Fenced):
    """A newer instance of this producer is active."""


class ProducerFenced(Fenced):
    """A newer producer has this transactional id. Clients that do not know the code are told StaleProducerEpoch's."""


class TransactionCoordinatorFenced(Fenced):
    """The transaction has another coordinator by now, and a marker of the earlier one comes too late."""


class StaleBrokerEpoch(Fenced):
    """This broker process was replaced by a newer registration."""


class IneligibleReplica(StaleBrokerEpoch):
    """A broker that was to join the in-sync replicas has registered again meanwhile, or is out of service."""


class LostRace(Fenced):
    """A conditional update found other values than expected: somebody else was first."""


class UnknownMember(Fenced):
    """The group does not know this member (any more): it must join anew."""


class IllegalGeneration(Fenced):
    """The member belongs to an older generation of its group."""


class FencedInstance(Fenced):
    """Another process took over this `group.instance.id` (KIP-345)."""


class FencedMemberEpoch(Fenced):
    """The member's epoch was overtaken: it must give up its partitions and join anew (KIP-848)."""


class UnreleasedInstance(Fenced):
    """Another member still holds this `group.instance.id` (KIP-848)."""


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


class BrokerNotRegistered(Invalid):
    """No broker has this id."""


class NoReassignment(Invalid):
    """No reassignment of the partition is in progress."""


class ElectionNotNeeded(Invalid):
    """The partition has the leader already that the election would give it."""


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
    """A transactional request that does not fit the transaction's state."""


class InvalidTransactionTimeout(Invalid):
    """The transaction time-out is not positive, or above `transaction.max.timeout.ms`."""


class InvalidProducerIdMapping(Invalid):
    """The transactional id is not that of this producer id: it expired, or another producer took it."""


class TransactionalIdNotFound(Invalid):
    """No producer has, or is still remembered with, this transactional id."""


class TransactionAbortable(Invalid):
    """This transaction cannot be committed any more; abort it, and the producer goes on (KIP-890)."""


class OutOfOrderSequence(Invalid):
    """A batch of an idempotent producer does not follow its last one: something in between is missing."""


class PolicyViolation(Invalid):
    """The request is well formed, but this broker's settings forbid it."""


class ReadOnly(PolicyViolation):
    """This broker only reads its bucket (`--read-only`): whoever wants to change something asks another one."""


class Pinned(PolicyViolation):
    """A snapshot, or a reader's pin, holds what would be deleted. The message names it."""


class PinNotFound(Invalid):
    """No pin of this id, or snapshot of this name, holds anything: it was given up or has ended."""


class SnapshotExists(Invalid):
    """A snapshot of this name exists."""


class InvalidGroup(Invalid):
    """The group id is empty or too long, or the group is of another kind than this request is for."""


class GroupNotFound(Invalid):
    """No group has this id."""


class GroupNotEmpty(Invalid):
    """The group has members; stop them first."""


class GroupSubscribedToTopic(Invalid):
    """Offsets of a topic that the group's members are subscribed to are not deleted."""


class GroupFull(Invalid):
    """The group has as many members as `group.max.size` allows."""


class MemberIdRequired(Invalid):
    """The member must join again with the id that the answer gives it (KIP-394)."""

    def __init__(self, message: str, *, member_id: str) -> None:
        super().__init__(message)
        self.member_id = member_id


class InconsistentProtocol(Invalid):
    """The member shares no protocol with the group's members, or its protocol type is another."""


class InvalidSessionTimeout(Invalid):
    """The session time-out is outside `group.min.session.timeout.ms` to `group.max.session.timeout.ms`."""


class OffsetMetadataTooLarge(Invalid):
    """The text that goes with a committed offset is longer than `offset.metadata.max.bytes`."""


class UnsupportedAssignor(Invalid):
    """The group has no assignor of this name (KIP-848)."""


class InvalidRegularExpression(Invalid):
    """The subscribed pattern is no regular expression of RE2's syntax (KIP-848)."""


class NotAuthorized(Invalid):
    """Access control lists do not let this principal do it. Says which right is missing, nothing of the resource."""


class TopicNotAuthorized(NotAuthorized):
    """A right on the topic is missing, whether there is such a topic or not."""


class GroupNotAuthorized(NotAuthorized):
    """A right on the group is missing, whether there is such a group or not."""


class ClusterNotAuthorized(NotAuthorized):
    """A right on the cluster is missing."""


class TransactionalIdNotAuthorized(NotAuthorized):
    """A right on the transactional id is missing."""


class SecurityDisabled(Invalid):
    """There is nothing to ask or to change while access control lists are not looked at (`tiered.authorizer`)."""


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


class UnknownFormat(CorruptObject):
    """An object of a format version that this program does not know: a newer one wrote it. Upgrade this one."""


class ObjectMissing(Corrupt):
    """The store holds no object of this key, although something that was committed says it does."""


class CorruptFile(Corrupt):
    """A local file of ours fails its check and cannot be rebuilt."""


class MissingOffsets(CorruptFile):
    """A local log begins above offsets that are neither deleted nor in the object store, as far as SQL says. People may
    give them up where `are_nowhere`: the store was asked, and has none of them."""

    def __init__(self, message: str, *, start_offset: int, end_offset: int, are_nowhere: bool = False) -> None:
        super().__init__(message)
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.are_nowhere = are_nowhere


class CorruptMetadata(Corrupt):
    """Rows in SQL contradict an invariant."""
