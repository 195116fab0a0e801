"""A cluster is alive as long as its brokers' signs are young, by the store's own clock."""

import os
from dataclasses import replace
from pathlib import Path

from tiered.cold.bucket import signs_of_life
from tiered.cold.bucket.signs_of_life import ALIVE_MS, live_brokers
from tiered.cold.local import LocalStore
from tiered.cold.object_store import ObjectInfo


def test_a_broker_lives_until_its_sign_is_old_or_taken_back(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    for broker_id in (10, 2, 3):
        signs_of_life.leave(store, "ours", broker_id)
    signs_of_life.leave(store, "another", 4)
    store.put("checkpoints/alive/ours/strange", b"")
    assert live_brokers(store, "ours") == (2, 3, 10)
    signs_of_life.remove(store, "ours", 3)
    sign = tmp_path / "checkpoints/alive/ours/10"
    old_s = sign.stat().st_mtime - ALIVE_MS / 1000
    os.utime(sign, (old_s, old_s))
    assert live_brokers(store, "ours") == (2,)
    signs_of_life.leave(store, "ours", 10)
    assert live_brokers(store, "ours") == (2, 10)


def test_where_a_store_tells_no_age_a_sign_counts(tmp_path: Path) -> None:
    class Ageless(LocalStore):
        def head(self, key: str) -> ObjectInfo | None:
            info = super().head(key)
            return None if info is None else replace(info, age_ms=None)

    store = Ageless(tmp_path)
    signs_of_life.leave(store, "ours", 1)
    assert live_brokers(store, "ours") == (1,)
