"""A broker's folders compared with its logs, and closed segments with what should be in the store by now."""

import asyncio
import errno
from pathlib import Path

import pytest

from tests.unit.broker.tiering.tiers import SEGMENTS, Tiers, tiers
from tiered.broker.reconcile.disk import DiskComparison
from tiered.broker.reconcile.findings import FindingKind, Findings
from tiered.hot.file_system import RealFileSystem
from tiered.runtime import new_uuid


def comparison(made: Tiers) -> tuple[DiskComparison, Findings]:
    findings = Findings()
    return DiskComparison(context=made.context, topics=made.topics, findings=findings), findings


async def test_files_that_no_log_uses_and_those_that_are_gone_are_told_and_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.broker.reconcile.disk.SECOND_LOOK_MS", 0)
    async with tiers(tmp_path) as made:
        disk, findings = comparison(made)
        log = made.partition.log
        await made.lifecycle.upload(made.partition, 0)
        unused = Path(log.directory) / f"{77:020}.log"
        unused.touch()
        for segment in log.segments[:2]:
            Path(segment.path).unlink()
        nobodys = made.context.data.log_root / str(new_uuid())
        nobodys.mkdir()
        while not disk.turns:
            await disk.round()
        told = {each.name: each for each in findings.all()}
        assert {name: each.kind for name, each in told.items()} == {
            str(unused): FindingKind.UNUSED_FILE,
            str(nobodys): FindingKind.UNUSED_FILE,
            log.segments[0].path: FindingKind.LACKING_FILE,
            log.segments[1].path: FindingKind.LACKING_FILE,
        }
        assert "in the object store" in told[log.segments[0].path].advice
        assert "another replica's disk" in told[log.segments[1].path].advice
        assert unused.exists()
        assert nobodys.exists()


async def test_what_a_second_look_does_not_see_is_not_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with tiers(tmp_path) as made:
        disk, findings = comparison(made)
        unused = Path(made.partition.log.directory) / f"{77:020}.log"
        unused.touch()
        looked_twice = False

        async def meanwhile(_seconds: float) -> None:
            nonlocal looked_twice
            looked_twice = True
            unused.unlink(missing_ok=True)

        with monkeypatch.context() as patch:
            patch.setattr(asyncio, "sleep", meanwhile)
            await disk.round()
        assert (looked_twice, findings.all()) == (True, [])


async def test_closed_segments_are_overdue_after_the_time_for_an_upload_until_they_are_in_the_store(
    tmp_path: Path,
) -> None:
    async with tiers(tmp_path, tiered_upload_timeout_ms="60000") as made:
        disk, findings = comparison(made)
        await disk.look_at_uploads()
        assert findings.all() == []
        made.clock.set_by_ms = 120_000
        await disk.look_at_uploads()
        (told,) = findings.all()
        assert told.kind is FindingKind.OVERDUE_UPLOAD
        assert (told.first_offset, told.last_offset) == (0, SEGMENTS - 1)
        await made.upload_all()
        await disk.look_at_uploads()
        assert findings.all() == []


async def test_a_folder_that_cannot_be_listed_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tiered.broker.reconcile.disk.SECOND_LOOK_MS", 0)
    plain = RealFileSystem.sizes

    def sizes(self: RealFileSystem, directory: str) -> dict[str, int]:
        if Path(directory).name == "0":
            raise OSError(errno.EIO, "Input/output error", directory)
        return plain(self, directory)

    async with tiers(tmp_path, partition_count=3) as made:
        disk, findings = comparison(made)
        for partition in made.partitions:
            (Path(partition.log.directory) / f"{77:020}.log").touch()
        monkeypatch.setattr(RealFileSystem, "sizes", sizes)
        await disk.round()
        assert [finding.partition for finding in findings.all()] == [1, 2]
        assert disk.turns == 1
        assert made.context.counters.failing_items["comparing local files"] == 1
