"""Samples of chunks: every chunk belongs to some seed, and about to as many as the fraction says."""

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from tiered.rules.segments.sampling import ChunkSample

IDS = st.uuids()


@given(object_id=IDS, chunk=st.integers(0, 2**40), parts=st.integers(1, 50))
def test_every_chunk_belongs_to_one_of_the_seeds(object_id: UUID, chunk: int, parts: int) -> None:
    takers = [seed for seed in range(parts) if ChunkSample(fraction=1 / parts, seed=seed).has(object_id, chunk)]
    assert len(takers) == 1 or (len(takers) == 2 and parts > 1), "a hair of overlap at most, and nothing left out"


@given(object_id=IDS, seed=st.integers(0, 2**31 - 1))
def test_a_whole_sample_has_everything(object_id: UUID, seed: int) -> None:
    assert ChunkSample(fraction=1.0, seed=seed).has(object_id, 3)


def test_a_sample_is_about_as_large_as_asked_for() -> None:
    taken = sum(
        ChunkSample(fraction=0.2, seed=4).has(UUID(int=number), chunk) for number in range(100) for chunk in range(100)
    )
    assert 1_800 < taken < 2_200
