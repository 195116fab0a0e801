"""The simulated bucket refuses, loses answers, and never half an object."""

from random import Random

import pytest

from tests.simulation.loop import Process, SimLoop
from tests.simulation.network import STORE, Network
from tests.simulation.store import Bucket, ProcessStore
from tiered.errors import LostRace, ObjectExists, ObjectMissing, StoreUnavailable


@pytest.fixture
def store(loop: SimLoop) -> ProcessStore:
    return ProcessStore(Bucket(), Network(loop, Random(1)), "b1", Process(loop, "b1"), Random(2))


def test_conditions_are_kept(store: ProcessStore) -> None:
    first = store.put("a/b", b"1", create_only=True)
    with pytest.raises(ObjectExists):
        store.put("a/b", b"2", create_only=True)
    store.put("a/b", b"22", if_match=first.etag)
    with pytest.raises(LostRace):
        store.put("a/b", b"3", if_match=first.etag)
    assert store.get("a/b", max_bytes=10)[0] == b"22"
    assert store.list("a/") == [("a/b", 2)]
    store.delete("a/b")
    with pytest.raises(ObjectMissing):
        store.get("a/b", max_bytes=10)


def test_a_lost_answer_had_its_effect_and_a_cut_request_had_none(store: ProcessStore) -> None:
    store._network.cut(STORE, "b1")
    with pytest.raises(StoreUnavailable):
        store.put("a", b"1")
    store._network.heal()
    assert store.head("a") is not None
    store._network.cut("b1", STORE)
    with pytest.raises(StoreUnavailable):
        store.put("b", b"1")
    store._network.heal()
    assert store.head("b") is None
