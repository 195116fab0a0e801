"""What a broker has seen of the metadata store outlives its process; a file that is no such note is not believed."""

import json
import logging
from pathlib import Path

import pytest

from tests.unit.broker.context import surroundings
from tiered.broker.control.seen_changes import SEEN_FILE, SeenChanges
from tiered.meta import cluster


def never(reason: str) -> None:
    raise AssertionError(reason)


async def test_the_next_process_knows_what_this_one_saw(tmp_path: Path) -> None:
    async with surroundings(tmp_path) as made:
        seen = SeenChanges(context=made.context, went_back=never)
        await seen.begin()
        number = await made.context.database.run(cluster.take_number)
        await seen.note()
        following = SeenChanges(context=made.context, went_back=never)
        await following.begin()
        history = made.context.database.history
        assert history is not None
        assert history.seen is not None
        assert history.seen.change_number == number
        await made.context.database.run(cluster.take_number)
        assert history.seen.start == 1, "it is the same process that has SQLite's file open"


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", json.dumps({"version": 1, "start": "one"}).encode(), b"\xff" * 10_000]
)
async def test_a_damaged_note_is_none_and_is_said(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with surroundings(tmp_path) as made:
        (made.context.data.root / SEEN_FILE).write_bytes(content)
        with caplog.at_level(logging.WARNING):
            await SeenChanges(context=made.context, went_back=never).begin()
        assert "seen.json is damaged" in caplog.text
        assert made.context.database.history is not None
        assert made.context.database.history.seen is None
