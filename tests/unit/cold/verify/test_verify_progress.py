"""Runs that read a part: what a sample takes, what a progress file spares, what a listing tells besides."""

from pathlib import Path
from uuid import uuid4

import pytest

from tests.unit.cold.stored_segments import PARTITION, TOPIC, TOPIC_ID
from tests.unit.cold.verified_store import RECORDS, VerifiedStore, make_store
from tiered.cold.verify.progress import ProgressFile
from tiered.errors import InvalidConfig
from tiered.formats import object_key
from tiered.rules.segments.sampling import ChunkSample

EVERYTHING = ChunkSample()


@pytest.fixture
def whole(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "objects", tmp_path / "logs")


def progress_file(path: Path, whole: VerifiedStore, sample: ChunkSample = EVERYTHING, now_ms: int = 5) -> ProgressFile:
    return ProgressFile(path, store_url=whole.store.url, sample=sample, now_ms=now_ms)


# Samples


def test_a_tenth_of_each_of_ten_seeds_is_everything(whole: VerifiedStore) -> None:
    chunks = sum(len(whole.tail(index).chunks) for index in range(3))
    states = [whole.verify(sample=ChunkSample(fraction=0.1, seed=seed)) for seed in range(10)]
    assert chunks <= sum(state.checked_chunks for state in states) < chunks + 10, "nine repeat a chunk at the most"
    assert all(state.checked_chunks >= 1 for state in states), "of each partition one is read, however few are meant"
    assert all(state.checked_bytes + state.unread_bytes == state.log_bytes for state in states)
    assert all(state.checked_segments == 3 for state in states), "tails and the chain are always read"


def test_the_same_seed_finds_the_same(whole: VerifiedStore) -> None:
    for index in range(3):
        for row in whole.tail(index).chunks:
            whole.flip(index, row.position + 200)
    samples = [ChunkSample(fraction=0.1, seed=seed) for seed in range(10)]
    found = [whole.verify(sample=sample).problems for sample in samples]
    assert [whole.verify(sample=sample).problems for sample in samples] == found
    # Which chunk a seed takes depends on the object's name, which is another one each time.
    assert len({problem for each in found for problem in each}) == sum(
        len(whole.tail(index).chunks) for index in range(3)
    )


# Progress files


def test_a_second_run_reads_only_what_was_not_whole(tmp_path: Path, whole: VerifiedStore) -> None:
    whole.flip(1, 500)
    path = tmp_path / "progress"
    with progress_file(path, whole) as progress:
        assert whole.verify(progress=progress).problem_count == 1
    whole.flip(1, 500)
    with progress_file(path, whole, now_ms=9) as progress:
        assert (len(progress), progress.began_at_ms) == (2, 5)
        state = whole.verify(progress=progress)
    assert (state.is_whole, state.known_segments, state.checked_segments) == (True, 2, 1)


def test_an_object_that_was_replaced_is_read_again(tmp_path: Path, whole: VerifiedStore) -> None:
    path = tmp_path / "progress"
    with progress_file(path, whole) as progress:
        whole.verify(progress=progress)
    (tmp_path / "others").mkdir()
    make_store(whole.root, tmp_path / "others", store=whole.store)
    with progress_file(path, whole) as progress:
        assert whole.verify(progress=progress).known_segments == 0


def test_a_progress_file_that_was_cut_off_costs_a_segment_at_most(tmp_path: Path, whole: VerifiedStore) -> None:
    path = tmp_path / "progress"
    with progress_file(path, whole) as progress:
        whole.verify(progress=progress)
    path.write_bytes(path.read_bytes()[:-10])
    with progress_file(path, whole) as progress:
        assert whole.verify(progress=progress).known_segments == 2
    with progress_file(path, whole) as progress:
        assert len(progress) == 3
        progress.remove()
    assert not path.exists()


def test_a_progress_file_of_another_run_is_refused(tmp_path: Path, whole: VerifiedStore) -> None:
    path = tmp_path / "progress"
    progress_file(path, whole).__exit__(None, None, None)
    with pytest.raises(InvalidConfig, match=r"belongs to another run \(fraction 1\.0 and not 0\.5"):
        progress_file(path, whole, ChunkSample(fraction=0.5))
    with pytest.raises(InvalidConfig, match=r"store file:.* and not s3://other"):
        ProgressFile(path, store_url="s3://other", sample=EVERYTHING, now_ms=1)
    path.write_text("my diary\n")
    with pytest.raises(InvalidConfig, match="is no progress file of this version"):
        progress_file(path, whole)
    with pytest.raises(InvalidConfig, match="cannot use the progress file"):
        progress_file(tmp_path, whole)
    assert path.read_text() == "my diary\n"


# Orphans


def test_orphans_are_told_and_are_no_problem(whole: VerifiedStore) -> None:
    left = object_key.segment_key(TOPIC, TOPIC_ID, PARTITION, 5, 9, 1, uuid4())
    unknown = object_key.segment_key("gone", uuid4(), 0, 5, 9, 1, uuid4())
    whole.store.put(left, b"12345")
    whole.store.put(unknown, b"123")
    whole.store.put("segments/notes.txt", b"not ours")
    whole.write_head(log_start_offset=RECORDS)
    state = whole.verify(with_orphans=True)
    assert state.is_whole
    ours, gone = sorted(state.orphans, key=lambda each: each.objects, reverse=True)
    assert (ours.topic, ours.partition, ours.objects, ours.retired, ours.has_checkpoint) == (
        TOPIC,
        PARTITION,
        2,
        2,
        True,
    )
    assert ours.size_bytes == whole.rows[0].size_bytes + 5
    assert (gone.topic, gone.keys, gone.has_checkpoint) == ("gone", (unknown,), False)
    only_ours = whole.verify(with_orphans=True, topics=[TOPIC]).orphans
    assert [each.topic for each in only_ours] == [TOPIC]
    assert whole.verify().orphans == []
