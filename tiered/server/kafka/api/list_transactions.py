"""ListTransactions (key 66), versions 0 to 2: the transactional ids that this broker coordinates, as far as the client
may describe them.

Filters: states and producer ids, how long a transaction is open (v1), a pattern in RE2's syntax (v2, KIP-1152). Kafka's
states that do not occur here match nothing; names that are no state are told.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tiered.broker.groups.patterns import compiled
from tiered.errors import TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import Transaction, TransactionState
from tiered.server.kafka.authorize import may
from tiered.server.kafka.dispatch import Api, Context, in_turns
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_transactions import Reply, Request, Response

STATES = {*(state.value for state in TransactionState), "PrepareEpochFence", "Dead"}
"""Kafka's names; the last two never occur here (docs/adr/0023)."""


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        is_wanted = _filter(context, request)
        found = await context.broker.transactions.list_transactions()
    except TieredError as error:
        return reply.ListTransactionsResponse(
            throttle_time=0, error_code=error_code(error), unknown_state_filters=[], transaction_states=[]
        )
    return reply.ListTransactionsResponse(
        throttle_time=0,
        error_code=NONE,
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in STATES],
        transaction_states=[
            reply.TransactionState(
                transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state.value
            )
            async for each in in_turns(found)
            if is_wanted(each)
            and may(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
        ],
    )


def _filter(context: Context, request: "Request") -> Callable[[Transaction], bool]:
    """Raises InvalidRegularExpression."""
    states, ids = set(request.state_filters), set(request.producer_id_filters)
    open_for_ms = getattr(request, "duration_filter", -1)
    pattern = getattr(request, "transactional_id_pattern", None)
    regex = compiled(pattern) if pattern else None
    now_ms = context.broker.clock.now_ms()

    def is_wanted(each: Transaction) -> bool:
        if states and each.state.value not in states:
            return False
        if ids and each.producer_id not in ids:
            return False
        if open_for_ms >= 0 and (each.started_at_ms is None or now_ms - each.started_at_ms <= open_for_ms):
            return False
        return regex is None or regex.fullmatch(each.transactional_id) is not None

    return is_wanted


API = Api(
    66,
    "ListTransactions",
    (0, 2),
    rights="those transactional ids are listed that may be described",
    handle=handle,
)
