"""A patient store waits for one that has answered before, a bounded number of times, and writes nothing."""

import threading
from pathlib import Path

import pytest

from tiered.cold.local import LocalStore
from tiered.cold.read_only_store import ATTEMPTS, PatientStore
from tiered.errors import ObjectMissing, ShuttingDown, StoreUnavailable


class Away(LocalStore):
    """Away for the next `failures` reads."""

    failures = 0
    reads = 0

    def get_range(self, key: str, start: int, length: int) -> bytes:
        self.reads += 1
        if self.failures > 0:
            self.failures -= 1
            raise StoreUnavailable("away; try again later")
        return super().get_range(key, start, length)


@pytest.fixture
def away(tmp_path: Path) -> Away:
    store = Away(tmp_path)
    store.put("key", b"0123456789")
    return store


def test_an_outage_after_the_first_answer_is_waited_out(away: Away) -> None:
    store = PatientStore(away, first_backoff_ms=1)
    assert store.list("") == [("key", 10)]
    away.failures = ATTEMPTS - 1
    assert store.get_range("key", 2, 3) == b"234"
    away.failures = ATTEMPTS
    with pytest.raises(StoreUnavailable, match="away"):
        store.get_range("key", 2, 3)
    assert away.reads == 2 * ATTEMPTS


def test_a_store_that_never_answered_is_asked_once(away: Away) -> None:
    away.failures = 1
    with pytest.raises(StoreUnavailable):
        PatientStore(away, first_backoff_ms=1).get_range("key", 2, 3)
    assert away.reads == 1


def test_an_answer_that_something_is_missing_is_an_answer(away: Away) -> None:
    store = PatientStore(away, first_backoff_ms=1)
    with pytest.raises(ObjectMissing):
        store.get("other", max_bytes=10)
    assert store.head("other") is None
    assert store.get("key", max_bytes=10)[0] == b"0123456789"


def test_a_stop_ends_the_wait(away: Away) -> None:
    store = PatientStore(away, first_backoff_ms=1_000_000)
    store.head("key")
    away.failures = 1_000
    stopping = threading.Timer(0.05, store.close)
    stopping.start()
    with pytest.raises(ShuttingDown, match="run it again to go on"):
        store.get_range("key", 2, 3)
    stopping.join()
    with pytest.raises(ShuttingDown):
        store.head("key")


def test_nothing_is_written_through_it(away: Away) -> None:
    store = PatientStore(away)
    for write in (
        lambda: store.put("key", b""),
        lambda: store.put_segment("key", 0, 0, b""),
        lambda: store.delete("key"),
        lambda: store.abort_abandoned_uploads("", started_before_ms=0),
        store.probe,
    ):
        with pytest.raises(AssertionError):
            write()
    assert away.list("") == [("key", 10)]
