"""What TxnOffsetCommit says of the other coordinator's answer: that of the transaction, which the group's asked."""

import pytest

from tiered import errors
from tiered.errors import TieredError
from tiered.server.kafka.api.txn_offset_commit import told


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (errors.ConcurrentTransactions, errors.ConcurrentTransactions),
        (errors.InvalidProducerIdMapping, errors.InvalidProducerIdMapping),
        (errors.InvalidTransactionState, errors.InvalidTransactionState),
        (errors.TransactionAbortable, errors.TransactionAbortable),
        (errors.ProducerFenced, errors.ProducerFenced),
        (errors.ClusterNotAuthorized, errors.InvalidTransactionState),
        (errors.NotCoordinator, errors.CoordinatorLoading),
        (errors.CoordinatorNotAvailable, errors.CoordinatorLoading),
        (errors.MetadataUnavailable, errors.CoordinatorLoading),
        (errors.RequestTimedOut, errors.CoordinatorLoading),
    ],
)
def test_no_silence_of_the_transactions_coordinator_sends_a_client_to_look_for_the_groups(
    kind: type[TieredError], expected: type[TieredError]
) -> None:
    assert type(told(kind("why"))) is expected
