"""`tiered verify`: what it prints and the exit code, on a store in a folder."""

import json
import sys
from pathlib import Path

import pytest

from tests.unit.cold.verified_store import RECORDS, VerifiedStore, make_store
from tiered.cli import main


@pytest.fixture
def whole(tmp_path: Path) -> VerifiedStore:
    (tmp_path / "logs").mkdir()
    return make_store(tmp_path / "objects", tmp_path / "logs")


def test_a_whole_store_ends_with_zero(whole: VerifiedStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", whole.store.url]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("checked 3 of 3 segments in 1 partition: ")
    assert lines[1] == (
        "the store has nothing of 3 partitions; the latest upload of the others is from 2023-11-14T22:13:20Z; "
        "what was written since is on brokers' disks alone"
    )
    assert lines[2:] == [f"whole: nothing wrong was found in {whole.store.url}"]


def test_a_bad_chunk_ends_with_one_and_is_named(whole: VerifiedStore, capsys: pytest.CaptureFixture[str]) -> None:
    row = whole.tail(1).chunks[2]
    whole.flip(1, row.position + 100)
    assert main(["verify", whole.store.url]) == 1
    first, *_, last = capsys.readouterr().out.splitlines()
    assert first.startswith(f"orders-3 offsets {row.first_offset}..{row.first_offset + 9} chunk 2: chunk: bytes ")
    assert first.endswith(f"[{whole.rows[1].object_key}]")
    assert last == f"BAD: 1 problem in {whole.store.url}; the first: {first}"


def test_a_newer_version_is_undecided_and_not_bad(whole: VerifiedStore, capsys: pytest.CaptureFixture[str]) -> None:
    path = next(whole.root.glob("checkpoints/partitions/*/*/head.json"))
    path.write_bytes(path.read_bytes().replace(b"-checkpoint/1", b"-checkpoint/9"))
    assert main(["verify", whole.store.url]) == 1
    *_, last = capsys.readouterr().out.splitlines()
    assert last.startswith(f"UNDECIDED: 1 problem in {whole.store.url}; the first: orders-3: unknown-format: ")


def test_json_says_the_same_for_programs(whole: VerifiedStore, capsys: pytest.CaptureFixture[str]) -> None:
    whole.path(2).unlink()
    assert main(["verify", whole.store.url, "--json", "--orphans", "-j", "2"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found["first_problem"] == {
        "topic": "orders",
        "partition": 3,
        "first_offset": 2 * RECORDS,
        "last_offset": 3 * RECORDS - 1,
        "object_key": whole.rows[2].object_key,
        "chunk": None,
        "kind": "missing",
        "message": "the object is missing",
    }
    assert found["problems"] == [found["first_problem"]]
    assert (found["whole"], found["problem_count"], found["checked_segments"], found["orphans"]) == (False, 1, 3, [])


def test_a_progress_file_stays_until_all_is_whole(
    tmp_path: Path, whole: VerifiedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    progress = tmp_path / "progress"
    argv = ["verify", whole.store.url, "--progress-file", str(progress)]
    whole.flip(0, 100)
    assert main(argv) == 1
    assert f"{progress} keeps what is good" in capsys.readouterr().out
    whole.flip(0, 100)
    assert main(argv) == 0
    assert "note: 2 segments were found good earlier, by a run that began 20" in capsys.readouterr().out
    assert not progress.exists()


def test_a_terminal_sees_how_far_it_is(
    whole: VerifiedStore, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    monkeypatch.setenv("FORCE_COLOR", "1")
    whole.path(1).unlink()
    assert main(["verify", whole.store.url]) == 1
    captured = capsys.readouterr()
    assert "3 segments" in captured.err
    assert "BAD: 1 problem" in captured.out


def test_a_sample_says_how_much_it_was(whole: VerifiedStore, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", whole.store.url, "--fraction", "0.5", "--seed", "1"]) == 0
    assert ", a sample of 0.5 with seed 1, with " in capsys.readouterr().out


def test_a_sample_is_never_called_whole_and_says_what_it_did_not_read(
    whole: VerifiedStore, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["verify", whole.store.url, "--fraction", "0.0001"]
    assert main(argv) == 0
    checked, _, verdict = capsys.readouterr().out.splitlines()
    assert ": 1 chunk, a sample of 0.0001 with seed 0, with " in checked
    assert "whole" not in verdict
    assert verdict.startswith(f"nothing wrong was found in this sample of {whole.store.url}; ")
    assert verdict.endswith(" were not read. With --fraction 0.0001 the seeds 0 to 9999 together read everything")
    assert main([*argv, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["whole"] is None
    assert found["unread_bytes"] == found["log_bytes"] - found["checked_bytes"] > 0
    row = whole.tail(0).chunks[0]
    whole.flip(0, row.position + 100)
    assert main(argv) == 1
    assert "BAD: 1 problem" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--fraction", "0"], "0 is no share: it must be above 0 and at most 1"),
        (["--fraction", "half"], "half is no share"),
        (["-j", "0"], "0 is not from 1 to 64"),
        (["--topic", "order"], "has no topic order; it has orders"),
        (["--progress-file", "/no/such/folder/file"], "cannot use the progress file /no/such/folder/file"),
    ],
)
def test_wrong_options_are_a_usage_error(
    whole: VerifiedStore, more: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = main(["verify", whole.store.url, *more])
    except SystemExit as ended:
        code = int(str(ended.code))
    assert code == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("url", ["objects", "http://bucket/prefix", "s3://no_such/"])
def test_a_wrong_url_is_a_usage_error(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", url]) == 2
    assert capsys.readouterr().err.startswith("tiered verify: ")


def test_an_empty_folder_is_a_usage_error_that_says_what_to_look_at(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", tmp_path.as_uri()]) == 2
    assert "there is no checkpoint in " in capsys.readouterr().err


@pytest.mark.parametrize("command", [["verify"], ["restore", "--from"]])
def test_a_folders_path_is_as_good_as_its_url(
    command: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "my objects").mkdir()
    monkeypatch.chdir(tmp_path)
    for path in ("my objects", "./my objects", f"{tmp_path}/my objects"):
        assert main([*command, path]) != 0
        assert f"{tmp_path.as_uri()}/my%20objects" in capsys.readouterr().err
