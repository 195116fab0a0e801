"""The look at the store before a start: what only a person can put right ends it, and a store that is away does not."""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.unit.broker.context import surroundings
from tiered.broker.tiering import store_look
from tiered.cold.local import LocalStore
from tiered.cold.object_store import parse_store_url
from tiered.errors import InvalidConfig, StoreRefused, StoreTrouble, StoreUnavailable
from tiered.meta.engine import Database


async def look(folder: Path, answers: Callable[[], object]) -> None:
    """At a local store that first does what `answers` does."""

    class AnsweringStore(LocalStore):
        def list(self, prefix: str, *, start_after: str | None = None, limit: int = 1000) -> list[tuple[str, int]]:
            answers()
            return super().list(prefix, start_after=start_after, limit=limit)

    def store_at(url: str) -> LocalStore:
        return AnsweringStore(parse_store_url(url).directory)  # type: ignore[union-attr]

    async with surroundings(folder, Database, store_at) as made:
        await store_look.look_at_store(made.context.store, made.context.uploads)


def raising(error: Exception) -> Callable[[], object]:
    def answers() -> object:
        raise error

    return answers


@pytest.mark.parametrize("error", [StoreRefused("no such bucket"), InvalidConfig("no region")], ids=str)
async def test_what_only_a_person_can_put_right_ends_the_start(tmp_path: Path, error: Exception) -> None:
    with pytest.raises(type(error), match=str(error)):
        await look(tmp_path, raising(error))


async def test_a_store_that_is_away_or_silent_is_told_of_and_waited_for_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with caplog.at_level(logging.WARNING, store_look.__name__):
        await look(tmp_path / "answers", lambda: None)
        assert not caplog.messages
        await look(tmp_path / "away", raising(StoreUnavailable("connection refused")))
        await look(tmp_path / "full", raising(StoreRefused("no room left", StoreTrouble.FULL)))
        monkeypatch.setattr(store_look, "LOOK_MS", 10.0)
        answered = threading.Event()
        try:
            timer = threading.Timer(0.2, answered.set)
            timer.start()
            await look(tmp_path / "silent", lambda: answered.wait(20))
        finally:
            answered.set()
            timer.cancel()
    assert [message.partition(": ")[2].replace(str(tmp_path), "") for message in caplog.messages] == [
        "connection refused",
        "no room left",
        "file:///silent/objects did not answer in 0.01 s",
    ]
