"""Objects of topics that SQL has not: the controller tells of them, and leaves them."""

from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import Tiers, tiers
from tiered.broker.reconcile import unknown_topics
from tiered.broker.reconcile.bucket import RequestBudget
from tiered.broker.reconcile.findings import Findings
from tiered.broker.reconcile.unknown_topics import UnknownTopicObjects, is_of_unknown_topic
from tiered.formats import object_key
from tiered.runtime import new_uuid


def of_nobody(made: Tiers, *, count: int) -> list[str]:
    """Objects in the store, all of one partition of a topic that was never created."""
    topic_id = new_uuid()
    keys = [object_key.segment_key("ghosts", topic_id, 3, at, at + 1, 0, new_uuid()) for at in range(count)]
    for key in keys:
        made.context.store.put(key, b"four")
    return keys


async def test_the_controller_tells_of_each_unknown_partition_once_and_removes_nothing(tmp_path: Path) -> None:
    async with tiers(tmp_path, tiered_reconcile_period_ms="3600000") as made:
        findings = Findings()
        unknown = UnknownTopicObjects(
            context=made.context, topics=made.topics, pool=made.context.uploads, findings=findings
        )
        await made.upload_all()
        keys = of_nobody(made, count=3)
        made.context.state.is_controller = False
        await unknown.round(RequestBudget(100))
        assert (findings.all(), unknown.turns) == ([], 0)
        made.context.state.is_controller = True
        await unknown.round(RequestBudget(100))
        (told,) = findings.all()
        assert is_of_unknown_topic(told)
        assert (told.topic, told.partition) == ("ghosts", 3)
        assert "3 objects, 12 bytes" in told.message
        assert all(made.context.store.head(key) for key in keys)
        for key in keys:
            made.context.store.delete(key)
        await unknown.round(RequestBudget(100))
        assert findings.all() == [told], "the next turn is not due"
        made.clock.waited_ms += 3_600_000
        await unknown.round(RequestBudget(100))
        assert findings.all() == []


async def test_a_turn_goes_on_over_rounds_of_few_requests_and_tells_at_its_end(tmp_path: Path) -> None:
    async with tiers(tmp_path) as made:
        findings = Findings()
        unknown = UnknownTopicObjects(
            context=made.context, topics=made.topics, pool=made.context.uploads, findings=findings
        )
        for _ in range(3):
            of_nobody(made, count=1)
        made.context.state.is_controller = True
        ended = []
        for _ in range(3):
            await unknown.round(RequestBudget(2))
            ended.append((unknown.turns, len(findings)))
        assert ended == [(0, 0), (0, 0), (1, 3)]


async def test_one_request_lists_many_partitions_and_the_next_goes_on_behind_a_known_one_at_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unknown_topics, "PAGE", 4)
    async with tiers(tmp_path, partition_count=3) as made:
        findings, counters = Findings(), made.context.counters
        unknown = UnknownTopicObjects(
            context=made.context, topics=made.topics, pool=made.context.uploads, findings=findings
        )
        made.context.state.is_controller = True
        for partition in made.partitions:
            await made.lifecycle.upload(partition, 0)
        await unknown.round(RequestBudget(100))
        assert (unknown.turns, counters.reconcile_requests) == (1, 1)
        await made.upload_all()  # The first partition has five objects, the others have one.
        monkeypatch.setattr(unknown_topics, "PAGE", 2)
        made.clock.waited_ms += made.context.settings.reconcile.tiered_reconcile_period_ms
        await unknown.round(RequestBudget(100))
        assert unknown.turns == 2
        assert counters.reconcile_requests - 1 == 3, "seven objects, and what fills the first page has more"
        assert findings.all() == []
