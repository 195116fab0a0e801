"""`spark/jobs/verify.py`: finds what `tiered verify` finds, calls it the same, and ends with the same exit codes."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from jobs import verify as job
from tests.unit.cold.verified_store import VerifiedStore, make_store
from tiered.cli import main
from tiered.cold.verify.scope import find_scope
from tiered.formats.segment_check import ExpectedSegment

pytestmark = pytest.mark.spark


@pytest.fixture
def store(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "objects", tmp_path / "logs", segments=6)


def test_a_whole_store_is_whole_and_all_of_it_was_read(
    spark: SparkSession, store: VerifiedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.main([store.store.url]) == 0
    shown = capsys.readouterr().out
    assert main(["verify", store.store.url]) == 0
    assert shown == capsys.readouterr().out
    assert shown.startswith("checked 6 of 6 segments in 1 partition: ")


def test_whatever_is_wrong_has_the_same_name_as_without_spark(
    spark: SparkSession, store: VerifiedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    store.flip(0, store.tail(0).chunks[2].position + 100)
    with store.path(1).open("r+b") as file:
        file.truncate(5_000)
    third, fourth = store.path(2).read_bytes(), store.path(3).read_bytes()
    store.path(2).write_bytes(fourth)
    store.path(3).write_bytes(third)
    store.path(5).unlink()
    assert job.main([store.store.url, "--json", "--orphans"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert [each["kind"] for each in found["problems"]] == ["chunk", "truncated", "swapped", "swapped", "missing"]
    assert [each["object_key"] for each in found["problems"]] == [store.rows[at].object_key for at in (0, 1, 2, 3, 5)]
    assert main(["verify", store.store.url, "--json", "--orphans"]) == 1
    assert found == json.loads(capsys.readouterr().out)


def test_a_gap_between_two_waves_is_found(spark: SparkSession, store: VerifiedStore) -> None:
    store.write_head([row for index, row in enumerate(store.rows) if index != 3])
    state = job.SpreadVerifier(spark, store.store.url, wave_segments=3).run()
    assert (state.problems[0].fault.kind, state.problems[0].fault.first_offset) == ("offsets", 720)
    assert state.checked_segments == 5


def test_what_cannot_be_meant_is_told_before_spark_does_anything(
    tmp_path: Path, spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    assert job.main([f"file://{tmp_path}/nothing"]) == 2
    assert capsys.readouterr().err.startswith("verify.py: there is no checkpoint in ")
    with pytest.raises(SystemExit) as ended:
        job.main([])
    assert ended.value.code == 2
    with pytest.raises(SystemExit) as helped:
        job.main(["--help"])
    assert helped.value.code == 0
    assert "Exit code 0 when all of it is whole" in " ".join(capsys.readouterr().out.split())


def test_tasks_are_neighbours_and_keep_every_core_busy(store: VerifiedStore) -> None:
    scope = find_scope(store.store, None)
    places = [
        ExpectedSegment(
            cluster_ids=frozenset(), topic="orders", topic_id=scope.partitions[0].topic_id, partition=3, segment=row
        )
        for row in store.rows * 4
    ]
    for cores, tasks_at_least in ((1, 4), (2, 8), (100, 24)):
        tasks = list(job.tasks_of(places, cores=cores))
        assert [index for task in tasks for index, _ in task] == list(range(24))
        assert len(tasks) >= tasks_at_least
