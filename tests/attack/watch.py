"""What the others notice: a producer, a group that commits, transactions, one after the other at a steady pace.

Owns their connections and what their requests took. They come from `127.0.0.1`, and may do everything.
"""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Self

from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tiered.wire import messages

TOPIC, GROUP = "watched", "watched"
COMMIT, INIT, ADD, END = 8, 22, 24, 26
CONCURRENT_TRANSACTIONS = 51


@dataclass(slots=True)
class Took:
    """Milliseconds of each request, by kind."""

    produce: list[float] = field(default_factory=list)
    commit: list[float] = field(default_factory=list)
    transaction: list[float] = field(default_factory=list)


def at(values: list[float], share: float) -> float:
    """The smallest value that so large a share does not exceed; infinite where nothing was answered."""
    return sorted(values)[max(0, math.ceil(len(values) * share) - 1)] if values else float("inf")


class Watch:
    """Goes on from `with` to its end; `took` is what was measured since it was set."""

    def __init__(self, port: int) -> None:
        self.kafka_port = port
        self.took = Took()
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self.errors: list[str] = []

    def __enter__(self) -> Self:
        for pace_s, each in ((0.01, self._produce), (0.02, self._commit), (0.05, self._transact)):
            self._threads.append(threading.Thread(target=self._for_ever, args=(pace_s, each), daemon=True))
            self._threads[-1].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join(60)

    def _for_ever(self, pace_s: float, work: Callable[[RawConnection], Iterator[None]]) -> None:
        try:
            with RawConnection(self, timeout_s=120) as connection:
                steps = work(connection)
                due_s = time.monotonic()
                while not self._ended.is_set():
                    next(steps)
                    due_s = max(due_s + pace_s, time.monotonic() - pace_s)
                    time.sleep(max(0.0, due_s - time.monotonic()))
        except Exception as error:
            self.errors.append(f"{work.__name__}: {error!r}")

    @contextmanager
    def _timed(self, kind: str) -> Iterator[None]:
        took, started_s = self.took, time.monotonic()
        yield
        getattr(took, kind).append((time.monotonic() - started_s) * 1000.0)

    def _produce(self, connection: RawConnection) -> Iterator[None]:
        data = bytes(batch())
        while True:
            with self._timed("produce"):
                assert connection.produce(TOPIC, data, acks=-1).error_code == 0
            yield

    def _commit(self, connection: RawConnection) -> Iterator[None]:
        make = messages.request(COMMIT, 8)
        offset = 0
        while True:
            offset += 1
            partition = make.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=offset, committed_leader_epoch=-1, committed_metadata=""
            )
            request = make.OffsetCommitRequest(
                group_id=GROUP, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None,
                topics=[make.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])],
            )  # fmt: skip
            with self._timed("commit"):
                (answered,) = connection.ask(COMMIT, 8, request).topics
                assert int(answered.partitions[0].error_code) == 0
            yield

    def _transact(self, connection: RawConnection) -> Iterator[None]:
        init = messages.request(INIT, 4).InitProducerIdRequest(
            transactional_id=GROUP, transaction_timeout=60_000, producer_id=-1, producer_epoch=-1
        )
        who = connection.ask(INIT, 4, init)
        assert int(who.error_code) == 0
        add, end = messages.request(ADD, 3), messages.request(END, 3)
        begun = add.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=GROUP,
            v3_and_below_producer_id=who.producer_id,
            v3_and_below_producer_epoch=who.producer_epoch,
            v3_and_below_topics=[add.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
        )
        ended = end.EndTxnRequest(
            transactional_id=GROUP, producer_id=who.producer_id, producer_epoch=who.producer_epoch, committed=True
        )
        while True:
            with self._timed("transaction"):
                code = CONCURRENT_TRANSACTIONS
                while code == CONCURRENT_TRANSACTIONS:  # The last one is still being ended.
                    time.sleep(0.001)
                    (topic,) = connection.ask(ADD, 3, begun).results_by_topic_v3_and_below
                    code = int(topic.results_by_partition[0].partition_error_code)
                assert code == 0
                assert int(connection.ask(END, 3, ended).error_code) == 0
            yield
