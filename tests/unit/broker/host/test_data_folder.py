"""A refused start takes back the folder that it made, and nothing that anybody may miss."""

from pathlib import Path

import pytest

from tiered.broker.host.data_folder import OWNER_FILE, DataFolder
from tiered.errors import InvalidConfig


def test_a_new_folder_goes_with_all_that_a_start_makes_before_it_serves(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path / "new" / "data")
    folder.cache.mkdir()
    for name in ("reserve", "meta.db", "meta.db-wal"):
        (folder.root / name).touch()
    folder.remove_if_new()
    folder.release()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["owner.json", "incarnations.json", "cache/chunk", "log/topic", "of somebody else"])
def test_a_new_folder_with_anything_else_in_it_stays(tmp_path: Path, name: str) -> None:
    folder = DataFolder(tmp_path / "data")
    folder.cache.mkdir()
    (folder.root / name).touch()
    folder.remove_if_new()
    folder.release()
    assert (folder.root / name).exists()


def test_a_folder_that_was_there_stays(tmp_path: Path) -> None:
    folder = DataFolder(tmp_path)
    folder.remove_if_new()
    folder.release()
    assert folder.log_root.is_dir()


@pytest.mark.parametrize("text", ["", "null", "[]", '"cluster"', "{"])
def test_a_start_with_a_damaged_note_of_the_owner_says_what_to_do(tmp_path: Path, text: str) -> None:
    folder = DataFolder(tmp_path)
    (tmp_path / OWNER_FILE).write_text(text)
    with pytest.raises(InvalidConfig, match=r"owner\.json is damaged: put it back"):
        folder.require_own("cluster", 1)
    folder.release()
