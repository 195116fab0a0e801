"""A refused start takes back the folder that it made, and nothing that anybody may miss."""

from pathlib import Path

import pytest

from tiered.broker.host.data_folder import OWNER_FILE, DataFolder
from tiered.broker.host.disk_reserve import DiskReserve
from tiered.errors import InvalidConfig
from tiered.ids import KeptDisk


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


def test_a_kept_folder_is_taken_by_its_broker_alone_and_as_it_was_reported(tmp_path: Path) -> None:
    """With another one's log it would lead, and have the others cut off what they have more."""
    kept = [KeptDisk(1, "old", 7), KeptDisk(2, "old", 8)]
    folder = DataFolder(tmp_path)
    with pytest.raises(InvalidConfig, match="is not that disk"):
        folder.require_own("new", 2, kept=kept, broker_epoch=8)  # An empty one.
    folder.become_owned("old", 1)
    folder.require_own("new", 1, kept=kept, broker_epoch=7)
    for broker_id in (2, 3):
        with pytest.raises(InvalidConfig):
            folder.require_own("new", broker_id, kept=kept, broker_epoch=7)
    for broker_epoch in (None, 8):
        with pytest.raises(InvalidConfig, match="was started since"):
            folder.require_own("new", 1, kept=kept, broker_epoch=broker_epoch)
    folder.become_owned("new", 1)
    folder.require_own("new", 1, kept=kept, broker_epoch=9)
    folder.release()


def test_a_link_in_the_place_of_the_lock_or_of_a_note_leaves_what_it_leads_to_as_it_is(tmp_path: Path) -> None:
    other, root = tmp_path / "other", tmp_path / "data"
    other.write_text("of somebody else")
    root.mkdir()
    (root / "lock").symlink_to(other)
    with pytest.raises(InvalidConfig, match="lock"):
        DataFolder(root)
    (root / "lock").unlink()
    (root / f"{OWNER_FILE}.tmp").symlink_to(other)
    (root / "owner.tmp").symlink_to(other)
    (root / "reserve").symlink_to(tmp_path / "made")
    folder = DataFolder(root)
    folder.become_owned("cluster", 1)
    DiskReserve(folder).look()
    folder.release()
    assert other.read_text() == "of somebody else"
    assert not (tmp_path / "made").exists()
    assert not (root / OWNER_FILE).is_symlink()


@pytest.mark.parametrize("mode", [0o755, 0o777])
def test_a_folder_that_every_user_can_write_to_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    tmp_path.chmod(mode)
    DataFolder(tmp_path).release()
    assert ("every user of this machine can write to" in caplog.text) == (mode == 0o777)
