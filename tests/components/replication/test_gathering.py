"""Followers that ask again a moment after an answer: what came meanwhile goes out together, and nothing else waits."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.components.replication.brokers import Cluster, cluster, produce
from tiered.ids import InSyncReplica
from tiered.server.kafka.dispatch import Context, RawRequest
from tiered.server.kafka.fetch import followers as follower_fetch
from tiered.server.kafka.fetch.followers import GATHER_MS
from tiered.server.kafka.transport.requests import DelayedAnswer
from tiered.wire.fetch import FetchPartition, FetchRequest, FetchTopic

MAX_WAIT_MS = 400


class Follower:
    """Asks the leader of t-0 as a follower would, on one connection."""

    def __init__(self, made: Cluster, broker: Any) -> None:
        self.connection = SimpleNamespace(gathers_until_ms=0.0)
        self._broker = broker
        self._partition = broker.topics.by_name("t").partition(0)
        other = next(member for member in self._partition.row.isr if member.broker_id != broker.broker_id)
        self._me: InSyncReplica = other
        self._shown = made.brokers[other.broker_id].registration.incarnation_id

    def ask(self, offset: int, *, epoch: int | None = None) -> Any:
        partition = self._partition
        claimed = partition.leader_epoch if epoch is None else epoch
        asked = FetchPartition(0, claimed, offset, claimed if offset else -1, 0, 1 << 20)
        topic = FetchTopic(None, partition.topic_partition.topic_id, [asked])
        request = FetchRequest(
            self._me.broker_id, self._me.broker_epoch, MAX_WAIT_MS, 1, 1 << 20, 0, 0, -1, [topic],
            replica_incarnation=self._shown,
        )  # fmt: skip
        context = Context(self._broker, self.connection, 18, "follower")  # type: ignore[arg-type]
        return follower_fetch.handle(RawRequest(context, memoryview(b""), 0, 0, 1), request)


async def test_what_comes_right_after_an_answer_goes_out_together_a_moment_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower_fetch, "GATHER_MS", 60_000.0)
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        follower = Follower(made, await made.leader("t"))
        assert isinstance(follower.ask(0), list)
        await produce(made, "t", "b")
        waiting = follower.ask(1)
        assert isinstance(waiting, DelayedAnswer)
        assert waiting.patience_ms <= MAX_WAIT_MS
        calls: list[str] = []
        waiting.begin(lambda: calls.append("called"))
        await produce(made, "t", "c")
        assert calls == []
        sent = waiting.answer(is_last=True)
        assert isinstance(sent, list)
        both = b"".join(bytes(part) for part in sent if isinstance(part, (bytes, bytearray)))
        assert both.count(b"b") >= 1
        assert both.count(b"c") >= 1


async def test_errors_and_much_to_send_go_out_at_once_and_nothing_to_send_waits_for_the_next_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        follower = Follower(made, await made.leader("t"))
        follower.connection.gathers_until_ms = float("inf")
        assert isinstance(follower.ask(0, epoch=99), list)
        parked = follower.ask(1)
        assert isinstance(parked, DelayedAnswer)
        calls: list[str] = []
        parked.begin(lambda: calls.append("called"))
        await produce(made, "t", "b")
        assert calls == ["called"]
        parked.cancel()
        monkeypatch.setattr(follower_fetch, "GATHER_BYTES", 1)
        follower.connection.gathers_until_ms = float("inf")
        assert isinstance(follower.ask(1), list)


async def test_a_follower_that_asks_after_a_while_is_answered_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        await made.create("t")
        await produce(made, "t", "a")
        leader = await made.leader("t")
        follower = Follower(made, leader)
        assert isinstance(follower.ask(0), list)
        left_ms = follower.connection.gathers_until_ms - leader.clock.monotonic_ms()
        assert left_ms <= GATHER_MS
        follower.connection.gathers_until_ms = leader.clock.monotonic_ms()
        assert isinstance(follower.ask(0), list)
