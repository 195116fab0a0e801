"""The view of the cluster is counted in turns, and once for each change."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.counted_turns import counted_turns
from tests.unit.broker.tiering.tiers import tiers
from tiered.server.http.metrics import cluster_view
from tiered.server.http.metrics.cluster_view import ClusterView, ClusterViews, view_of


async def test_others_are_served_while_the_partitions_of_the_cluster_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path, partition_count=20) as made:
        monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
        broker: Any = SimpleNamespace(image=made.image, topics=made.topics, broker_id=made.context.broker_id)
        turns, view = await counted_turns(view_of(broker))
        assert (view.partitions, view.led_here, turns >= 20) == (20, 20, True)


async def test_whoever_comes_while_a_view_is_made_gets_the_same_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with tiers(tmp_path) as made:
        broker: Any = SimpleNamespace(
            image=made.image, topics=made.topics, broker_id=made.context.broker_id, settings=made.context.settings
        )
        counted = 0

        async def counted_view(broker: Any) -> ClusterView:
            nonlocal counted
            counted += 1
            return await view_of(broker)

        monkeypatch.setattr("tiered.runtime.TURN_MS", -1.0)
        monkeypatch.setattr(cluster_view, "view_of", counted_view)
        views = ClusterViews()
        first, second = await asyncio.gather(views.of(broker), views.of(broker))
        assert first is second
        made.image.change_number += 1
        assert await views.of(broker) is not first
        assert counted == 2
