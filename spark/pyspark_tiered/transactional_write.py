"""Writes that are seen whole or never, and once: each task's transaction stays open, and the driver ends all together.

Owns the names of transactions, and what the driver asks for. A name tells the write and the place of the task in it, so
that attempts of one write never fence each other, and a stream that begins a micro-batch again fences what the driver
before it has left open. Must never commit what Spark has not: an attempt that it passes over is not in its messages.
"""

import logging
import threading
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pyspark import TaskContext
from pyspark.sql.datasource import WriterCommitMessage

from pyspark_tiered.http_door import BrokersHttp
from pyspark_tiered.write_options import TransactionOptions, WriteOptions
from tiered.errors import Invalid, InvalidRequest, TieredError
from tiered.peer.producer import TransactionalName

log = logging.getLogger(__name__)

_COMMITS, _ABORTS = "/api/v1/transaction-commits", "/api/v1/transaction-aborts"
_OPEN = "/api/v1/transactions?open_for_ms=0"
COMMITTED_TOGETHER = 5_000
"""As many as brokers take in the one request that a commit is."""
ABORTED_TOGETHER = 1_000
"""Fewer than brokers take: none of them depends on another, and a request has only so long."""
_TIMEOUT_S = 60.0
"""Of the one request that counts: thousands of transactions take the database a while."""
_ROUNDS_OF_COMMITS = 60
_KILLED_TASKS_LIVE_S = 5.0
"""Spark looks every 2 s whether a task was killed, and ends its process after `spark.python.task.killTimeout`, 2 s."""
_ALTERNATING = 2
"""Names of micro-batches are used again by the next but one: by then theirs has ended, and brokers remember few."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """The open transaction of one task, as whoever ends it must name it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenRecords(WriterCommitMessage):
    """The records that one task wrote, all of them acknowledged.

    With transactions also the query whose micro-batch it was, and the transaction, if there was a record.
    """

    records: int
    query: str | None = None
    transaction: OpenTransaction | None = None


def name_in_batch(options: TransactionOptions, write: str) -> TransactionalName:
    """What this task attempt writes under, in the batch write that has the uuid `write`."""
    return _name(options, write)


def name_in_stream(options: TransactionOptions) -> tuple[TransactionalName, str]:
    """What this task attempt writes under, and the id of its query."""
    context = TaskContext.get()
    assert context is not None, "tasks write"
    query = context.getLocalProperty("sql.streaming.queryId")
    batch = context.getLocalProperty("streaming.sql.batchId")
    if query is None or batch is None:
        raise InvalidRequest("this Spark does not tell its tasks which query they are of: write without transactions")
    return _name(options, f"{query}-{int(batch) % _ALTERNATING}"), query


def _name(options: TransactionOptions, write: str) -> TransactionalName:
    context = TaskContext.get()
    place = "0-0" if context is None else f"{context.partitionId()}-{context.attemptNumber()}"
    return TransactionalName(transactional_id=f"{options.prefix}-{write}-{place}", timeout_ms=options.timeout_ms)


def commit(options: WriteOptions, messages: Sequence[WriterCommitMessage | None], write: str, batch: str = "") -> None:
    """Commits the tasks' transactions in one step, once for this write or query and its batch. Nothing where they wrote
    nothing.

    Where it was done before, an earlier run of the same micro-batch is committed, and these are aborted. Raises
    `InvalidRequest` where one of them cannot be committed, or they are too many, and so none is, and
    `MetadataUnavailable` where no broker answered: then nobody knows. Spark aborts the write then.
    """
    transactions = _transactions_of(messages)
    if options.transactions is None or not transactions:
        return
    if len(transactions) > COMMITTED_TOGETHER:
        # Spark does not tell a sink beforehand how many tasks there are, and those without rows do not count.
        raise InvalidRequest(
            f"nothing of this write is committed: {len(transactions)} tasks have written, and {COMMITTED_TOGETHER} at "
            f"the most can be committed together; write fewer partitions, with df.coalesce({COMMITTED_TOGETHER})"
        )
    key = "/".join((options.transactions.prefix, write, *filter(None, (batch,))))
    body = {"key": key, "transactions": [asdict(each) for each in transactions]}
    door = _door(
        options, "the write may be committed: look before you write it again; a stream finds out when it starts again"
    )
    try:
        answer = door.ask("POST", _COMMITS, body, rounds=_ROUNDS_OF_COMMITS, timeout_s=_TIMEOUT_S)
    except Invalid as error:
        raise InvalidRequest(
            f"nothing of this write is committed: {error}. If its tasks took longer than "
            f"kafka.transaction.timeout.ms ({options.transactions.timeout_ms}), raise it, or write less at once"
        ) from error
    if not answer.get("committed"):
        log.info("%s was committed by an earlier run of it; this one's records were aborted", key)
    decided = {each.transactional_id for each in transactions}
    _end_what_others_left(options, options.transactions, write, decided)


