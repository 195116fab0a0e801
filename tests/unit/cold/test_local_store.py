"""The folder of objects, when somebody else can write into it too."""

import os
from pathlib import Path

import pytest

from tiered.cold.local import LocalStore
from tiered.errors import CorruptObject


def test_a_pipe_in_the_place_of_an_object_keeps_no_reader_waiting(tmp_path: Path) -> None:
    store = LocalStore(tmp_path)
    store.put("a", b"xyz")
    (tmp_path / "a").unlink()
    os.mkfifo(tmp_path / "a")
    with pytest.raises(CorruptObject, match="is no file"):
        store.get("a", max_bytes=10)
    with pytest.raises(CorruptObject, match="is no file"):
        store.get_range("a", 0, 3)
    with pytest.raises(CorruptObject, match="is no file"):
        store.head("a")


def test_what_gives_bytes_without_end_is_no_object(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("/dev/zero")
    with pytest.raises(CorruptObject, match="is no file"):
        LocalStore(tmp_path).get_range("a", 0, 3)


def test_a_listing_looks_into_no_folder_beside_its_prefix_and_follows_no_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    for number in range(5):
        store.put(f"segments/{number}/orders/0/object", b"xyz")
    (tmp_path / "segments" / "6").symlink_to(tmp_path / "segments" / "1")
    listed: list[str] = []
    scandir = os.scandir

    def noted(path: str) -> object:
        listed.append(str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", noted)
    assert store.list("segments/3/orders/0/") == [("segments/3/orders/0/object", 3)]
    assert listed == [str(tmp_path / "segments/3/orders/0")]
    assert store.list("segments/6/orders/0/") == store.list("segments/7/") == []
