"""`/api/v1/transaction-commits` and `/api/v1/transaction-aborts`: transactions of many producers that end together.

Each producer writes in its own transaction and leaves it open, complete as it is. Then one request commits all of them
in one SQL transaction, under a key that the application chooses: once, however often it asks. Any broker takes it.
"""

from typing import Any

from aiohttp import web

from tiered.broker.transactions.coordinator import MAX_TOGETHER
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.transactions.transaction_state import MAX_PRODUCER_EPOCH, PreparedTransaction, ProducerIdAndEpoch
from tiered.runtime import in_turns
from tiered.server.http.door.keys import BROKER
from tiered.server.http.door.rights import require
from tiered.server.http.messages import schema
from tiered.server.http.messages.parameters import json_of
from tiered.server.http.messages.route import answers_json, no_content, route, tagged

TAG = "transactions"
MAX_BYTES = 4 << 20
"""Of a body: as many transactions as may be named, with 700 bytes for the id of each."""
_TRANSACTIONS = schema.array(
    schema.record(
        {
            "transactional_id": schema.text(minLength=1, maxLength=32_767),
            "producer_id": schema.integer(),
            "producer_epoch": schema.integer(maximum=MAX_PRODUCER_EPOCH),
        }
    ),
    "Each with the id and the epoch that InitProducerId gave its producer.",
    max_items=MAX_TOGETHER,
)
_COMMIT = schema.record(
    {
        "key": schema.text(
            "Names this commit for good: a job and the number of its batch. It needs the rights of a transactional id "
            "of that name.",
            minLength=1,
            maxLength=1000,
        ),
        "transactions": _TRANSACTIONS,
    }
)
_ABORT = schema.record({"transactions": _TRANSACTIONS})
_COMMITTED = schema.boolean(
    "False where something was committed under the key before: then what is open of these was aborted."
)


async def commit(request: web.Request) -> web.Response:
    """Commit open transactions of many producers in one step, once under a key."""
    body = await json_of(request, _COMMIT, max_bytes=MAX_BYTES)
    prepared = await _prepared(request, body)
    # Whoever uses a key keeps others from committing under it.
    require(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, body["key"])
    committed = await request.app[BROKER].transactions.decide_together(prepared, commit_key=body["key"])
    return web.json_response({"committed": committed})


async def abort(request: web.Request) -> web.Response:
    """Abort open transactions of many producers in one step. What is not open any more is left as it is."""
    body = await json_of(request, _ABORT, max_bytes=MAX_BYTES)
    await request.app[BROKER].transactions.decide_together(await _prepared(request, body), commit_key=None)
    return web.Response(status=204)


async def _prepared(request: web.Request, body: dict[str, Any]) -> list[PreparedTransaction]:
    prepared = []
    async for each in in_turns(body["transactions"]):
        name, producer = each["transactional_id"], ProducerIdAndEpoch(each["producer_id"], each["producer_epoch"])
        require(request, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        prepared.append(PreparedTransaction(transactional_id=name, producer=producer))
    return prepared


ROUTES = tagged(
    TAG,
    route(
        "POST",
        "/api/v1/transaction-commits",
        commit,
        answers_json(schema.record({"committed": _COMMITTED}, is_open=True)),
        body=_COMMIT,
    ),
    route("POST", "/api/v1/transaction-aborts", abort, no_content("None of them is open any more."), body=_ABORT),
)
