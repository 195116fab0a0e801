"""ListTransactions (key 66), versions 0 to 2: the transactional ids that this broker coordinates, as far as the client
may describe them.

Filters: states and producer ids, how long a transaction is open (v1), a pattern in RE2's syntax (v2, KIP-1152). Kafka's
states that do not occur here match nothing; names that are no state are told. POLICY_VIOLATION where more than 100,000
match: Kafka sends any number.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING

from tiered.broker.groups.patterns import compiled
from tiered.errors import TieredError
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import Transaction, TransactionState
from tiered.server.kafka.authorize import may, scope_of
from tiered.server.kafka.dispatch import Api, Context
from tiered.server.kafka.error_mapping import NONE, error_code

if TYPE_CHECKING:
    from kafka_messages.list_transactions import Reply, Request, Response

STATES = {*(state.value for state in TransactionState), "PrepareEpochFence", "Dead"}
"""Kafka's names; the last two never occur here (docs/adr/0023)."""
IDLE_STATES = {state.value for state in TransactionState if state.is_idle}


async def handle(context: Context, request: "Request", reply: "Reply") -> "Response":
    try:
        found = [
            reply.TransactionState(
                transactional_id=each.transactional_id, producer_id=each.producer_id, transaction_state=each.state.value
            )
            async for each in context.broker.transactions.list_transactions(
                scope_of(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID),
                _filter(context, request),
                open_only=_asks_for_open(request),
            )
        ]
    except TieredError as error:
        return reply.ListTransactionsResponse(
            throttle_time=0, error_code=error_code(error), unknown_state_filters=[], transaction_states=[]
        )
    return reply.ListTransactionsResponse(
        throttle_time=0,
        error_code=NONE,
        unknown_state_filters=[name for name in dict.fromkeys(request.state_filters) if name not in STATES],
        transaction_states=found,
    )


def _asks_for_open(request: "Request") -> bool:
    """True where no idle transactional id matches, of which there may be very many."""
    states = set(request.state_filters)
    return getattr(request, "duration_filter", -1) >= 0 or (bool(states) and states.isdisjoint(IDLE_STATES))


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
        name = each.transactional_id
        if regex is not None and regex.fullmatch(name) is None:
            return False
        return may(context, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)

    return is_wanted


API = Api(
    66,
    "ListTransactions",
    (0, 2),
    rights="those transactional ids are listed that may be described",
    handle=handle,
)
