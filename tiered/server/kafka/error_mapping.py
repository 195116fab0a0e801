"""Kafka's error codes for our kinds of error: the only place that assigns them.

Owns the table. A kind without a row of its own takes the row of its nearest base class, so a new error
can never reach the wire as a wrong success.
"""

from typing import Final

from tiered import errors
from tiered.broker.people.client_metrics import Outcome
from tiered.rules.security.sasl import failures
from tiered.wire.error_codes import (
    CLUSTER_AUTHORIZATION_FAILED,
    COORDINATOR_NOT_AVAILABLE,
    GROUP_AUTHORIZATION_FAILED,
    INVALID_REQUEST,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NONE,
    THROTTLING_QUOTA_EXCEEDED,
    TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_VERSION,
)

__all__ = ["NONE", "error_code", "producer_error_code"]

TELEMETRY_CODES: Final[dict[Outcome, int]] = {
    Outcome.TAKEN: NONE,
    Outcome.INVALID: INVALID_REQUEST,
    Outcome.TOO_SOON: THROTTLING_QUOTA_EXCEEDED,
    Outcome.UNKNOWN_SUBSCRIPTION: 117,
    Outcome.UNKNOWN_COMPRESSION: 76,
    Outcome.TOO_LARGE: 118,
    Outcome.UNREADABLE: 87,  # INVALID_RECORD
}

_CODES: Final[dict[type[BaseException], int]] = {
    errors.TieredError: UNKNOWN_SERVER_ERROR,
    errors.Retriable: LEADER_NOT_AVAILABLE,  # every client refreshes its metadata and tries again
    errors.UnknownTopicOrPartition: 3,
    errors.UnknownTopicId: 100,
    errors.NotLeader: 6,
    errors.UnknownLeaderEpoch: 75,
    errors.OffsetNotAvailable: 78,
    errors.NotEnoughReplicas: 19,
    errors.NotEnoughReplicasAfterAppend: 20,
    errors.OffsetMovedToTieredStorage: 109,
    errors.ReplicaNotAvailable: 9,
    errors.EligibleLeadersNotAvailable: 83,
    errors.PreferredLeaderNotAvailable: 80,
    errors.LogDirFailed: KAFKA_STORAGE_ERROR,
    errors.MetadataUnavailable: 7,  # REQUEST_TIMED_OUT: the outcome may be unknown
    errors.StoreUnavailable: KAFKA_STORAGE_ERROR,  # consumers try again; on 7 the Java client gives up
    errors.ShuttingDown: 6,
    errors.RequestTimedOut: 7,
    errors.Throttled: THROTTLING_QUOTA_EXCEEDED,
    errors.CoordinatorLoading: 14,
    errors.CoordinatorNotAvailable: COORDINATOR_NOT_AVAILABLE,
    errors.NotCoordinator: 16,
    errors.ConcurrentTransactions: 51,
    errors.UnstableOffset: 88,
    errors.RebalanceInProgress: 27,
    errors.StaleMemberEpoch: 113,
    errors.Fenced: 74,
    errors.FencedLeaderEpoch: 74,
    errors.StaleProducerEpoch: 47,
    errors.ProducerFenced: 90,
    errors.TransactionCoordinatorFenced: 52,
    errors.StaleBrokerEpoch: 77,
    errors.LostRace: 41,  # NOT_CONTROLLER: ask again, another broker was first
    errors.UnknownMember: 25,
    errors.IllegalGeneration: 22,
    errors.FencedInstance: 82,
    errors.FencedMemberEpoch: 110,
    errors.UnreleasedInstance: 111,
    errors.Invalid: INVALID_REQUEST,
    errors.MalformedRequest: INVALID_REQUEST,
    errors.UnsupportedVersion: UNSUPPORTED_VERSION,
    errors.InvalidRequest: INVALID_REQUEST,
    errors.InvalidTopic: 17,
    errors.TopicExists: 36,
    errors.InvalidPartitions: 37,
    errors.InvalidReplicationFactor: 38,
    errors.InvalidReplicaAssignment: 39,
    errors.BrokerNotRegistered: 102,
    errors.NoReassignment: 85,
    errors.ElectionNotNeeded: 84,
    errors.InvalidConfig: 40,
    errors.InvalidRecord: 87,
    errors.MessageTooLarge: 10,
    errors.InvalidTimestamp: 32,
    errors.UnsupportedCompression: 76,
    errors.InvalidRequiredAcks: 21,
    errors.OutOfOrderSequence: 45,
    errors.PolicyViolation: 44,
    errors.InvalidTransactionState: 48,
    errors.InvalidTransactionTimeout: 50,
    errors.InvalidProducerIdMapping: 49,
    errors.TransactionalIdNotFound: 105,
    errors.TransactionAbortable: 120,
    errors.InvalidGroup: 24,
    errors.GroupNotFound: 69,
    errors.GroupNotEmpty: 68,
    errors.GroupSubscribedToTopic: 86,
    errors.GroupFull: 81,
    errors.MemberIdRequired: 79,
    errors.InconsistentProtocol: 23,
    errors.InvalidSessionTimeout: 26,
    errors.OffsetMetadataTooLarge: 12,
    errors.UnsupportedAssignor: 112,
    errors.InvalidRegularExpression: 128,
    errors.NotAuthorized: CLUSTER_AUTHORIZATION_FAILED,
    errors.TopicNotAuthorized: TOPIC_AUTHORIZATION_FAILED,
    errors.GroupNotAuthorized: GROUP_AUTHORIZATION_FAILED,
    errors.ClusterNotAuthorized: CLUSTER_AUTHORIZATION_FAILED,
    errors.TransactionalIdNotAuthorized: TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    errors.SecurityDisabled: 54,
    failures.AuthenticationFailed: 58,
    failures.IllegalSaslState: 34,
    failures.UnsupportedSaslMechanism: 33,
    failures.UnacceptableCredential: 93,
    failures.UserNotFound: 91,  # RESOURCE_NOT_FOUND
    failures.DuplicateUser: 92,
    errors.OutOfRange: 1,
    errors.OffsetOutOfRange: 1,
    errors.Corrupt: 2,  # CORRUPT_MESSAGE
    errors.CorruptBatch: 2,
    errors.CorruptObject: 2,  # the consumer must hear of it, not retry in silence
    errors.CorruptFile: 2,
    errors.CorruptMetadata: UNKNOWN_SERVER_ERROR,
}


def error_code(error: BaseException) -> int:
    """Kafka's code for `error`: that of its own class, or of the nearest base class that has one."""
    for kind in type(error).__mro__:
        code = _CODES.get(kind)
        if code is not None:
            return code
    return UNKNOWN_SERVER_ERROR


def producer_error_code(error: BaseException, *, knows_fenced: bool) -> int:
    """The code for a transactional producer; one that does not know PRODUCER_FENCED is told INVALID_PRODUCER_EPOCH."""
    if isinstance(error, errors.ProducerFenced) and not knows_fenced:
        return _CODES[errors.StaleProducerEpoch]
    return error_code(error)
