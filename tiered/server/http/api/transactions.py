"""`/api/v1/transactions`: transactional ids, which transactions are open and since when; aborting one.

A transactional id's coordinator answers for it: other brokers pass the request on to it. What is open it has in memory;
all else comes from SQL, and is 503 while that is away.
"""

from collections.abc import Callable, Mapping
from typing import Any

from aiohttp import web

from tiered.broker.partitions.topics import Topics
from tiered.ids import TopicPartition
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import Transaction, TransactionState
from tiered.runtime import in_turns
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import may, may_see_topic, scope_of
from tiered.server.http.messages import schema
from tiered.server.http.messages.long_list import json_with_list
from tiered.server.http.messages.parameters import TRANSACTIONAL_ID, query_number, query_text
from tiered.server.http.messages.route import answers_json, route, tagged
from tiered.server.http.neighbours.answering_broker import answers_of_others, handled_by_coordinator

TAG = "transactions"
STATES = tuple(state.value for state in TransactionState)
_STATE = query_text("state", "Those alone that are in this state.", allowed=STATES)
_PRODUCER = query_number("producer_id", "That of this producer alone.")
_OPEN_FOR = query_number("open_for_ms", "Those alone that are open for as long at least; 0: all that are open.")
_SUMMARY: dict[str, schema.Field] = {
    "transactional_id": schema.text(),
    "state": (schema.text(allowed=STATES), "state.value"),
    "producer_id": schema.integer(),
    "producer_epoch": schema.integer(),
    "timeout_ms": schema.integer("It is aborted when it is open for longer."),
    "started_at_ms": schema.nullable(schema.integer("Null while none is open.")),
    "changed_at_ms": schema.integer(),
    "coordinator": schema.integer("Which broker it is."),
}
_LISTED = schema.Form({**_SUMMARY, "partitions": (schema.integer(), lambda each: len(each.partitions))})
_TRANSACTIONS = schema.record(
    {
        "transactions": schema.array(_LISTED.schema),
        "silent_brokers": schema.array(
            schema.integer(), "Their transactions are missing: they did not answer in time."
        ),
    },
    is_open=True,
)
_PARTITION = schema.record({"topic": schema.text(), "partition": schema.integer()}, is_open=True)
_TRANSACTION = schema.Form(_SUMMARY, and_then={"partitions": schema.array(_PARTITION, "Where it has written.")})


async def transactions(request: web.Request) -> web.StreamResponse:
    """Every transactional id that is remembered, and what its transaction is.

    Every broker tells of those that it coordinates; a broker that does not answer in time is named.
    """
    broker = request.app[BROKER]
    is_wanted = _filter(request)
    if _OPEN_FOR.find(request) is None:
        scope = scope_of(request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID)
        listed = broker.transactions.list_transactions(scope, is_wanted, with_partitions=True)
    else:
        listed = in_turns(filter(is_wanted, broker.transactions.open_transactions()))
    # What is shown of them is made as it is sent: it takes more memory.
    by_id: dict[str, Transaction | Mapping[str, Any]] = {each.transactional_id: each async for each in listed}
    query = request.rel_url.raw_query_string
    answers, silent = await answers_of_others(request, f"/api/v1/transactions{query and '?'}{query}")
    # Two brokers may both answer for a slot that is moving from one to the other.
    by_id |= {str(each["transactional_id"]): each for answer in answers.values() for each in answer["transactions"]}

    def fields(entry: Transaction | Mapping[str, Any]) -> Mapping[str, Any]:
        return _LISTED.of(entry, coordinator=broker.broker_id) if isinstance(entry, Transaction) else entry

    items = (fields(by_id[name]) for name in sorted(by_id))
    return await json_with_list(request, {"silent_brokers": silent}, "transactions", items)


def _filter(request: web.Request) -> Callable[[Transaction], bool]:
    state, producer_id, open_for_ms = _STATE.find(request), _PRODUCER.find(request), _OPEN_FOR.find(request)
    now_ms = request.app[BROKER].clock.now_ms()

    def is_wanted(each: Transaction) -> bool:
        if open_for_ms is not None and (each.started_at_ms is None or now_ms - each.started_at_ms < open_for_ms):
            return False
        is_named = state in (None, each.state.value) and producer_id in (None, each.producer_id)
        return is_named and _may_see(request, each.transactional_id)

    return is_wanted


def _may_see(request: web.Request, name: str) -> bool:
    return may(request, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name)


@handled_by_coordinator(TRANSACTIONAL_ID)
async def transaction(request: web.Request) -> web.StreamResponse:
    """One transactional id: its producer, and the transaction that it has open or had last."""
    return await _told(request, TRANSACTIONAL_ID.of(request))


@handled_by_coordinator(TRANSACTIONAL_ID)
async def abort(request: web.Request) -> web.StreamResponse:
    """Abort the open transaction, and fence its producer.

    Nothing changes where none is open. The answer tells what the transaction is now: PrepareAbort until every partition
    knows.
    """
    name = TRANSACTIONAL_ID.of(request)
    await request.app[BROKER].transactions.abort(name)
    return await _told(request, name)


async def _told(request: web.Request, name: str) -> web.StreamResponse:
    broker = request.app[BROKER]
    found = await broker.transactions.describe(name)
    fields = _TRANSACTION.of(found, coordinator=broker.broker_id)
    named = ((_topic_of(broker.topics, each), each.partition) for each in sorted(found.partitions))
    seen = ({"topic": topic, "partition": number} for topic, number in named if topic and may_see_topic(request, topic))
    return await json_with_list(request, fields, "partitions", seen)


def _topic_of(topics: Topics, partition: TopicPartition) -> str:
    """Empty where it was deleted meanwhile."""
    topic = topics.find_id(partition.topic_id)
    return "" if topic is None else topic.name


_PATH = "/api/v1/transactions/{transactional_id}"

ROUTES = tagged(
    TAG,
    route("GET", "/api/v1/transactions", transactions, answers_json(_TRANSACTIONS), _STATE, _PRODUCER, _OPEN_FOR),
    route("GET", _PATH, transaction, answers_json(_TRANSACTION.schema)),
    route("POST", f"{_PATH}/abort", abort, answers_json(_TRANSACTION.schema)),
)