def _until_killed_tasks_end() -> None:
    threading.Event().wait(_KILLED_TASKS_LIVE_S)


def abort_write(
    options: WriteOptions,
    told: TransactionOptions,
    messages: Sequence[WriterCommitMessage | None],
    write: str,
    *,
    pause: Callable[[], None] = _until_killed_tasks_end,
) -> None:
    """Aborts what this write or query has open: what its tasks tell of, and what those left that tell nothing.

    A task that Spark kills, because another one failed, tells nothing, and may leave its transaction open: its process
    ends before it takes its rows back, or nobody hears that it came to its end.
    """
    abort(options, messages)
    decided = {each.transactional_id for each in _transactions_of(messages)}
    _end_what_others_left(options, told, write, decided)
    if messages.count(None) > 1:
        # One of them failed by itself. The others are being killed just now, and may still begin to write.
        pause()
        _end_what_others_left(options, told, write, decided)


def _end_what_others_left(
    options: WriteOptions, told: TransactionOptions, write: str, decided: Collection[str]
) -> None:
    """Aborts what other attempts have left open, or readers would wait until it times out.

    Spark does not tell that there were any: a second attempt that was slower than the first shows in no message.
    """
    door = _door(options, "they end when they time out")
    try:
        # Coordinators hear of a decision a little later: what is decided here may still be told as open.
        found = [
            each
            for each in door.ask("GET", _OPEN).get("transactions", ())
            if _is_of(each, told, write) and each["transactional_id"] not in decided
        ]
        names = OpenTransaction.__slots__
        _abort(door, [{name: each[name] for name in names} for each in found])
    except TieredError as error:
        log.warning("transactions of attempts that Spark passed over stay open for a while: %s", error)


def _is_of(row: dict[str, Any], told: TransactionOptions, write: str) -> bool:
    return str(row["transactional_id"]).startswith(f"{told.prefix}-{write}-")


def abort(options: WriteOptions, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Aborts the transactions of the tasks that had ended, as far as they are open.

    Where that fails they time out, and it is no error.
    """
    transactions = _transactions_of(messages)
    if not transactions:
        return
    try:
        _abort(_door(options, "they end when they time out"), [asdict(each) for each in transactions])
    except TieredError as error:
        log.warning("not all of %d transactions of a write that failed were aborted: %s", len(transactions), error)


def _abort(door: BrokersHttp, transactions: Sequence[dict[str, Any]]) -> None:
    """In as many requests as it takes. Raises what `ask` does, and then asks for no more."""
    for start in range(0, len(transactions), ABORTED_TOGETHER):
        door.ask("POST", _ABORTS, {"transactions": transactions[start : start + ABORTED_TOGETHER]})


def _transactions_of(messages: Sequence[WriterCommitMessage | None]) -> list[OpenTransaction]:
    written = [each for each in messages if isinstance(each, WrittenRecords)]
    return [each.transaction for each in written if each.transaction is not None]


def _door(options: WriteOptions, otherwise: str) -> BrokersHttp:
    assert options.transactions is not None, "without transactions nobody asks"
    return BrokersHttp(options.transactions.catalog, options.client.security, otherwise=otherwise)
