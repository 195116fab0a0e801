"""Two URLs are one store when what is written by the one is found by the other."""

from pathlib import Path

import pytest

from tiered.cold.object_store import parse_store_url
from tiered.cold.opening import is_same_store, store_identity
from tiered.errors import InvalidConfig


@pytest.mark.parametrize(
    "same",
    [
        "s3://bucket/logs/",
        "s3://bucket/logs?region=eu-central-1",
        "s3://bucket/logs?endpoint_url=http://127.0.0.1:9000&path_style=false&checksum=none",
    ],
)
def test_how_a_bucket_is_reached_is_no_part_of_which_one_it_is(same: str) -> None:
    assert store_identity(same) == store_identity("s3://bucket/logs") == "s3://bucket/logs"


@pytest.mark.parametrize("other", ["s3://bucket/logs/2", "s3://bucket/log", "s3://bucket", "s3://bucket2/logs"])
def test_another_bucket_or_prefix_is_another_store(other: str) -> None:
    assert not is_same_store(store_identity(other), store_identity("s3://bucket/logs"))


def test_a_bucket_without_a_prefix_is_known_by_its_name_alone() -> None:
    assert store_identity("s3://bucket/") == store_identity("s3://bucket") == "s3://bucket"


def test_a_folder_is_known_by_its_absolute_path_behind_all_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    wanted = (tmp_path / "real").resolve().as_uri()
    assert store_identity(f"file://{tmp_path}/real") == wanted
    assert store_identity(f"file://{tmp_path}/link") == wanted
    assert store_identity("file:link/../real") == wanted
    assert not is_same_store(store_identity(f"file://{tmp_path}/other"), wanted)


def test_a_store_within_the_data_folder_is_the_same_wherever_that_is_moved(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    moved = [store_identity(f"file://{each}/ob%20jects", data_dir=each) for each in (before, after)]
    assert moved[0].endswith("/before/./ob%20jects")
    assert is_same_store(*moved)
    assert not is_same_store(moved[0], store_identity(f"file://{after}/others", data_dir=after))


def test_a_store_within_the_data_folder_is_the_same_for_who_has_another_data_folder_or_none(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/data/objects"
    own = store_identity(url, data_dir=tmp_path / "data")
    assert is_same_store(own, store_identity(url))
    assert is_same_store(store_identity(url, data_dir=tmp_path / "other"), own)
    # A store that was forgotten is the one within the data folder, which is not that of others by its name alone.
    forgotten = store_identity(f"file://{tmp_path}/other/objects", data_dir=tmp_path / "other")
    assert not is_same_store(forgotten, store_identity(f"file://{tmp_path}/shared/objects"))
    assert not is_same_store(forgotten, "s3://bucket/objects")


def test_a_store_beside_the_data_folder_is_not_within(tmp_path: Path) -> None:
    beside = store_identity(f"file://{tmp_path}/data-2", data_dir=tmp_path / "data")
    assert beside == (tmp_path / "data-2").resolve().as_uri()
    assert (
        store_identity(f"file://{tmp_path}/data", data_dir=tmp_path / "data") == (tmp_path / "data").resolve().as_uri()
    )


def test_an_identity_can_stand_between_single_quotes() -> None:
    assert "'" not in store_identity("file:///o'brien/o'x", data_dir=Path("/o'brien"))
    assert "'" not in store_identity("file:///o'brien/x")


def test_a_folder_in_place_of_a_url_is_answered_with_the_url_of_that_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in (f"{tmp_path}/data", "data"):
        with pytest.raises(InvalidConfig, match=f"is no URL; write {(tmp_path / 'data').as_uri()} for that folder"):
            parse_store_url(text)
