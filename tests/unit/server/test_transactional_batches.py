"""What a producer is told when its coordinator refuses, or says nothing: the codes that its version knows (KIP-890)."""

import pytest

from tiered.errors import (
    ClusterNotAuthorized,
    ConcurrentTransactions,
    CoordinatorLoading,
    CoordinatorNotAvailable,
    InvalidProducerIdMapping,
    InvalidTransactionState,
    MetadataUnavailable,
    NotCoordinator,
    ProducerFenced,
    RequestTimedOut,
    StaleProducerEpoch,
    TieredError,
    TransactionAbortable,
    UnknownTopicOrPartition,
    UnsupportedVersion,
)
from tiered.peer.answers import ConnectionLost, CorruptAnswer, broker_error
from tiered.server.kafka.error_mapping import error_code
from tiered.server.kafka.transactional_batches import told

NOT_ENOUGH_REPLICAS, INVALID_PRODUCER_EPOCH, INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING = 19, 47, 48, 49
CONCURRENT_TRANSACTIONS, OPERATION_NOT_ATTEMPTED, TRANSACTION_ABORTABLE = 51, 55, 120


@pytest.mark.parametrize(
    ("error", "codes"),
    [
        (TransactionAbortable("no"), (INVALID_TXN_STATE, TRANSACTION_ABORTABLE, TRANSACTION_ABORTABLE)),
        (ConcurrentTransactions("no"), (NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS, CONCURRENT_TRANSACTIONS)),
        (ProducerFenced("no"), (INVALID_PRODUCER_EPOCH,) * 3),
        (StaleProducerEpoch("no"), (INVALID_PRODUCER_EPOCH,) * 3),
        (InvalidProducerIdMapping("no"), (INVALID_PRODUCER_ID_MAPPING,) * 3),
        (InvalidTransactionState("no"), (INVALID_TXN_STATE,) * 3),
        (ClusterNotAuthorized("no"), (INVALID_TXN_STATE,) * 3),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, TieredError) else "",
)
def test_a_refusal_has_the_code_that_the_version_knows(error: TieredError, codes: tuple[int, int, int]) -> None:
    assert tuple(error_code(told(error, version)) for version in (10, 11, 12)) == codes


@pytest.mark.parametrize(
    "error",
    [
        CoordinatorLoading("no"),
        CoordinatorNotAvailable("no"),
        NotCoordinator("no"),
        ConnectionLost("no"),
        RequestTimedOut("no"),
        MetadataUnavailable("no"),
        UnknownTopicOrPartition("no"),
        CorruptAnswer("no"),
        UnsupportedVersion("no"),
        broker_error(OPERATION_NOT_ATTEMPTED, "no"),
    ],
    ids=lambda error: type(error).__name__,
)
@pytest.mark.parametrize("version", [3, 11, 13])
def test_what_may_pass_has_every_client_try_again(error: TieredError, version: int) -> None:
    assert error_code(told(error, version)) == NOT_ENOUGH_REPLICAS
